# SPDX-License-Identifier: BSD-3-Clause
"""The names that clients import from `torchcomms._comms`.

Those of the C++ shim are looked up at their first use, since the shim needs torch.
"""

import sys
from types import ModuleType as _ModuleType

from torchcomms import hooks as _public_hooks
from torchcomms._bootstrap import new_comm
from torchcomms._core import (
    BatchSendRecv,
    MemAllocator,
    OpName,
    P2POp,
    P2POpType,
    RedOpType,
    ReduceOp,
    TorchComm,
    TorchCommWinAccessType,
    TorchWork,
    WorkStatus,
    get_mem_allocator,
)
from torchcomms._core import (
    _is_backend_registered as _is_backend_registered,
)
from torchcomms._hook_args import *  # noqa: F403 - its __all__
from torchcomms._options import (
    AllGatherOptions,
    AllGatherPExecOptions,
    AllGatherPInitOptions,
    AllGatherSingleOptions,
    AllReduceOptions,
    AllToAllOptions,
    AllToAllSingleOptions,
    AllToAllvSingleOptions,
    BarrierOptions,
    BatchP2POptions,
    BroadcastOptions,
    CommOptions,
    GatherOptions,
    GatherSingleOptions,
    PutOptions,
    ReconfigureOptions,
    RecvOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ReduceScatterSingleOptions,
    ScatterOptions,
    SendOptions,
    SignalOptions,
    WaitSignalOptions,
)
from torchcomms._python_backend import TorchCommBackend, register_backend
from torchcomms._window import TorchCommWindow

_OF_THE_SHIM = ("_BackendWrapper", "_BackendWrapperOptions", "WorkWrapper")

__all__ = [
    "AllGatherOptions",
    "AllGatherPExecOptions",
    "AllGatherPInitOptions",
    "AllGatherSingleOptions",
    "AllReduceOptions",
    "AllToAllOptions",
    "AllToAllSingleOptions",
    "AllToAllvSingleOptions",
    "BarrierOptions",
    "BatchP2POptions",
    "BatchSendRecv",
    "BroadcastOptions",
    "CommOptions",
    "GatherOptions",
    "GatherSingleOptions",
    "MemAllocator",
    "OpName",
    "P2POp",
    "P2POpType",
    "PutOptions",
    "ReconfigureOptions",
    "RecvOptions",
    "RedOpType",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ReduceScatterSingleOptions",
    "ScatterOptions",
    "SendOptions",
    "SignalOptions",
    "TorchComm",
    "TorchCommBackend",
    "TorchCommWinAccessType",
    "TorchCommWindow",
    "TorchWork",
    "WaitSignalOptions",
    "WorkStatus",
    "get_mem_allocator",
    "new_comm",
    "register_backend",
]


def _submodule(name, **names):
    """A module without a file, which `import` finds too."""
    module = _ModuleType(f"{__name__}.{name}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    return module


hooks = _submodule(
    "hooks",
    clog=_submodule("hooks.clog", clog=_public_hooks.clog),
    fr=_submodule("hooks.fr", FlightRecorderHook=_public_hooks.FlightRecorderHook),
)


def __getattr__(name):
    if name in _OF_THE_SHIM:
        from torchcomms._c10d import shim_class
        from torchcomms._metaclass import adopt

        # torch asks for a class of the shim while it is imported.
        adopt()
        return shim_class(name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
