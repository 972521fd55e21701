# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of tensors in the backend's memory, through both faces."""

import gc
import os

import pytest
import torch
import torch.distributed as dist

import torchcomms
from multi.support.c10d import world

SUM = torchcomms.ReduceOp.SUM
CPU = torch.device("cpu")
# Small, in a slot, a plan, and from where tensors may be read in place.
COUNTS = [3, 5000, 100_001, 1_000_003]


def results(comm, empty, count, asynchronous):
    """What some operations make of the same values in tensors of `empty`."""
    size, rank = comm.get_size(), comm.get_rank()
    generator = torch.Generator().manual_seed(100 * rank + count)

    def make(*shape):
        return empty(shape).copy_(torch.randn(shape, generator=generator))

    one, whole, out = make(count), make(size, count), make(count)
    gathered, swapped, sent = make(size, count), make(size, count), make(count)
    works = [
        comm.all_reduce(one, SUM, asynchronous),
        comm.reduce_scatter_single(out, whole, SUM, asynchronous),
        comm.all_gather_single(gathered, out, asynchronous),
        comm.all_to_all_single(swapped, gathered, asynchronous),
        comm.broadcast(sent, size - 1, asynchronous),
    ]
    for work in works:
        work.wait()
    return one, whole, out, gathered, swapped, sent


def alike(me, count):
    comm = me.comm()
    allocator = comm.get_mem_allocator()
    for asynchronous in (False, True):
        expected = results(comm, torch.empty, count, asynchronous)
        mixed = torch.empty if me.rank == 0 else allocator.empty
        for empty in (allocator.empty, mixed):
            for ours, theirs in zip(
                results(comm, empty, count, asynchronous), expected, strict=True
            ):
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_results_do_not_depend_on_the_memory(ranks, size, count):
    ranks(size).run(alike, count)


def mapped_regions():
    """Heaps of other ranks that this process reads."""
    with open("/proc/self/maps") as maps:
        return sum("torchcomms-heap" in line and "r--s" in line for line in maps)


def reduced_in_place(me):
    comm = me.comm("reduced")
    count = 300_000
    tensor = comm.get_mem_allocator().empty(count)
    for round_number in range(5):
        tensor.fill_(me.rank + round_number)
        comm.all_reduce(tensor, SUM, round_number % 2 == 0).wait()
        wanted = me.size * (me.size - 1) // 2 + me.size * round_number
        assert torch.equal(tensor, torch.full((count,), float(wanted)))
    assert mapped_regions() == me.size - 1
    comm.finalize()


def read_in_place(me):
    comm = me.comm("read")
    allocator = comm.get_mem_allocator()
    count = 300_000
    mine, whole = allocator.empty(count), torch.empty(me.size * count)
    for round_number in range(5):
        mine.fill_(me.rank + round_number)
        comm.all_gather_single(whole, mine, False)
        mine.fill_(-1.0)  # read by all: it is ours again
        wanted = torch.arange(me.size) + float(round_number)
        assert torch.equal(whole, wanted.repeat_interleave(count))
    assert mapped_regions() == me.size - 1
    del mine
    comm.finalize()


@pytest.mark.parametrize("use", [read_in_place, reduced_in_place])
@pytest.mark.parametrize("size", [2, 3])
def test_large_tensors_are_read_in_place(fresh, size, use):
    fresh(size).run(use)


def rounds(me):
    comm = me.comm()
    allocator = comm.get_mem_allocator()
    keep = allocator.empty(1)
    files = None
    for i in range(2000):
        tensor = allocator.empty(300 + i % 7).fill_(1.0)
        comm.all_reduce(tensor, SUM, i % 2 == 0).wait()
        assert tensor[-1] == me.size
        if i == 100:
            gc.collect()
            files = len(os.listdir("/proc/self/fd"))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files
    del keep


def test_many_rounds_hold_descriptors_flat(fresh):
    fresh(2).run(rounds)


def allocated_by_c10d(me):
    with world(me) as group:
        backend = group._get_backend(CPU)
        assert backend.supports_tensor_alloc(CPU)
        allocator = backend.get_mem_allocator()
        assert allocator is backend.mem_allocator
        assert allocator is torchcomms.get_mem_allocator(backend.name())
        tensor = backend.allocate_tensor(5, dtype=torch.int16, device=CPU)
        assert (tensor.shape, tensor.dtype) == ((5,), torch.int16)
        assert backend.allocate_tensor(0, dtype=torch.float64, device=CPU).numel() == 0
        tensor.fill_(me.rank + 1)
        dist.all_reduce(tensor)
        for size, device, text in [
            (-1, CPU, "size must not be negative, but got -1"),
            (3, torch.device("meta"), "has no communicator for device meta"),
            (2**62, CPU, "more than any memory|bytes"),
        ]:
            with pytest.raises((ValueError, RuntimeError), match=text):
                backend.allocate_tensor(size, dtype=torch.float32, device=device)
    gc.collect()
    assert tensor.tolist() == [me.size * (me.size + 1) // 2] * 5


def test_c10d_allocates(ranks):
    ranks(2).run(allocated_by_c10d)
