# SPDX-License-Identifier: BSD-3-Clause
"""Each rank gives a tensor, and all ranks get the sum.

torchrun --nproc-per-node 2 examples/all_reduce.py
"""

import torch

import torchcomms
from torchcomms import ReduceOp

comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="main")
rank, size = comm.get_rank(), comm.get_size()

tensor = torch.full((4,), rank + 1.0)
work = comm.all_reduce(tensor, ReduceOp.SUM, async_op=True)
work.wait()

print(f"rank {rank} of {size} got {tensor.tolist()}", flush=True)
comm.finalize()
