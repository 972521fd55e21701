# SPDX-License-Identifier: BSD-3-Clause
"""An MPI as a contender, through mpi4py, in ranks that its mpiexec started."""

from functools import partial

import torch

from torchcomms.bench.cases import ROOT
from torchcomms.bench.contenders import ping_pong

# Name on the command line to what the library's version begins with.
_BEGINNINGS = {"mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel(R) MPI"}


class Mpi:
    """MPI on the memory of the same tensors."""

    may_refuse = True  # numpy has no bfloat16

    def __init__(self, name, rank, ranks):
        from mpi4py import MPI

        self.name = name
        self.mpi = MPI
        self.world = MPI.COMM_WORLD
        version = MPI.Get_library_version().strip("\0 \n")
        self.version = " ".join(version.splitlines()[0].split(",")[0].split())
        if not version.startswith(_BEGINNINGS[name]):
            raise RuntimeError(f"--against is {name}, but mpi4py loaded {self.version}")
        found = self.world.Get_rank(), self.world.Get_size()
        if found != (rank, ranks):
            raise RuntimeError(
                f"rank and size are {(rank, ranks)} here, but {found} in {name}: these "
                f"ranks were not started by its mpiexec"
            )

    def bind(self, case, place):
        if case.dtype is torch.bfloat16:
            raise TypeError("numpy has no bfloat16")
        call = getattr(self, "_" + case.operation.name)
        return call(place.input.numpy(), place.output.numpy(), case.rank)

    def _all_reduce(self, _, output, rank):
        mpi = self.mpi
        return partial(self.world.Allreduce, mpi.IN_PLACE, output, mpi.SUM)

    def _reduce(self, _, output, rank):
        mpi = self.mpi
        if rank == ROOT:
            return partial(self.world.Reduce, mpi.IN_PLACE, output, mpi.SUM, ROOT)
        return partial(self.world.Reduce, output, None, mpi.SUM, ROOT)

    def _broadcast(self, _, output, rank):
        return partial(self.world.Bcast, output, ROOT)

    def _all_gather(self, input, output, rank):
        return partial(self.world.Allgather, input, output)

    def _reduce_scatter(self, input, output, rank):
        return partial(self.world.Reduce_scatter_block, input, output, self.mpi.SUM)

    def _all_to_all(self, input, output, rank):
        return partial(self.world.Alltoall, input, output)

    def _gather(self, input, output, rank):
        return partial(self.world.Gather, input, output, ROOT)

    def _scatter(self, input, output, rank):
        return partial(self.world.Scatter, input, output, ROOT)

    def _ping_pong(self, input, output, rank):
        send = partial(self.world.Send, input, 1 - rank)
        recv = partial(self.world.Recv, output, 1 - rank)
        return ping_pong(rank, send, recv)

    def _barrier(self, *_):
        return self.world.Barrier

    def close(self):
        pass  # mpi4py finalizes MPI at exit
