# SPDX-License-Identifier: BSD-3-Clause
"""The names that clients import from `torchcomms._comms`.

torch tries `_BackendWrapper` here and takes ImportError as "no torchcomms": the name
appears together with the c10d shim.
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
from torchcomms._options import BatchP2POptions, CommOptions

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
