# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5: send, recv and batches, on every backend."""

import itertools

import pytest
import torch

import torchcomms
from contract.support import COUNTS, DTYPES, SIZE
from multi.support.reference import name_of, pattern

LARGE = 300_000  # bytes: no backend finishes a send of so much on its own


def same_bytes(found, wanted):
    assert torch.equal(found.view(torch.uint8), wanted.view(torch.uint8))


def ring(me, backend, dtype):
    comm = me.comm(backend=backend)
    right, left = (me.rank + 1) % SIZE, (me.rank - 1) % SIZE
    for count, later in itertools.product([*COUNTS, LARGE], [False, True]):
        out = torch.empty(count * dtype.itemsize, dtype=torch.uint8).view(dtype)
        mine = pattern(dtype, count, me.rank).clone()
        if later:
            works = [comm.recv(out, left, True), comm.send(mine, right, True)]
            del mine
            for work in works:
                work.wait()
                assert work.is_completed()
        elif me.rank % 2 == 0:
            comm.send(mine, right, False)
            comm.recv(out, left, False)
        else:
            comm.recv(out, left, False)
            comm.send(mine, right, False)
        same_bytes(out, pattern(dtype, count, left))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=name_of)
def test_ring(ranks, backend, dtype):
    ranks(SIZE).run(ring, backend, dtype)


def small_sends_first(me, backend):
    """Everybody sends before anybody receives."""
    comm = me.comm(backend=backend)
    for turn in range(3):
        for peer in range(SIZE):
            if peer != me.rank:
                comm.send(torch.tensor([10 * me.rank + peer, turn]), peer, False)
        for peer in reversed(range(SIZE)):
            if peer != me.rank:
                out = torch.empty(2, dtype=torch.int64)
                comm.recv(out, peer, False)
                assert out.tolist() == [10 * peer + me.rank, turn]


def test_small_sends_do_not_wait_for_each_other(ranks, backend):
    ranks(SIZE).run(small_sends_first, backend)


def any_order(me, backend):
    """Waited for in the reverse order; what one waits for does not hold up another."""
    comm = me.comm(backend=backend)
    if me.rank == 0:
        outs = [torch.empty(LARGE, dtype=torch.uint8) for _ in range(2 * SIZE)]
        works = [comm.recv(outs[i], 1 + i % 3, True) for i in range(6)]
        for i in reversed(range(6)):
            works[i].wait()
            assert outs[i].unique().tolist() == [10 * (1 + i % 3) + i // 3]
        # From rank 2 first, while the recv from rank 1 is open.
        first, second = (comm.recv(outs[r], r, True) for r in (1, 2))
        second.wait()
        comm.send(torch.ones(1), 1, False)
        first.wait()
        return
    for turn in range(2):
        tensor = torch.full((LARGE,), 10 * me.rank + turn, dtype=torch.uint8)
        comm.send(tensor, 0, False)
    if me.rank == 1:
        comm.recv(torch.empty(1), 0, False)
    if me.rank in (1, 2):
        comm.send(torch.zeros(LARGE, dtype=torch.uint8), 0, False)


def test_messages_keep_their_order_and_waits_need_none(ranks, backend):
    ranks(SIZE).run(any_order, backend)


def batches(me, backend):
    comm = me.comm(backend=backend)
    peers = [r for r in range(SIZE) if r != me.rank]
    for count, later in itertools.product([0, 4, LARGE], [False, True]):
        batch = comm.batch_op_create()
        outs = {p: torch.empty(count) for p in peers}
        for p in peers:
            batch.recv(outs[p], p)
        for p in peers:
            batch.send(torch.full((count,), float(SIZE * me.rank + p)), p)
        assert len(batch.ops) == 2 * len(peers)
        work = batch.issue(later)
        work.wait()
        assert work.is_completed()
        for p in peers:
            assert outs[p].eq(SIZE * p + me.rank).all()


def test_batches_of_everybody_with_everybody(ranks, backend):
    ranks(SIZE).run(batches, backend)


def beside(me, backend):
    """An open recv delays no collective."""
    comm = me.comm(backend=backend)
    out = torch.empty(4)
    work = comm.recv(out, 1, True) if me.rank == 0 else None
    tensor = torch.ones(4)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    assert tensor.tolist() == [SIZE] * 4
    if me.rank == 1:
        comm.send(torch.arange(4.0), 0, False)
    if work is not None:
        work.wait()
        assert out.tolist() == [0, 1, 2, 3]


def test_a_pending_recv_delays_no_collective(ranks, backend):
    ranks(SIZE).run(beside, backend)
