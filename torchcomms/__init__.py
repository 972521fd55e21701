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

from torchcomms import _comms, _metaclass
from torchcomms._backends import (
    _load_backend as _load_backend,
)
from torchcomms._backends import (
    built_backends as built_backends,
)
from torchcomms._backends import (
    is_backend_built as is_backend_built,
)
from torchcomms._c10d import (
    register_c10d as register_c10d,
)
from torchcomms._comms import *  # noqa: F403 - every public name of the core
from torchcomms._comms import (
    BatchP2POptions,
    BatchSendRecv,
    CommOptions,
    P2POp,
    ReduceOp,
    TorchComm,
    TorchCommBackend,
    TorchCommWindow,
    TorchWork,
    new_comm,
    register_backend,
)
from torchcomms._hook_args import *  # noqa: F403 - its __all__
from torchcomms._options import Timeout

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
    "TorchCommWindow",
    "register_backend",
    "TorchCommBackend",
]

for _name in {*__all__, *_comms.__all__}:
    # torch derives the names of types in operator schemas from it.
    globals()[_name].__module__ = "torchcomms"
del _name

_metaclass.want(TorchComm, TorchCommWindow, BatchSendRecv, ReduceOp, Timeout)

# Modules that are attributes of the package; those that need torch wait for their use.
_SUBMODULES = ("device_mesh", "hooks", "objcol")


def __getattr__(name):
    if name in _SUBMODULES:
        from importlib import import_module

        return import_module(f"torchcomms.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
