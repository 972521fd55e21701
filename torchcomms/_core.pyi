# SPDX-License-Identifier: BSD-3-Clause
"""Types of the C extension; what each does is said in its docstring."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Protocol, SupportsFloat, SupportsIndex, final

import torch
from typing_extensions import disjoint_base

from torchcomms._enums import _Number
from torchcomms._options import BatchP2POptions, CommOptions
from torchcomms._python_backend import TorchCommBackend
from torchcomms._window import TorchCommWindow

class RedOpType(_Number):
    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    BAND = 4
    BOR = 5
    BXOR = 6
    PREMUL_SUM = 7
    AVG = 8

class OpName(_Number):
    send = 0
    recv = 1
    broadcast = 2
    all_reduce = 3
    reduce = 4
    all_gather = 5
    all_gather_v = 6
    all_gather_single = 7
    reduce_scatter = 8
    reduce_scatter_v = 9
    reduce_scatter_single = 10
    all_to_all_single = 11
    all_to_all_v_single = 12
    all_to_all = 13
    barrier = 14
    scatter = 15
    gather = 16
    gather_single = 17
    split = 18
    new_window = 19
    finalize = 20
    batch_op_issue = 21

class WorkStatus(_Number):
    NOT_STARTED = 0
    INPROGRESS = 1
    COMPLETED = 2
    TIMEDOUT = 3
    ERROR = 4

class P2POpType(_Number):
    SEND = 0
    RECV = 1

class TorchCommWinAccessType(_Number):
    WIN_ACCESS_TYPE_UNIFIED = 0
    WIN_ACCESS_TYPE_SEPARATE = 1

@final
class ReduceOp:
    SUM: ClassVar[ReduceOp]
    PRODUCT: ClassVar[ReduceOp]
    MIN: ClassVar[ReduceOp]
    MAX: ClassVar[ReduceOp]
    BAND: ClassVar[ReduceOp]
    BOR: ClassVar[ReduceOp]
    BXOR: ClassVar[ReduceOp]
    AVG: ClassVar[ReduceOp]
    def __new__(cls, opType: RedOpType) -> ReduceOp: ...
    @classmethod
    def PREMUL_SUM(cls, factor: SupportsFloat | SupportsIndex, /) -> ReduceOp: ...
    @property
    def type(self) -> RedOpType: ...
    def __copy__(self) -> ReduceOp: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> ReduceOp: ...

@final
class TorchWork:
    def wait(self) -> None: ...
    def wait_blocking(self) -> None: ...
    def is_completed(self) -> bool: ...
    def _set_status(self, status: WorkStatus, /) -> None: ...
    def _observe(self, fn: Callable[[str, int], object], /) -> None: ...

@final
class P2POp:
    type: P2POpType
    tensor: torch.Tensor
    peer: int
    def __new__(cls, type: P2POpType, tensor: torch.Tensor, peer: int) -> P2POp: ...

@final
class BatchSendRecv:
    @property
    def ops(self) -> list[P2POp]: ...
    @ops.setter
    def ops(self, value: list[P2POp], /) -> None: ...
    def send(self, tensor: torch.Tensor, dst: SupportsIndex) -> None: ...
    def recv(self, tensor: torch.Tensor, src: SupportsIndex) -> None: ...
    def issue(
        self, async_op: bool = False, options: BatchP2POptions | None = None
    ) -> TorchWork: ...

_Tensors = list[torch.Tensor] | tuple[torch.Tensor, ...]
_Splits = list[int] | tuple[int, ...]
_Hints = dict[str, str]

@final
class TorchComm:
    def send(
        self,
        tensor: torch.Tensor,
        dst: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def recv(
        self,
        tensor: torch.Tensor,
        src: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def broadcast(
        self,
        tensor: torch.Tensor,
        root: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_reduce(
        self,
        tensor: torch.Tensor,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def reduce(
        self,
        tensor: torch.Tensor,
        root: SupportsIndex,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_gather(
        self,
        tensor_list: _Tensors,
        tensor: torch.Tensor,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_gather_v(
        self,
        tensor_list: _Tensors,
        tensor: torch.Tensor,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def reduce_scatter(
        self,
        output: torch.Tensor,
        input_list: _Tensors,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def reduce_scatter_v(
        self,
        output: torch.Tensor,
        input_list: _Tensors,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: ReduceOp,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_to_all(
        self,
        output_tensor_list: _Tensors,
        input_tensor_list: _Tensors,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_to_all_v_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: _Splits,
        input_split_sizes: _Splits,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def barrier(
        self,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def scatter(
        self,
        output_tensor: torch.Tensor,
        input_tensor_list: _Tensors,
        root: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def gather(
        self,
        output_tensor_list: _Tensors,
        input_tensor: torch.Tensor,
        root: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        root: SupportsIndex,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def finalize(self) -> None: ...
    def get_rank(self) -> int: ...
    def get_size(self) -> int: ...
    def get_name(self) -> str: ...
    def get_options(self) -> CommOptions: ...
    def get_device(self) -> torch.device: ...
    def get_backend(self) -> str: ...
    def get_backend_version(self) -> str: ...
    def set_timeout(self, timeout: timedelta) -> None: ...
    def set_hints(self, hints: _Hints) -> None: ...
    def get_init_handle(self) -> str: ...
    def reconfigure(
        self,
        uuid: int,
        init_handles: list[str] | set[str],
        timeout: timedelta | None = None,
        hints: _Hints | None = None,
    ) -> TorchWork: ...
    def abort(self) -> None: ...
    def is_abort_supported(self) -> bool: ...
    def is_aborted(self) -> bool: ...
    def split(
        self,
        ranks: Sequence[int],
        name: str,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchComm | None: ...
    def get_mem_allocator(self) -> MemAllocator: ...
    @property
    def mem_allocator(self) -> MemAllocator: ...
    def register_pre_hook(
        self, callback: Callable[[OpName, int, Any], object]
    ) -> RemovableHandle: ...
    def register_post_hook(
        self, callback: Callable[[int, Any], object]
    ) -> RemovableHandle: ...
    def register_abort_hook(
        self, callback: Callable[[], object]
    ) -> RemovableHandle: ...
    def batch_op_create(self) -> BatchSendRecv: ...
    def tensor_register(self, tensor: torch.Tensor) -> None: ...
    def tensor_deregister(self, tensor: torch.Tensor) -> None: ...
    def get_device_transport(self) -> int: ...
    def all_gather_p_init(
        self,
        output: torch.Tensor,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> Any: ...
    def all_gather_p_exec(
        self,
        handle: Any,
        input: torch.Tensor,
        async_op: bool = False,
        hints: _Hints | None = None,
        timeout: timedelta | None = None,
    ) -> TorchWork: ...
    def all_gather_p_free(self, handle: Any) -> None: ...
    def new_window(self, tensor: torch.Tensor | None = None) -> TorchCommWindow: ...
    def get_backend_impl(self) -> TorchCommBackend: ...
    def unsafe_get_backend(self) -> TorchCommBackend: ...
    def __copy__(self) -> TorchComm: ...
    def __deepcopy__(self, memo: dict[int, Any], /) -> TorchComm: ...

@final
class RemovableHandle:
    def remove(self) -> None: ...

@final
class SendPreHookArgs:
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def peer(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class RecvPreHookArgs:
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def peer(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class BroadcastPreHookArgs:
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def root(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllReducePreHookArgs:
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def async_op(self) -> bool: ...

@final
class ReducePreHookArgs:
    @property
    def tensor(self) -> torch.Tensor: ...
    @property
    def root(self) -> int: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllGatherPreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> list[torch.Tensor]: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllGatherVPreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> list[torch.Tensor]: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllGatherSinglePreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def async_op(self) -> bool: ...

@final
class ReduceScatterPreHookArgs:
    @property
    def input(self) -> list[torch.Tensor]: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def async_op(self) -> bool: ...

@final
class ReduceScatterVPreHookArgs:
    @property
    def input(self) -> list[torch.Tensor]: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def async_op(self) -> bool: ...

@final
class ReduceScatterSinglePreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def op(self) -> ReduceOp: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllToAllSinglePreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllToAllVSinglePreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def input_split_sizes(self) -> list[int]: ...
    @property
    def output_split_sizes(self) -> list[int]: ...
    @property
    def async_op(self) -> bool: ...

@final
class AllToAllPreHookArgs:
    @property
    def input(self) -> list[torch.Tensor]: ...
    @property
    def output(self) -> list[torch.Tensor]: ...
    @property
    def async_op(self) -> bool: ...

@final
class BarrierPreHookArgs:
    @property
    def async_op(self) -> bool: ...

@final
class ScatterPreHookArgs:
    @property
    def input(self) -> list[torch.Tensor]: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def root(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class GatherPreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> list[torch.Tensor]: ...
    @property
    def root(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class GatherSinglePreHookArgs:
    @property
    def input(self) -> torch.Tensor: ...
    @property
    def output(self) -> torch.Tensor: ...
    @property
    def root(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@final
class SplitPreHookArgs:
    @property
    def ranks(self) -> list[int]: ...
    @property
    def name(self) -> str: ...

@final
class NewWindowPreHookArgs: ...

@final
class FinalizePreHookArgs: ...

@final
class BatchOpIssuePreHookArgs:
    @property
    def num_ops(self) -> int: ...
    @property
    def async_op(self) -> bool: ...

@disjoint_base
class CollectivePostHookArgs:
    @property
    def _work(self) -> TorchWork | None: ...

@final
class SendPostHookArgs(CollectivePostHookArgs): ...

@final
class RecvPostHookArgs(CollectivePostHookArgs): ...

@final
class BroadcastPostHookArgs(CollectivePostHookArgs): ...

@final
class AllReducePostHookArgs(CollectivePostHookArgs): ...

@final
class ReducePostHookArgs(CollectivePostHookArgs): ...

@final
class AllGatherPostHookArgs(CollectivePostHookArgs): ...

@final
class AllGatherVPostHookArgs(CollectivePostHookArgs): ...

@final
class AllGatherSinglePostHookArgs(CollectivePostHookArgs): ...

@final
class ReduceScatterPostHookArgs(CollectivePostHookArgs): ...

@final
class ReduceScatterVPostHookArgs(CollectivePostHookArgs): ...

@final
class ReduceScatterSinglePostHookArgs(CollectivePostHookArgs): ...

@final
class AllToAllSinglePostHookArgs(CollectivePostHookArgs): ...

@final
class AllToAllVSinglePostHookArgs(CollectivePostHookArgs): ...

@final
class AllToAllPostHookArgs(CollectivePostHookArgs): ...

@final
class BarrierPostHookArgs(CollectivePostHookArgs): ...

@final
class ScatterPostHookArgs(CollectivePostHookArgs): ...

@final
class GatherPostHookArgs(CollectivePostHookArgs): ...

@final
class GatherSinglePostHookArgs(CollectivePostHookArgs): ...

@final
class SplitPostHookArgs:
    @property
    def _work(self) -> None: ...
    @property
    def _child(self) -> TorchComm: ...

@final
class NewWindowPostHookArgs:
    @property
    def _work(self) -> None: ...

@final
class FinalizePostHookArgs:
    @property
    def _work(self) -> None: ...

@final
class BatchOpIssuePostHookArgs:
    @property
    def _work(self) -> TorchWork | None: ...

@final
class MemAllocator:
    def empty(
        self,
        shape: SupportsIndex | Sequence[SupportsIndex],
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor: ...

class _Store(Protocol):
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, seconds: float) -> bytes: ...
    def add(self, key: str, amount: int) -> int: ...

def _new_comm(
    backend: str,
    name: str,
    device_type: str,
    device_index: int | None,
    rank: int,
    size: int,
    timeout: timedelta,
    abort_process: bool,
    store: _Store | None,
    hints: Mapping[str, str] | None,
    enable_reconfigure: bool = False,
) -> TorchComm: ...
def get_mem_allocator(backend: str, /) -> MemAllocator: ...
def _is_backend_registered(name: str, /) -> bool: ...
def _is_solitary(name: str, /) -> bool: ...
def _option(variable: str, /) -> Any: ...
def _set_metaclass(cls: type, meta: type, /) -> None: ...
def _line_round_trip(fd: int, leads: bool, /) -> float: ...
def _at_exit() -> None: ...
