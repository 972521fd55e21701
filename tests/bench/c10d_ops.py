# SPDX-License-Identifier: BSD-3-Clause
"""Per-call time of torch.distributed collectives on host memory for one backend.

usage: torchrun --nproc-per-node 2 c10d_ops.py BACKEND [--import MOD]
prints JSON lines.
"""

import argparse
import importlib
import json
import time

import torch
import torch.distributed as dist

SIZES = (8, 1024, 65536, 1 << 20, 16 << 20, 64 << 20)

all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def iterations(nbytes, ranks):
    steps = ((1024, 2000), (65536, 500), (1 << 20, 100), (16 << 20, 10))
    count = next((count for most, count in steps if nbytes <= most), 4)
    return count if ranks == 2 else max(4, count // 10)


def measure(peer, name, call, nbytes, iters):
    for _ in range(max(3, iters // 10)):
        call()
    times = []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(iters):
            call()
        times.append((time.perf_counter() - start) / iters)
    if dist.get_rank() == 0:
        row = {
            "peer": peer,
            "op": name,
            "ranks": dist.get_world_size(),
            "bytes": nbytes,
            "us_min": min(times) * 1e6,
            "us_med": sorted(times)[2] * 1e6,
        }
        print(json.dumps(row), flush=True)


def operations(nbytes, rank, ranks):
    """Name and call of what is measured at this size."""
    a = torch.ones(nbytes // 4)
    b = torch.empty_like(a)
    z = torch.zeros_like(a)
    gathered = torch.empty(ranks * nbytes // 4)
    scattered = torch.ones(ranks * nbytes // 4)

    def ping_pong():
        if rank == 0:
            dist.send(a, 1)
            dist.recv(b, 1)
        else:
            dist.recv(b, 0)
            dist.send(a, 0)

    yield "all_reduce", lambda: dist.all_reduce(z)
    yield "all_gather", lambda: all_gather(gathered, a)
    yield "broadcast", lambda: dist.broadcast(a, 0)
    if nbytes <= 16 << 20:
        yield "all_to_all", lambda: dist.all_to_all_single(gathered, scattered)
        yield "reduce_scatter", lambda: reduce_scatter(b, scattered)
    if ranks == 2:
        yield "ping_pong_rt", ping_pong


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("backend")
    ask.add_argument("--import", dest="module", metavar="MOD")
    options = ask.parse_args()
    if options.module:
        importlib.import_module(options.module)
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    peer = "c10d:" + options.backend
    for nbytes in SIZES:
        for name, call in operations(nbytes, rank, ranks):
            measure(peer, name, call, nbytes, iterations(nbytes, ranks))
    measure(peer, "barrier", dist.barrier, 0, 2000 if ranks == 2 else 200)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
