# SPDX-License-Identifier: BSD-3-Clause
"""What the flight recorder keeps of a communicator and of an operation."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torchcomms import _core
from torchcomms.hooks._calls import size_of, tensors_of
from torchcomms.hooks.fr import health

_SEND = _core.OpName.send
_RECV = _core.OpName.recv
_BATCH = _core.OpName.batch_op_issue

# The analyser of torch knows these by other names.
_NAMES = {
    _BATCH: "coalesced",
    _core.OpName.gather_single: "gather",
}
_BACKENDS = {"torchcomms": "ncclx"}
# Of these it counts the elements of the first shape, as those of all ranks' parts.
_JOINED = {
    _core.OpName.all_gather: ("output",),
    _core.OpName.reduce_scatter: ("input",),
    _core.OpName.all_to_all: ("input", "output"),
}
_DTYPES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


_Tensors = list[tuple[Any, Any]]


class _Thread(threading.local):
    """Who a thread is; asked once by each."""

    def __init__(self) -> None:
        self.who = str(threading.get_native_id()), threading.current_thread().name


_thread = _Thread()


class Group:
    """A communicator that is recorded.

    Its operations are numbered, so that the same collective has the same number on all
    ranks. Point-to-point operations, which not all ranks take part in, are numbered by
    themselves, downwards from -1.
    """

    def __init__(
        self, number: int, comm: _core.TorchComm, ranks: Sequence[int] | None
    ) -> None:
        options = comm.get_options()
        self.number = number
        self.name = comm.get_name()
        self.backend = comm.get_backend()
        self.rank = -1
        self.ranks = list(ranks or ())
        self.on_cpu = comm.get_device().type == "cpu"
        self.aborts_process = options.abort_process_on_timeout_or_error
        self.timeout_ms = options.timeout // timedelta(milliseconds=1)
        self.last_enqueued = 0
        self.last_started = 0
        self.last_completed = 0
        self.finalized = False
        self._point_to_point = 0
        self._comm = weakref.ref(comm)
        self.refresh()

    def refresh(self) -> None:
        """Asks for the ranks: they are not there before the first reconfigure, and
        another one may change them."""
        comm = self._comm()
        size = 0 if comm is None else size_of(comm)
        if comm is None or size == 0:
            return
        self.rank = comm.get_rank()
        if size != len(self.ranks):
            self.ranks = list(range(size))

    def number_call(self, op: _core.OpName) -> int:
        if not self.ranks:
            self.refresh()
        if op is _SEND or op is _RECV or op is _BATCH:
            self._point_to_point -= 1
            return self._point_to_point
        self.last_enqueued += 1
        return self.last_enqueued

    def started(self, seq: int) -> None:
        if seq > self.last_started:
            self.last_started = seq

    def completed(self, seq: int) -> None:
        self.started(seq)
        if seq > self.last_completed:
            self.last_completed = seq


class Entry:
    """One operation. Its fields are written by the thread that issues it, and those of
    its end by whoever ends it; a dump may see it in between."""

    record_id = -1
    peer = -1
    started_ns = 0
    completed_ns = 0
    duration_ns = 0
    retired = False
    # Kept until it ends, to be asked then how.
    work: _core.TorchWork | None = None

    def __init__(self, group: Group, op: _core.OpName, op_id: int, args: Any) -> None:
        inputs, outputs = tensors_of(op, args)
        self.group = group
        self.op = op
        self.op_id = op_id
        self.seq = group.number_call(op)
        if op is _SEND or op is _RECV:
            self.peer = args.peer
        self.inputs = [(t.shape, t.dtype) for t in inputs]
        self.outputs = (
            self.inputs if outputs is inputs else [(t.shape, t.dtype) for t in outputs]
        )
        self.thread = _thread.who
        self.created_ns = time.time_ns()

    def observe(self, event: str, time_ns: int) -> None:
        """What happens to the operation's work."""
        if event == "start":
            self.started_ns = time_ns
            self.group.started(self.seq)
        elif event == "end":
            work, self.work = self.work, None
            self.end(time_ns, work is None or work.is_completed())

    def look(self) -> None:
        """For a dump: an end may be told some time after it."""
        work = self.work
        if work is not None:
            work.is_completed()

    def end(self, time_ns: int, well: bool) -> None:
        """An operation that did not end well retires without being completed."""
        if self.group.on_cpu:
            # There it runs from its issue on.
            self.started_ns = self.created_ns
        self.duration_ns = max(time_ns - (self.started_ns or time_ns), 1)
        if well:
            self.completed_ns = time_ns
            self.group.completed(self.seq)
        else:
            health.mark_unhealthy()
        self.retired = True

    def drop(self) -> None:
        """Its call raised: it has no work."""
        if not self.retired:
            self.duration_ns = max(time.time_ns() - self.created_ns, 1)
            self.retired = True

    def state(self) -> str:
        if self.completed_ns:
            return "completed"
        return "started" if self.started_ns else "scheduled"

    def profiling_name(self) -> str:
        backend = _BACKENDS.get(self.group.backend, self.group.backend)
        op = _NAMES.get(self.op) or str(self.op).rpartition(".")[2]
        if self.op is _SEND:
            op += f" {self.group.rank}->{self.peer}"
        elif self.op is _RECV:
            op += f" {self.group.rank}<-{self.peer}"
        return f"{backend}:{op}"

    def document(self) -> dict[str, Any]:
        """As in JSON; the pickle has another form for some values."""
        group = self.group
        document = {
            "record_id": self.record_id,
            "pg_id": group.number,
            "process_group": [group.name, group.backend],
            "collective_seq_id": self.seq,
            "p2p_seq_id": 0,
            "op_id": self.op_id,
            "profiling_name": self.profiling_name(),
            "thread_id": self.thread[0],
            "thread_name": self.thread[1],
            "time_created_ns": self.created_ns,
            "input_sizes": self._sizes("input", self.inputs),
            "output_sizes": self._sizes("output", self.outputs),
            "input_dtypes": self._dtype_names("input", self.inputs),
            "output_dtypes": self._dtype_names("output", self.outputs),
            "state": self.state(),
            "time_discovered_started_ns": self.started_ns,
            "time_discovered_completed_ns": self.completed_ns,
            "retired": self.retired,
            "timeout_ms": group.timeout_ms,
            "is_p2p": False,
        }
        if self.retired:
            document["duration_ms"] = self.duration_ns / 1e6
        return document

    def _is_joined(self, side: str, tensors: _Tensors) -> bool:
        return side in _JOINED.get(self.op, ()) and len(tensors) > 0

    def _sizes(self, side: str, tensors: _Tensors) -> list[list[int]]:
        shapes = [shape for shape, _ in tensors]
        if not self._is_joined(side, tensors):
            return [list(shape) for shape in shapes]
        if all(shape == shapes[0] for shape in shapes):
            return [[len(shapes), *shapes[0]]]
        return [[sum(shape.numel() for shape in shapes)]]

    def _dtype_names(self, side: str, tensors: _Tensors) -> list[str]:
        names = [dtype_name(dtype) for _, dtype in tensors]
        return names[:1] if self._is_joined(side, tensors) else names


def dtype_name(dtype: Any) -> str:
    """As torch's C++ names it: "Float" for torch.float32."""
    name = str(dtype).rpartition(".")[2]
    return _DTYPES.get(name) or name[:1].upper() + name[1:]
