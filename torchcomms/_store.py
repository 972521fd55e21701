# SPDX-License-Identifier: BSD-3-Clause
"""The key-value store of the start-up: any c10d store, or one at MASTER_ADDR."""

import os
import queue
import socket
import threading
import time
from datetime import timedelta
from typing import Any

from torchcomms import _core

_FIRST_DELAY_S = 0.0001
_LAST_DELAY_S = 0.05
# The last look before a deadline must not be taken for a store that is silent.
_LEAST_CALL_S = 0.5

# Hosting a store ends with its object, and peers may still be starting: kept for the
# life of the process, and shared by its communicators.
_master_stores: dict[tuple[int, str, int, int], Any] = {}
_master_lock = threading.Lock()


class _Worker:
    """A thread that makes calls, so that its owner can stop waiting for one.

    c10d's clients wait for ever for a server that lives and does not answer. A call
    that is given up keeps the thread, which ends with the process.
    """

    def __init__(self):
        self._calls = queue.SimpleQueue()
        self._silent = False
        self._thread = threading.Thread(
            target=self._run, args=(self._calls,), name="torchcomms-store", daemon=True
        )
        self._thread.start()

    @staticmethod
    def _run(calls):
        for result, function, args in iter(calls.get, None):
            try:
                result.put((function(*args), None))
            except BaseException as cause:
                result.put((None, cause))

    def call(self, seconds, function, *args):
        result = queue.SimpleQueue()
        self._calls.put((result, function, args))
        try:
            value, cause = result.get(timeout=seconds)
        except queue.Empty:
            self._silent = True
            raise TimeoutError(f"no answer within {seconds:.3g} s") from None
        if cause is not None:
            raise cause
        return value

    def close(self):
        self._calls.put(None)
        if not self._silent:
            self._thread.join()


class Adapter:
    """A store as the C core uses it; errors name the key and the store.

    Without `store` it is opened by `open_store` at first use, so that a backend which
    needs none opens none. No call takes much longer than `seconds`. Closed after the
    start-up.
    """

    def __init__(self, store, open_store, seconds):
        self._store = store
        self._open_store = open_store
        self._seconds = seconds
        self._can_check = True
        self._worker = None

    def opened(self):
        """The store itself, for who keeps it."""
        if self._store is None:
            self._store = self._open_store()
        if self._worker is None:
            self._worker = _Worker()
        return self._store

    def close(self):
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _failure(self, action, key, cause):
        return RuntimeError(
            f"store: cannot {action} key '{key}' in {_describe(self._store)}: "
            f"{_first_line(cause)}"
        )

    def set(self, key, value):
        store = self.opened()
        try:
            self._worker.call(self._seconds, store.set, key, value)
        except Exception as cause:
            raise self._failure("set", key, cause) from cause

    def add(self, key, amount):
        store = self.opened()
        try:
            return int(self._worker.call(self._seconds, store.add, key, amount))
        except Exception as cause:
            raise self._failure("add to", key, cause) from cause

    def get(self, key, seconds):
        """The key's value; waits until it is set.

        By looking again and again: a store that waits is deaf to Ctrl-C, holds a lock
        that other threads with the same object need, and writes its timeout to stderr.
        """
        store = self.opened()
        deadline = time.monotonic() + seconds
        delay = _FIRST_DELAY_S
        while True:
            try:
                left = max(deadline - time.monotonic(), _LEAST_CALL_S)
                value = self._worker.call(left, self._look, store, key)
            except Exception as cause:
                raise self._failure("get", key, cause) from cause
            if value is not None:
                return value
            left = deadline - time.monotonic()
            if left <= 0:
                raise RuntimeError(
                    f"store: key '{key}' was not set within {seconds:.3g} s in "
                    f"{_describe(store)}: a rank is missing"
                )
            time.sleep(min(delay, left))
            delay = min(delay * 1.5, _LAST_DELAY_S)

    def _look(self, store, key):
        if self._can_check:
            try:
                if not store.check([key]):
                    return None
            except (AttributeError, NotImplementedError):
                self._can_check = False
            except RuntimeError as cause:
                # A store written in Python need not have the method.
                if "pure virtual" not in str(cause):
                    raise
                self._can_check = False
        if self._can_check:
            value = store.get(key)
        else:
            try:
                value = store.get(key)
            except LookupError:
                return None
            if not value:
                return None
        return value.encode() if isinstance(value, str) else bytes(value)


def _first_line(cause):
    text = str(cause).split("\n", 1)[0]
    return text or type(cause).__name__


def _describe(store):
    inner = getattr(store, "underlying_store", None)
    if inner is not None:
        return _describe(inner)
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    place = f" at {host}:{port}" if host is not None and port is not None else ""
    return f"{type(store).__name__}{place}"


def _master_address():
    address = _core._option("MASTER_ADDR")
    port = _core._option("MASTER_PORT")
    for variable, missing in (("MASTER_ADDR", not address), ("MASTER_PORT", port < 0)):
        if missing:
            raise RuntimeError(
                f"{variable} is not set: several ranks need it to find each other when "
                f"new_comm is given no store"
            )
    return address, port


def _host(address, port, timeout):
    """The store, hosted here; None where something else listens there already."""
    from torch._C._distributed_c10d import TCPStore

    try:
        return TCPStore(
            address,
            port,
            None,
            True,
            timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as cause:
        if "EADDRINUSE" in str(cause):
            return None
        raise RuntimeError(
            f"store: rank 0 cannot listen at MASTER_ADDR:MASTER_PORT = "
            f"{address}:{port}: {_first_line(cause)}"
        ) from cause


def _await_listener(address, port, deadline):
    """Waits until the port accepts: torch's own client is loud while it waits."""
    delay = _FIRST_DELAY_S
    while True:
        left = deadline - time.monotonic()
        try:
            socket.create_connection((address, port), max(left, 0.01)).close()
            return
        except OSError as cause:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RuntimeError(
                    f"store: nothing answers at MASTER_ADDR:MASTER_PORT = "
                    f"{address}:{port}: {cause}"
                ) from cause
        time.sleep(min(delay, left))
        delay = min(delay * 1.5, _LAST_DELAY_S)


def _connect(address, port, timeout):
    from torch._C._distributed_c10d import TCPStore

    deadline = time.monotonic() + timeout.total_seconds()
    _await_listener(address, port, deadline)
    left = max(deadline - time.monotonic(), 0.1)
    try:
        return TCPStore(
            address,
            port,
            None,
            False,
            timedelta(seconds=left),
            wait_for_workers=False,
        )
    except RuntimeError as cause:
        raise RuntimeError(
            f"store: no TCPStore answers at MASTER_ADDR:MASTER_PORT = "
            f"{address}:{port}: {_first_line(cause)}"
        ) from cause


def open_master_store(rank, timeout):
    """The TCPStore at MASTER_ADDR:MASTER_PORT, hosted by rank 0."""
    address, port = _master_address()
    key = (os.getpid(), address, port, rank)
    with _master_lock:
        store = _master_stores.get(key)
        if store is None:
            agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            if rank == 0 and not agent:
                store = _host(address, port, timeout)
            if store is None:
                store = _connect(address, port, timeout)
            _master_stores[key] = store
    return store
