# SPDX-License-Identifier: BSD-3-Clause
"""Makes, uses and drops every kind of object, again and again, in random order.

    python tests/leaks/cycles.py 10000 [seed]

Fails where descriptors, memory or Python objects grow with the number of cycles. The
seed of a run is the first line it writes.
"""

import copy
import ctypes
import gc
import os
import pathlib
import random
import sys
import warnings
from datetime import timedelta

import torch

import torchcomms
from torchcomms import P2POp, P2POpType, ReduceOp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from unit.thread_ranks import make_fake, make_ranks, on_all  # noqa: E402

SUM = ReduceOp.SUM
CPU = torch.device("cpu")

# The first part fills caches: of torch, of the allocator, of the engine.
WARM_UP = 0.2
# What may be left of all the other cycles together. A leaked communicator, work, tensor
# or string in one cycle of ten is more, in the 10,000 cycles of `make leaks`.
RESIDENT_BYTES = 2 << 20
PYTHON_OBJECTS = 50


class Bag:
    """What one cycle has made, by which communicators, and what has to end."""

    def __init__(self, rng):
        self.rng = rng
        self.kind = rng.choice(["fake", "alone", "pair"])
        if self.kind == "fake":
            self.comms = [make_fake(0, 2)]
        else:
            self.comms = make_ranks(1 if self.kind == "alone" else 2)
        self.things = []

    def both(self, act):
        """act(comm) on every rank, whose results join the others."""
        self.things += on_all(self.comms, act)


def tensor(bag):
    return torch.ones(bag.rng.choice([1, 5, 3000]))


def collective(bag):
    value, late = tensor(bag), bag.rng.random() < 0.5
    op = bag.rng.choice([SUM, ReduceOp.MAX, ReduceOp.PREMUL_SUM(0.5)])
    bag.both(lambda comm: comm.all_reduce(value.clone(), op, late))
    bag.things.append(op)


def waited(bag):
    bag.both(lambda comm: comm.barrier(async_op=True))
    for work in bag.things[-len(bag.comms) :]:
        work.wait()


def child(bag):
    ranks = list(range(bag.comms[0].get_size()))
    bag.rng.shuffle(ranks)
    children = on_all(bag.comms, lambda comm: comm.split(ranks, "child"))
    on_all(children, lambda comm: comm.barrier())
    bag.things += children


def point_to_point(bag):
    """A receive whose work goes before the message comes."""
    if bag.kind != "pair":
        return
    value = tensor(bag)
    work = bag.comms[0].recv(torch.zeros_like(value), 1, async_op=True)
    if bag.rng.random() < 0.5:
        del work
    else:
        bag.things.append(work)
    bag.comms[1].send(value, 0)
    bag.things.append(value)


def batch(bag):
    def act(comm):
        made = comm.batch_op_create()
        if comm.get_size() > 1:
            peer = 1 - comm.get_rank()
            made.send(value, peer)
            made.ops.append(P2POp(P2POpType.RECV, torch.zeros_like(value), peer))
            made.issue(late, torchcomms.BatchP2POptions())
        made.ops.append(made)  # a cycle for the collector
        return made

    value, late = tensor(bag), bag.rng.random() < 0.5
    bag.both(act)


def refused(bag):
    for call in (
        lambda comm: comm.broadcast(torch.ones(1), 99),
        lambda comm: comm.all_reduce(torch.ones(2, 2).t(), SUM),
        lambda comm: comm.split([0, 0], "x"),
        lambda comm: comm.new_window(),
        lambda comm: comm.barrier(timeout=5),
    ):
        try:
            call(bag.comms[0])
        except (RuntimeError, TypeError) as error:
            bag.things.append(error)
        else:
            raise AssertionError("not refused")


def small(bag):
    comm = bag.comms[0]
    op = ReduceOp.PREMUL_SUM(torch.tensor(2.0))
    bag.things += [
        op,
        copy.copy(op),
        copy.deepcopy([op, comm]),
        comm.get_options(),
        comm.get_device(),
        comm.get_backend_impl(),
        torchcomms.CommOptions(),
        torchcomms.ReconfigureOptions(1, {"a"}),
        P2POp(P2POpType.SEND, torch.ones(1), 0),
        repr(comm),
    ]
    comm.set_timeout(timedelta(seconds=30))


def memory(bag):
    if bag.kind != "fake":
        made = bag.comms[0].get_mem_allocator().empty(bag.rng.choice([7, 3000]))
        bag.things += [made, made[2:]]


def hook(bag):
    comm, seen = bag.comms[0], []
    bag.things += [
        seen,
        comm.register_pre_hook(lambda name, op_id, args: seen.append((op_id, comm))),
        comm.register_post_hook(lambda op_id, args: seen.append(args)),
    ]
    if bag.rng.random() < 0.5:
        bag.things[-1].remove()


USES = (
    collective,
    waited,
    child,
    point_to_point,
    batch,
    refused,
    small,
    memory,
    hook,
)


def cycle(rng):
    bag = Bag(rng)
    for use in rng.choices(USES, k=4):
        use(bag)
    things = bag.things + bag.comms
    del bag
    rng.shuffle(things)
    while things:
        thing = things.pop()
        if isinstance(thing, torchcomms.TorchComm) and rng.random() < 0.7:
            thing.finalize()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def levels():
    """Descriptors, bytes in memory, Python objects: after what can go has gone."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    objects = len(gc.get_objects())
    return len(os.listdir("/proc/self/fd")), resident(), objects


def problems(before, after):
    grown = [b - a for a, b in zip(before, after, strict=True)]
    limits = (0, RESIDENT_BYTES, PYTHON_OBJECTS)
    names = ("descriptors", "resident bytes", "Python objects")
    return [
        f"{name} grew by {more}, from {a} to {b}"
        for name, more, most, a, b in zip(
            names, grown, limits, before, after, strict=True
        )
        if more > most
    ]


def main(count, seed):
    print(f"{count} cycles, seed {seed}", flush=True)
    rng = random.Random(seed)
    warnings.simplefilter("ignore", ResourceWarning)
    for _ in range(int(count * WARM_UP)):
        cycle(rng)
    before = levels()
    for _ in range(count - int(count * WARM_UP)):
        cycle(rng)
    after = levels()
    found = problems(before, after)
    print(*found or [f"flat: {before} to {after}"], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    sys.exit(main(arguments[0], *(arguments[1:] or [random.randrange(1 << 32)])))
