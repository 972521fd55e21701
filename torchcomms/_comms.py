# SPDX-License-Identifier: BSD-3-Clause
"""The names that clients import from `torchcomms._comms`.

Those of the C++ shim are looked up at their first use, since the shim needs torch.
"""

from torchcomms._bootstrap import new_comm
from torchcomms._core import (
    BatchSendRecv,
    OpName,
    P2POp,
    P2POpType,
    RedOpType,
    ReduceOp,
    TorchComm,
    TorchWork,
    WorkStatus,
    _is_backend_registered,
)
from torchcomms._hook_args import *  # noqa: F403 - its __all__
from torchcomms._options import BatchP2POptions, CommOptions

_OF_THE_SHIM = ("_BackendWrapper", "_BackendWrapperOptions", "WorkWrapper")

__all__ = [
    "BatchP2POptions",
    "BatchSendRecv",
    "CommOptions",
    "OpName",
    "P2POp",
    "P2POpType",
    "RedOpType",
    "ReduceOp",
    "TorchComm",
    "TorchWork",
    "WorkStatus",
    "_is_backend_registered",
    "new_comm",
]


def __getattr__(name):
    if name in _OF_THE_SHIM:
        from torchcomms._c10d import shim_class

        return shim_class(name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
