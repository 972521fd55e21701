# SPDX-License-Identifier: BSD-3-Clause
"""The c10d door: backend names for torch.distributed, and the C++ shim behind them."""

import sys
from datetime import timedelta
from importlib.util import find_spec

_NAMES = ("torchcomms", "ncclx")
_SHIM = "torchcomms._backend_wrapper"
# Stands in the shim's file, followed by the torch it was built for and a zero.
_MARK = b"torchcomms-shim-built-for:"


class ShimError(RuntimeError):
    """The C++ part that torch.distributed needs is missing or for another torch."""


def _built_for(path):
    """The version of torch in the shim's file, read without loading it."""
    import mmap

    with open(path, "rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(_MARK)
            if at < 0:
                return "an unknown version"
            at += len(_MARK)
            return data[at : data.find(b"\0", at)].decode()


def _check(path):
    import torch

    built_for, found = _built_for(path), torch.__version__.partition("+")[0]
    if built_for != found:
        raise ShimError(
            f"the c10d part of torchcomms was built for torch {built_for}, found "
            f"{found}: build torchcomms again in this environment"
        )


def _shim():
    """The module torchcomms._backend_wrapper."""
    if _SHIM not in sys.modules:
        spec = find_spec(_SHIM)
        if spec is None:
            raise ShimError(
                "the c10d part of torchcomms is missing: torch or its headers were not "
                "there when torchcomms was built; build it again where they are"
            )
        _check(spec.origin)
        try:
            __import__(_SHIM)
        except ImportError as cause:
            raise ShimError(
                f"the c10d part of torchcomms does not load: {cause}"
            ) from cause
    return sys.modules[_SHIM]


def load_shim() -> bool:
    """Loads the shim where it fits: it has a faster way to a tensor's memory, too."""
    try:
        _shim()
    except ShimError:
        return False
    return True


def shim_class(name):
    """A class of the shim; without a shim that fits, one that says so when it is used.

    torch asks for it while it is imported, and would take an error as "no torchcomms".
    """
    try:
        return getattr(_shim(), name)
    except ShimError as cause:
        text = str(cause)

    def refuse(self, *args, **kwargs):
        raise ShimError(text)

    return type(name, (), {"__module__": "torchcomms._comms", "__init__": refuse})


def _creator(name):
    def create(options, _backend_options=None):
        timeout = options.timeout
        if not isinstance(timeout, timedelta):
            timeout = timedelta(seconds=timeout)
        return _shim()._create(
            name,
            options.group_id,
            options.store,
            options.group_rank,
            options.group_size,
            timeout,
            options.global_ranks_in_group,
        )

    return create


def register_c10d() -> None:
    """Makes `torchcomms` and `ncclx` backends of torch.distributed.

    torch calls this itself at the end of `import torch`, unless
    TORCH_DEVICE_BACKEND_AUTOLOAD=0. May be called any number of times.
    """
    from torch import distributed

    if not distributed.is_available():
        return
    backend = distributed.Backend
    for name in _NAMES:
        if name.upper() not in backend._plugins:
            backend.register_backend(
                name, _creator(name), extended_api=True, devices=["cpu"]
            )
