# SPDX-License-Identifier: BSD-3-Clause
"""What communication adds to a training step, over ours and over gloo.

A model of 20 million parameters trains in the same processes over ours, over gloo and
over nothing, a few steps in turn: FSDP2 on torch's `fake` backend, DDP, which wants a
future that `fake` does not have, with a hook that leaves the gradients alone. The share
of a backend is (its step - the step over nothing) / its step.

OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 tests/bench/step_share.py [--rounds 12]
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401 - registers "fake"
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

NOTHING = "fake"
BACKENDS = ("torchcomms", "gloo", NOTHING)
WIDTH, DEPTH, BATCH = 1600, 8, 32


def make_model():
    torch.manual_seed(1)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
        for _ in range(DEPTH)
    ]
    return torch.nn.Sequential(*layers)


def shard(group, _nothing):
    model = make_model()
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def leave_alone(_state, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def replicate(group, nothing):
    model = DistributedDataParallel(make_model(), process_group=group)
    if nothing:
        model.register_comm_hook(None, leave_alone)
    return model


class Contender:
    """One model over one backend, with its optimizer."""

    def __init__(self, wrap, backend):
        nothing = backend == NOTHING
        if nothing and wrap is replicate:
            backend = BACKENDS[0]
        self.model = wrap(dist.new_group(backend=backend), nothing)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(BATCH, WIDTH)
        self.times = []

    def step(self):
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def burst(self, steps):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.times.append((time.perf_counter() - begin) / steps)


def measure(wrap, rounds, steps):
    contenders = {backend: Contender(wrap, backend) for backend in BACKENDS}
    for contender in contenders.values():
        contender.burst(1)
        contender.times.clear()
    for _ in range(rounds):
        for contender in contenders.values():
            contender.burst(steps)
    return {
        backend: statistics.median(contender.times)
        for backend, contender in contenders.items()
    }


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ask.add_argument("--rounds", type=int, default=12)
    ask.add_argument("--steps", type=int, default=3, help="in a burst; %(default)s")
    options = ask.parse_args()
    dist.init_process_group("torchcomms")
    count = sum(parameter.numel() for parameter in make_model().parameters())
    if dist.get_rank() == 0:
        print(f"{count / 1e6:.1f} M parameters, {dist.get_world_size()} ranks")
    for name, wrap in (("DDP", replicate), ("FSDP2", shard)):
        step = measure(wrap, options.rounds, options.steps)
        if dist.get_rank() == 0:
            for backend in BACKENDS:
                share = (step[backend] - step[NOTHING]) / step[backend]
                print(
                    f"{name:6s} {backend:10s} {step[backend] * 1e3:8.1f} ms a step, "
                    f"share {share:6.1%}",
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
