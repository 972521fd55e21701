# SPDX-License-Identifier: BSD-3-Clause
"""A transformer for handwritten digits, data parallel by DDP.

With --check rank 0 trains once more, alone, and compares the loss of every step; with
--against another backend trains the same in turn, and both step times are shown.

torchrun --nproc-per-node 2 examples/ddp_digits.py --check --against gloo
"""

import sys

import digits
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def replicate(model, backend):
    """The model with gradients that are averaged over the ranks while they appear."""
    group = dist.new_group(backend=backend) if backend else dist.group.WORLD
    return DistributedDataParallel(model, process_group=group), group


def main():
    options = digits.arguments(__doc__.split("\n", 1)[0])
    dist.init_process_group(options.backend)
    status = digits.run(options, replicate)
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
