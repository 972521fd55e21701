# SPDX-License-Identifier: BSD-3-Clause
"""The backend `gloo`: torch's own ProcessGroupGloo. Importing this registers it.

The connections are made here, because the C++ part has no headers of gloo; operations
are driven from csrc/torch/gloo.cpp without Python.
"""

import contextlib
from datetime import timedelta
from typing import Any, NamedTuple

from torchcomms import _core
from torchcomms._c10d import _shim
from torchcomms._python_backend import TorchCommBackend
from torchcomms._store import Adapter

_shim()._register_gloo()

_TRUE = ("1", "true", "yes", "y")


class TorchCommGloo(TorchCommBackend):
    """What `get_backend_impl()` gives for a communicator of `gloo`."""


class _Parts(NamedTuple):
    """What a communicator needs for its life; dropped after its connections."""

    group: Any
    store: Any  # of its children
    owner: Any  # a store written in Python, which c10d's prefixes do not keep alive
    claim: str | None  # rank 0's key in `owner` that counts the users of a name


def _device(hints):
    from torch._C._distributed_c10d import ProcessGroupGloo

    lazy = "lazy" in hints
    hostname = hints.get("hostname") or _core._option("TORCHCOMM_GLOO_HOSTNAME")
    interface = hints.get("interface") or _core._option("TORCHCOMM_GLOO_INTERFACE")
    if hostname:
        return ProcessGroupGloo.create_device(hostname=hostname, lazy_init=lazy)
    if interface:
        return ProcessGroupGloo.create_device(interface=interface, lazy_init=lazy)
    # The host name where it can be resolved, else loopback.
    return ProcessGroupGloo.create_default_device(lazy_init=lazy)


@contextlib.contextmanager
def _limited(store, seconds):
    """Gloo waits as long as its store does, whose own limit is its owner's."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=seconds))
    try:
        yield
    finally:
        store.set_timeout(before)


def _group(store, rank, size, seconds, hints):
    from torch._C._distributed_c10d import ProcessGroupGloo

    options = ProcessGroupGloo._Options()
    options._devices = [_device(hints)]
    # One collective at a time, which keeps the order of their issue.
    options._threads = 1
    options._timeout = timedelta(seconds=seconds)
    with _limited(store, seconds):
        return ProcessGroupGloo(store, rank, size, options)


def _address():
    """Where rank 0's own store listens."""
    import socket

    given = _core._option("MASTER_ADDR") or _core._option("TORCHCOMM_GLOO_HOSTNAME")
    if given:
        return given
    try:
        name = socket.gethostname()
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


def _fresh_store(adapter, prefix, rank, seconds):
    """A TCPStore of this communicator's own; its place goes through the given store."""
    from torch._C._distributed_c10d import TCPStore

    timeout = timedelta(seconds=seconds)
    key = f"{prefix}/dup_store_port"
    if rank == 0:
        address = _address()
        store = TCPStore(address, 0, None, True, timeout, wait_for_workers=False)
        adapter.set(key, f"{store.port} {address}")
        return store
    port, address = adapter.get(key, seconds).decode().split(" ", 1)
    return TCPStore(address, int(port), None, False, timeout, wait_for_workers=False)


def _claim(adapter, name, prefix, rank, seconds):
    """Refuses, on every rank, a store on which the name is in use.

    A name may come again after its communicator was left.
    """
    key, verdict = f"{name}/in_use", f"{prefix}/in_use"
    if rank == 0:
        count = adapter.add(key, 1)
        if count != 1:
            adapter.add(key, -1)
        adapter.set(verdict, str(count))
    elif (count := int(adapter.get(verdict, seconds))) == 1:
        return None
    if count != 1:
        raise RuntimeError(
            f"detected multiple communicators on same store: '{name}' is in use there"
        )
    return key


def _connect(given, name, rank, size, seconds, hints):
    """Connects all ranks by the store of the start-up; None where there is one rank."""
    from torch._C._distributed_c10d import HashStore, PrefixStore

    if given is None:
        store = HashStore()
        return _Parts(_group(store, 0, 1, seconds, hints), store, None, None)
    own = not isinstance(given, Adapter)
    adapter = Adapter(given, None, seconds) if own else given
    try:
        generation = adapter.add(f"{name}/gen/{rank}", 1)
        prefix = f"{name}/{generation}"
        owner = claim = None
        if hints.get("persistent_store", "").strip().lower() in _TRUE:
            owner = adapter.opened()
            claim = _claim(adapter, name, prefix, rank, seconds)
            store = PrefixStore(prefix, owner)
        else:
            fresh = _fresh_store(adapter, prefix, rank, seconds)
            store = PrefixStore(name, fresh)
        group = _group(store, rank, size, seconds, hints)
    finally:
        if own:
            adapter.close()
    return _Parts(group, store, owner, claim)


def _connect_child(parent, prefix, rank, size, seconds, hints):
    """Connects the ranks of a child; every split of a communicator has a prefix."""
    from torch._C._distributed_c10d import PrefixStore

    store = PrefixStore(prefix, parent.store)
    group = _group(store, rank, size, seconds, hints)
    return _Parts(group, store, parent.owner, None)


def _leave(parts):
    """Gives the name back, where the store still answers."""
    if parts.claim is not None:
        try:
            parts.owner.add(parts.claim, -1)
        except Exception:
            # Its server has gone, and the name with it.
            return
