# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5: every collective, with the same results on every backend."""

import itertools

import pytest
import torch

import torchcomms
from contract.support import COUNTS, DTYPES, SIZE
from multi.support import cells
from multi.support.reference import name_of

# Small integers, which every dtype adds up without rounding, in any order.
OPS = {
    "SUM": lambda all_of: sum(all_of),
    "PRODUCT": lambda all_of: torch.stack(all_of).prod(0),
    "MIN": lambda all_of: torch.stack(all_of).amin(0),
    "MAX": lambda all_of: torch.stack(all_of).amax(0),
    "AVG": lambda all_of: sum(all_of) / len(all_of),
}
INTEGER_OPS = {
    "BAND": lambda all_of: all_of[0] & all_of[1] & all_of[2] & all_of[3],
    "BOR": lambda all_of: all_of[0] | all_of[1] | all_of[2] | all_of[3],
    "BXOR": lambda all_of: all_of[0] ^ all_of[1] ^ all_of[2] ^ all_of[3],
}


def numbers(dtype, count, rank):
    return ((torch.arange(count) * (rank + 1)) % 5 - 2).to(dtype)


def expected(op, dtype, count):
    exact = torch.float64 if dtype.is_floating_point else torch.int64
    every = [numbers(dtype, count, r).to(exact) for r in range(SIZE)]
    if op == "AVG" and not dtype.is_floating_point:
        return torch.div(sum(every), SIZE, rounding_mode="trunc").to(dtype)
    return (OPS | INTEGER_OPS)[op](every).to(dtype)


def ops_of(dtype):
    return [*OPS] + ([] if dtype.is_floating_point else [*INTEGER_OPS])


def same(found, wanted, *what):
    assert torch.equal(found, wanted), (*what, found[:8], wanted[:8])


def moved(me, backend, dtype):
    comm = me.comm(backend=backend)
    wrong = []
    for count, later in itertools.product(COUNTS, [False, True]):
        maker = cells.Maker(me, comm, dtype, count)
        wrong += [f"{count}, {later}: {w}" for w in cells.run(maker.movements(), later)]
    return wrong


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex64], ids=name_of)
def test_what_moves_keeps_every_bit(ranks, backend, dtype):
    assert ranks(SIZE).run(moved, backend, dtype) == [[]] * SIZE


def reduced(me, backend, dtype):
    comm = me.comm(backend=backend)
    for count, op, later in itertools.product(COUNTS, ops_of(dtype), [False, True]):
        redop = getattr(torchcomms.ReduceOp, op)
        what = (op, count, later)
        tensor = numbers(dtype, count, me.rank)
        comm.all_reduce(tensor, redop, later).wait()
        same(tensor, expected(op, dtype, count), "all_reduce", *what)
        for root in range(SIZE):
            tensor = numbers(dtype, count, me.rank)
            comm.reduce(tensor, root, redop, later).wait()
            if root == me.rank:
                same(tensor, expected(op, dtype, count), "reduce", *what)
        whole = numbers(dtype, count * SIZE, me.rank)
        sums = expected(op, dtype, count * SIZE)
        mine = sums[me.rank * count : (me.rank + 1) * count]
        out = torch.empty(count, dtype=dtype)
        comm.reduce_scatter_single(out, whole, redop, later).wait()
        same(out, mine, "reduce_scatter_single", *what)
        out = torch.empty(count, dtype=dtype)
        comm.reduce_scatter(out, [*whole.split([count] * SIZE)], redop, later).wait()
        same(out, mine, "reduce_scatter", *what)
        uneven = [count * SIZE - 3 * (count // 2), *[count // 2] * 3]
        out = torch.empty(uneven[me.rank], dtype=dtype)
        parts = [*whole.split(uneven)]
        comm.reduce_scatter_v(out, parts, redop, later).wait()
        same(out, sums.split(uneven)[me.rank], "reduce_scatter_v", *what)
        same(whole, numbers(dtype, count * SIZE, me.rank), "input", *what)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.int64], ids=name_of)
def test_reductions(ranks, backend, dtype):
    ranks(SIZE).run(reduced, backend, dtype)


def premultiplied(me, backend, dtype):
    comm = me.comm(backend=backend)
    whole = numbers(dtype, 4 * SIZE, me.rank)
    before = whole.clone()
    redop = torchcomms.ReduceOp.PREMUL_SUM(me.rank + 1)
    wanted = sum(numbers(dtype, 4 * SIZE, r) * (r + 1) for r in range(SIZE))
    out = torch.empty(4, dtype=dtype)
    comm.reduce_scatter_single(out, whole, redop, False)
    same(out, wanted.split(4)[me.rank])
    same(whole, before)
    comm.all_reduce(whole, redop, True).wait()
    same(whole, wanted)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=name_of
)
def test_each_rank_has_a_factor_of_its_own(ranks, backend, dtype):
    ranks(SIZE).run(premultiplied, backend, dtype)


def average(me, backend):
    comm = me.comm(backend=backend)
    tensor = torch.tensor([-1, 1, -7, 7], dtype=torch.int32) * (me.rank == 0)
    comm.all_reduce(tensor, torchcomms.ReduceOp.AVG, False)
    assert tensor.tolist() == [0, 0, -1, 1]


def test_average_of_integers(ranks, backend):
    ranks(SIZE).run(average, backend)


def truths(me, backend):
    comm = me.comm(backend=backend)
    found = {}
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        tensor = torch.tensor([me.rank == 1, True, False, me.rank < 2])
        comm.all_reduce(tensor, getattr(torchcomms.ReduceOp, op), False)
        found[op] = tensor.tolist()
    any_of, all_of = [True, True, False, True], [False, True, False, False]
    assert found == {
        "SUM": any_of,
        "PRODUCT": all_of,
        "MIN": all_of,
        "MAX": any_of,
        "BAND": all_of,
        "BOR": any_of,
        "BXOR": [True, False, False, False],
    }


def test_truth_values(ranks, backend):
    ranks(SIZE).run(truths, backend)


def in_order(me, backend):
    """Works may be dropped, inputs deleted, and the next operation sees the result."""
    comm = me.comm(backend=backend)
    tensor = torch.full((1024,), 1.0)
    for _ in range(6):
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, True)
    gathered = torch.empty(SIZE * 1024)
    work = comm.all_gather_single(gathered, tensor.clone() * 0 + me.rank, True)
    outs = [torch.empty(1024) for _ in range(SIZE)]
    last = comm.all_gather(outs, torch.full((1024,), float(me.rank)), True)
    last.wait()
    assert tensor.eq(4.0**6).all()
    work.wait()
    assert work.is_completed()
    assert gathered.view(SIZE, -1)[:, 7].tolist() == [0, 1, 2, 3]
    assert [o[3].item() for o in outs] == [0, 1, 2, 3]
    del comm, work, last


def test_order_dropped_works_and_deleted_inputs(ranks, backend):
    ranks(SIZE).run(in_order, backend)
