# SPDX-License-Identifier: BSD-3-Clause
"""A ring of the last operations, and its attachment to communicators."""

from __future__ import annotations

import collections
import functools
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from torchcomms import _core
from torchcomms.hooks.fr import health
from torchcomms.hooks.fr.entry import Entry, Group

_VERSION = "2.10"
_FINALIZE = _core.OpName.finalize
_SPLIT = _core.OpName.split


class Recorder:
    """Entries are counted by the ring itself, not by the ids of the operations."""

    def __init__(self, capacity: int) -> None:
        self._lock = threading.Lock()
        # What follows is guarded by it.
        self._entries: collections.deque[Entry] = collections.deque(maxlen=capacity)
        self._recorded = 0
        self._groups: list[Group] = []
        self._attached: weakref.WeakSet[_core.TorchComm] = weakref.WeakSet()
        self._registered = 0
        self._first: Group | None = None

    def attach(self, comm: _core.TorchComm, ranks: Sequence[int] | None = None) -> None:
        """Records a communicator; the second time it does nothing."""
        with self._lock:
            if comm in self._attached:
                return
            self._forget_groups_locked()
            group = Group(self._registered, comm, ranks)
            self._registered += 1
            self._groups.append(group)
            self._attached.add(comm)
            self._first = self._first or group
        _Attachment(self, group).register(comm)

    def _forget_groups_locked(self) -> None:
        """A process may make and finalize communicators without an end."""
        named = {entry.group for entry in self._entries}
        self._groups = [g for g in self._groups if not g.finalized or g in named]

    def add(self, entry: Entry) -> None:
        with self._lock:
            entry.record_id = self._recorded
            self._recorded += 1
            self._entries.append(entry)

    def reset(self) -> None:
        with self._lock:
            self._entries.clear()
            self._forget_groups_locked()
            self._recorded = 0

    def size(self) -> int:
        return len(self._entries)

    def was_registered(self) -> bool:
        return self._registered > 0

    def rank(self) -> int:
        """Of the communicator that was registered first; -1 while it has none."""
        if self._first is None:
            return -1
        self._first.refresh()
        return self._first.rank

    def document(self, include_completed: bool, entries: bool = True) -> dict[str, Any]:
        """As in JSON."""
        with self._lock:
            kept = list(self._entries)
            groups = list(self._groups)
        for group in groups:
            group.refresh()
        for entry in kept:
            entry.look()
        if not include_completed:
            kept = [entry for entry in kept if not entry.retired]
        document: dict[str, Any] = {
            "version": _VERSION,
            "comm_lib_version": _library_version(),
            "pg_config": {group.name: _group_config(group) for group in groups},
            "pg_status": {str(group.number): _group_status(group) for group in groups},
        }
        if entries and kept:
            document["entries"] = [entry.document() for entry in kept]
        return document


@functools.cache
def _library_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("torchcomms")
    except metadata.PackageNotFoundError:
        return ""


def _group_config(group: Group) -> dict[str, str]:
    ranks = ",".join(str(rank) for rank in group.ranks)
    return {"name": group.name, "desc": group.backend, "ranks": f"[{ranks}]"}


def _group_status(group: Group) -> dict[str, int]:
    return {
        "last_enqueued_collective": group.last_enqueued,
        "last_started_collective": group.last_started,
        "last_completed_collective": group.last_completed,
    }


class _Attachment:
    """The hooks on one communicator. They hold the recorder, not the communicator."""

    def __init__(self, recorder: Recorder, group: Group) -> None:
        self._recorder = recorder
        self._group = group
        # The call of each thread between its two hooks, and the ranks of a split.
        self._open: dict[int, Entry] = {}
        self._split_ranks: list[int] = []

    def register(self, comm: _core.TorchComm) -> None:
        comm.register_pre_hook(self._before)
        comm.register_post_hook(self._after)
        comm.register_abort_hook(self._aborting)

    def _before(self, op: _core.OpName, op_id: int, args: Any) -> None:
        if op is _FINALIZE:
            self._group.finalized = True
            return
        thread = threading.get_ident()
        if self._open:
            # A call without its second hook has returned without a work.
            former = self._open.pop(thread, None)
            if former is not None:
                former.drop()
        entry = Entry(self._group, op, op_id, args)
        self._recorder.add(entry)
        if op is _SPLIT:
            self._split_ranks = list(args.ranks)
            if not self._split_ranks:
                # Without a child there is no second hook to tell its end.
                entry.end(entry.created_ns, True)
                return
        self._open[thread] = entry

    def _after(self, op_id: int, args: Any) -> None:
        entry = self._open.pop(threading.get_ident(), None)
        if entry is None or entry.op_id != op_id:
            return
        if entry.op is _SPLIT:
            ranks = [self._group.ranks[rank] for rank in self._split_ranks]
            self._recorder.attach(args._child, ranks)
        work = getattr(args, "_work", None)
        if work is None or work.is_completed():
            entry.end(time.time_ns(), True)
        else:
            entry.work = work
            work._observe(entry.observe)

    def _aborting(self) -> None:
        health.mark_unhealthy()
        health.wait_for_a_dump(self._group.aborts_process, self._group.on_cpu)


_shared_lock = threading.Lock()
_shared: Recorder | None = None


def shared() -> Recorder:
    """The one recorder of the process, made at its first use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Recorder(_core._option("TORCHCOMM_FR_BUFFER_SIZE"))
        return _shared
