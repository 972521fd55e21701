# SPDX-License-Identifier: BSD-3-Clause
"""A communication layer for PyTorch: communicators that are objects.

    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="main")
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM)
    comm.finalize()

`import torch` imports this package while it is itself half imported. So nothing here
imports torch, and everything that is not needed for the names waits for its first use.
"""

import sys
from importlib.util import find_spec

if "torch" not in sys.modules and find_spec("torch") is None:
    raise ImportError("torchcomms needs torch, which is not installed")

from torchcomms._backends import (
    _load_backend as _load_backend,
)
from torchcomms._backends import (
    built_backends as built_backends,
)
from torchcomms._backends import (
    is_backend_built as is_backend_built,
)
from torchcomms._bootstrap import new_comm
from torchcomms._c10d import (
    register_c10d as register_c10d,
)
from torchcomms._core import (
    BatchSendRecv,
    P2POp,
    ReduceOp,
    TorchComm,
    TorchWork,
)
from torchcomms._core import (
    MemAllocator as MemAllocator,
)
from torchcomms._core import (
    OpName as OpName,
)
from torchcomms._core import (
    P2POpType as P2POpType,
)
from torchcomms._core import (
    RedOpType as RedOpType,
)
from torchcomms._core import (
    WorkStatus as WorkStatus,
)
from torchcomms._core import (
    get_mem_allocator as get_mem_allocator,
)
from torchcomms._hook_args import *  # noqa: F403 - its __all__
from torchcomms._options import BatchP2POptions, CommOptions, Timeout

__all__ = [  # noqa: RUF022 - in the order of the contract
    "new_comm",
    "TorchComm",
    "ReduceOp",
    "TorchWork",
    "Timeout",
    "BatchP2POptions",
    "BatchSendRecv",
    "P2POp",
    "CommOptions",
]

for _name in __all__:
    globals()[_name].__module__ = "torchcomms"
del _name
