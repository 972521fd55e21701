# SPDX-License-Identifier: BSD-3-Clause
"""The log's file, and its hooks on communicators."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from torchcomms import _core
from torchcomms.hooks._calls import size_of
from torchcomms.hooks.clog.signature import signature

_EVENTS = ("LIFECYCLE", "ALL")
_VERBOSE = ("buffers",)
_LETTERS = {"start": "S", "end": "E", "wait": "W"}


def _words(name: str, given: Sequence[str], known: tuple[str, ...]) -> frozenset[str]:
    if isinstance(given, str):
        raise TypeError(f"{name} must be a list of str, but got {given!r}")
    for word in given:
        if word not in known:
            raise ValueError(f"{name} must be of {', '.join(known)}, but got {word!r}")
    return frozenset(given)


class _File:
    """Lines, each written by one call of the system: they are in the file at once."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o666)
        except OSError as cause:
            raise RuntimeError(
                f"clog cannot open '{path}': {cause.strerror}"
            ) from cause
        weakref.finalize(self, os.close, self._fd).atexit = False
        self._path = path
        self._broken = False
        base_ms = time.time_ns() // 1_000_000
        self._base_ns = base_ms * 1_000_000
        self.write(f"V|1|base_timestamp={base_ms // 1000}.{base_ms % 1000:03}")

    def since_base(self, time_ns: int) -> str:
        return f"+{(time_ns - self._base_ns) / 1e9:.6f}"

    def write(self, line: str) -> None:
        """A full disk ends the log, not the training."""
        if self._broken:
            return
        try:
            os.write(self._fd, line.encode() + b"\n")
        except OSError as cause:
            self._broken = True
            warnings.warn(
                f"clog stops writing to '{self._path}': {cause.strerror}", stacklevel=2
            )


class _Log:
    """What the communicators of one clog share."""

    def __init__(self, path: str, lifecycle: bool, buffers: bool) -> None:
        self.file = _File(path)
        self.lifecycle = lifecycle
        self.buffers = buffers
        self._lock = threading.Lock()
        # Guarded by it.
        self._signatures: dict[str, int] = {}
        self._watched: weakref.WeakKeyDictionary[_core.TorchComm, _Watch] = (
            weakref.WeakKeyDictionary()
        )

    def watch(self, comm: _core.TorchComm, ranks: Iterable[int] | None = None) -> None:
        with self._lock:
            if comm in self._watched:
                raise RuntimeError(
                    f"communicator '{comm.get_name()}' is registered with this clog "
                    f"already"
                )
            watch = self._watched[comm] = _Watch(self, comm, ranks)
        watch.register(comm)

    def number(self, text: str) -> int:
        """The id of a signature; a new one is written."""
        with self._lock:
            known = self._signatures.get(text)
            if known is None:
                known = self._signatures[text] = len(self._signatures) + 1
                self.file.write(f"C{known}|sig|{text}")
            return known

    def finalized(self) -> None:
        """What is open when the last communicator goes, nobody has waited for."""
        with self._lock:
            watches = list(self._watched.values())
        if not all(watch.is_finalized for watch in watches):
            return
        for watch in watches:
            count = watch.count_open()
            if count > 0:
                self.file.write(f"WARN|comm={watch.name}|open_works={count}")


class _Watch:
    """The hooks on one communicator. They hold the log, not the communicator."""

    def __init__(
        self, log: _Log, comm: _core.TorchComm, ranks: Iterable[int] | None
    ) -> None:
        self.name = comm.get_name()
        self.is_finalized = False
        self._log = log
        self._comm = weakref.ref(comm)
        self._is_child = ranks is not None
        self._ranks = list(ranks or ())
        self._is_announced = self._is_child
        # The call of each thread between its two hooks, works that have not ended, and
        # the ranks of a split.
        self._calls: dict[int, tuple[int, int]] = {}
        self._works: dict[int, _core.TorchWork] = {}
        self._split_ranks: list[int] = []

    def register(self, comm: _core.TorchComm) -> None:
        self._announce()
        comm.register_pre_hook(self._before)
        comm.register_post_hook(self._after)

    def count_open(self) -> int:
        """Also hears of what has ended, which may be told some time after it."""
        for work in list(self._works.values()):
            work.is_completed()
        return len(self._works)

    def _announce(self) -> None:
        """As soon as the communicator has ranks."""
        comm = self._comm()
        size = 0 if comm is None else size_of(comm)
        if self._is_announced or comm is None or size == 0:
            return
        self._is_announced = True
        self._ranks = list(range(size))
        self._log.file.write(
            f"new_comm|comm={self.name}|rank={comm.get_rank()}|world_size={size}"
        )

    def _before(self, op: _core.OpName, op_id: int, args: Any) -> None:
        self._announce()
        if op is _core.OpName.split:
            self._split_ranks = list(args.ranks)
            return
        if op is _core.OpName.finalize:
            self.is_finalized = True
            self._log.finalized()
            return
        text = signature(op, args, self._log.buffers)
        if text is None:
            return
        call = self._log.number(f"{text}|comm={self.name}")
        file = self._log.file
        file.write(f"C{call}|Q|work_id={op_id}|{file.since_base(time.time_ns())}")
        if self._log.lifecycle:
            self._calls[threading.get_ident()] = (op_id, call)

    def _after(self, op_id: int, args: Any) -> None:
        if isinstance(args, _core.SplitPostHookArgs):
            self._split(args._child)
            return
        issued, call = self._calls.pop(threading.get_ident(), (-1, 0))
        if issued == op_id:
            self._follow(call, op_id, getattr(args, "_work", None))

    def _split(self, child: _core.TorchComm) -> None:
        ranks = [self._ranks[rank] for rank in self._split_ranks]
        text = ",".join(str(rank) for rank in ranks)
        self._log.file.write(
            f"split|parent={self.name}|child={child.get_name()}|ranks={text}"
        )
        self._log.watch(child, ranks)

    def _follow(self, call: int, op_id: int, work: _core.TorchWork | None) -> None:
        file = self._log.file

        def observe(event: str, time_ns: int) -> None:
            file.write(f"C{call}|{_LETTERS[event]}|{file.since_base(time_ns)}")
            if event == "end":
                self._works.pop(op_id, None)

        if work is None:
            now_ns = time.time_ns()
            observe("start", now_ns)
            observe("end", now_ns)
        else:
            self._works[op_id] = work
            work._observe(observe)


def open_log(output: str, events: Sequence[str], verbose: Sequence[str]) -> _Log:
    lifecycle = bool(_words("events", events, _EVENTS))
    buffers = bool(_words("verbose", verbose, _VERBOSE))
    return _Log(os.fspath(output), lifecycle, buffers)
