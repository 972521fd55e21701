# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms and an MPI in the same processes, in alternating bursts.

Started by compare.py; by hand, with a store at MASTER_ADDR:MASTER_PORT:
mpiexec -n 2 python mpi_ranks.py LABEL [options of torchcomms.bench]
"""

import sys
from functools import partial

import torch
from mpi4py import MPI

import torchcomms
from torchcomms.bench.arguments import parse_arguments
from torchcomms.bench.cases import ROOT
from torchcomms.bench.contenders import ping_pong
from torchcomms.bench.session import run

WORLD = MPI.COMM_WORLD


class Mpi:
    """MPI through mpi4py, on the memory of the same tensors."""

    may_refuse = True  # numpy has no bfloat16

    def __init__(self, name):
        self.name = name

    def bind(self, case):
        if case.dtype is torch.bfloat16:
            raise TypeError("numpy has no bfloat16")
        call = getattr(self, "_" + case.operation.name)
        return call(case.input.numpy(), case.output.numpy(), case.rank)

    def _all_reduce(self, _, output, rank):
        return partial(WORLD.Allreduce, MPI.IN_PLACE, output, MPI.SUM)

    def _reduce(self, _, output, rank):
        if rank == ROOT:
            return partial(WORLD.Reduce, MPI.IN_PLACE, output, MPI.SUM, ROOT)
        return partial(WORLD.Reduce, output, None, MPI.SUM, ROOT)

    def _broadcast(self, _, output, rank):
        return partial(WORLD.Bcast, output, ROOT)

    def _all_gather(self, input, output, rank):
        return partial(WORLD.Allgather, input, output)

    def _reduce_scatter(self, input, output, rank):
        return partial(WORLD.Reduce_scatter_block, input, output, MPI.SUM)

    def _all_to_all(self, input, output, rank):
        return partial(WORLD.Alltoall, input, output)

    def _gather(self, input, output, rank):
        return partial(WORLD.Gather, input, output, ROOT)

    def _scatter(self, input, output, rank):
        return partial(WORLD.Scatter, input, output, ROOT)

    def _ping_pong(self, input, output, rank):
        send = partial(WORLD.Send, input, 1 - rank)
        recv = partial(WORLD.Recv, output, 1 - rank)
        return ping_pong(rank, send, recv)

    def _barrier(self, *_):
        return WORLD.Barrier

    def close(self):
        pass  # mpi4py finalizes MPI at exit


def main():
    label = sys.argv[1]
    options, ask = parse_arguments(sys.argv[2:])
    comm = torchcomms.new_comm(options.backend, torch.device("cpu"), name="bench")
    expected = WORLD.Get_rank(), WORLD.Get_size()
    found = comm.get_rank(), comm.get_size()
    if found != expected:
        ask.error(f"rank and size are {found} here, but {expected} in MPI")
    return run(options, comm, [Mpi(label)])


if __name__ == "__main__":
    sys.exit(main())
