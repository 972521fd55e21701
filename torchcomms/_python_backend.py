# SPDX-License-Identifier: BSD-3-Clause
"""TorchCommBackend: what backends look like from Python, and which class each has."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from torchcomms import _core


def _missing(name):
    def method(self, *args):
        raise RuntimeError(
            f'Tried to call pure virtual function "TorchCommBackend::{name}": '
            f"{type(self).__qualname__} does not override it"
        )

    method.__name__ = name
    method.__qualname__ = f"TorchCommBackend.{name}"
    method.__doc__ = f"What `TorchComm.{name}` calls; to be overridden."
    return method


class TorchCommBackend:
    """The base of the classes behind communicators: `TorchComm.get_backend_impl()`
    gives an instance of one.

    Of the backends of this package the instances answer the queries below, also
    after `finalize()`; everything else raises. Backends written in Python are not
    supported yet: see `register_backend`.
    """

    _comm: weakref.ref[_core.TorchComm] | None = None

    def _query(self, name):
        """The communicator's answer; of a backend in Python, that it has none."""
        comm = self._comm() if self._comm is not None else None
        return _missing(name)(self) if comm is None else getattr(comm, name)()

    def get_rank(self) -> int:
        """This process's rank."""
        return self._query("get_rank")

    def get_size(self) -> int:
        """Number of ranks."""
        return self._query("get_size")

    def get_backend_name(self) -> str:
        """The backend asked for."""
        if self._comm is None:
            return _missing("get_backend_name")(self)
        return self._query("get_backend")

    def get_comm_name(self) -> str:
        """The communicator's name."""
        if self._comm is None:
            return _missing("get_comm_name")(self)
        return self._query("get_name")

    def set_timeout(self, timeout: timedelta) -> None:
        """Told the communicator's new timeout; need not be overridden."""


for _name in (
    "init finalize split send recv broadcast all_reduce reduce all_gather all_gather_v "
    "all_gather_single reduce_scatter reduce_scatter_v reduce_scatter_single "
    "all_to_all_single all_to_all_v_single all_to_all barrier scatter gather"
).split():
    setattr(TorchCommBackend, _name, _missing(_name))
del _name


def register_backend(name: str, backend_class: type[TorchCommBackend]) -> None:
    """Registers a backend written in Python. Not supported yet: always raises."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, but got {type(name).__name__}")
    if not (
        isinstance(backend_class, type) and issubclass(backend_class, TorchCommBackend)
    ):
        raise TypeError(
            f"backend_class must be a subclass of torchcomms.TorchCommBackend, but got "
            f"{backend_class!r}"
        )
    raise RuntimeError(
        f"register_backend not implemented: backend '{name}' is written in Python, "
        f"which is not supported yet"
    )


# The class of a backend of this package, by the name asked for: where it is made. A
# module is imported at the first question.
_MODULES = {
    "ncclx": ("torchcomms._comms_ncclx", "TorchCommNCCLX"),
    "gloo": ("torchcomms._comms_gloo", "TorchCommGloo"),
}

# One instance for each communicator that was asked.
_instances: weakref.WeakKeyDictionary[_core.TorchComm, TorchCommBackend] = (
    weakref.WeakKeyDictionary()
)


def _class_of(backend):
    from importlib import import_module

    place = _MODULES.get(backend)
    if place is None:
        return TorchCommBackend
    return getattr(import_module(place[0]), place[1])


def _implementation(comm):
    """What TorchComm.get_backend_impl returns: the same object at each call."""
    found = _instances.get(comm)
    if found is None:
        found = _class_of(comm.get_backend())()
        found._comm = weakref.ref(comm)
        # Two threads that ask at once get the same one.
        found = _instances.setdefault(comm, found)
    return found
