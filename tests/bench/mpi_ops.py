# SPDX-License-Identifier: BSD-3-Clause
"""Per-call time of MPI collectives on host memory: a peer to compare with.

usage: mpiexec -n 2 python mpi_ops.py [LABEL]
prints JSON lines.
"""

import json
import sys
import time

import numpy as np
from mpi4py import MPI

SIZES = (8, 1024, 65536, 1 << 20, 16 << 20, 64 << 20)

comm = MPI.COMM_WORLD


def iterations(nbytes, ranks):
    steps = ((1024, 20000), (65536, 2000), (1 << 20, 200), (16 << 20, 20))
    count = next((count for most, count in steps if nbytes <= most), 6)
    return count if ranks == 2 else max(4, count // 20)


def measure(label, name, call, nbytes, iters):
    for _ in range(max(3, iters // 10)):
        call()
    times = []
    for _ in range(5):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(iters):
            call()
        times.append((time.perf_counter() - start) / iters)
    if comm.Get_rank() == 0:
        row = {
            "peer": label,
            "op": name,
            "ranks": comm.Get_size(),
            "bytes": nbytes,
            "us_min": min(times) * 1e6,
            "us_med": sorted(times)[2] * 1e6,
        }
        print(json.dumps(row), flush=True)


def operations(nbytes, rank, ranks):
    """Name and call of what is measured at this size."""
    a = np.ones(nbytes // 4, np.float32)
    b = np.empty_like(a)
    z = np.zeros_like(a)
    gathered = np.empty(ranks * nbytes // 4, np.float32)
    scattered = np.ones(ranks * nbytes // 4, np.float32)

    def ping_pong():
        if rank == 0:
            comm.Send(a, 1)
            comm.Recv(b, 1)
        else:
            comm.Recv(b, 0)
            comm.Send(a, 0)

    yield "all_reduce", lambda: comm.Allreduce(MPI.IN_PLACE, z, MPI.SUM)
    yield "all_reduce_sum_oop", lambda: comm.Allreduce(a, b)
    yield "all_gather", lambda: comm.Allgather(a, gathered)
    yield "broadcast", lambda: comm.Bcast(a)
    if nbytes <= 16 << 20:
        yield "all_to_all", lambda: comm.Alltoall(scattered, gathered)
        yield "reduce_scatter", lambda: comm.Reduce_scatter_block(scattered, b)
    if ranks == 2:
        yield "ping_pong_rt", ping_pong


def main():
    label = sys.argv[1] if len(sys.argv) > 1 else "mpi"
    rank, ranks = comm.Get_rank(), comm.Get_size()
    for nbytes in SIZES:
        for name, call in operations(nbytes, rank, ranks):
            measure(label, name, call, nbytes, iterations(nbytes, ranks))
    measure(label, "barrier", comm.Barrier, 0, 20000 if ranks == 2 else 500)


if __name__ == "__main__":
    main()
