# SPDX-License-Identifier: BSD-3-Clause
"""A transformer for handwritten digits, its parameters sharded by FSDP2.

With --check rank 0 trains once more, alone, and compares the loss of every step; with
--against another backend trains the same in turn, and both step times are shown.

torchrun --nproc-per-node 2 examples/fsdp2_digits.py --check --against gloo
"""

import sys

import digits
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def shard(model, backend):
    """The model with each rank keeping its part of every parameter."""
    override = {0: backend} if backend else None
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), backend_override=override)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, mesh.get_group()


def main():
    options = digits.arguments(__doc__.split("\n", 1)[0])
    dist.init_process_group(options.backend)
    status = digits.run(options, shard)
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
