# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5: Every collective on every dtype and op, sync and async, bit for bit."""

import itertools
import os

import pytest
import torch

import torchcomms
from multi.support import cells, reference
from multi.support.reference import MOVED, REDUCED, name_of

SIZES = [1, 2, 3, 4]
LARGE_BYTES = 320 * 1024
# More than the lanes of the segment hold, so that they are filled again and again.
HUGE_BYTES = 3 * 1024 * 1024
HUGE = [torch.uint8, torch.bfloat16, torch.float32]
SHOWN = 30


def lengths(dtype, size):
    """Elements a rank: none, inline in a line, in a slot, a plan, a long plan."""
    large = [LARGE_BYTES]
    if dtype in HUGE:
        large.append(HUGE_BYTES)
    return [0, 1, 5, 701, *(n // dtype.itemsize // size + 1 for n in large)]


def expect_right(wrong_by_rank):
    lines = [
        f"rank {rank}: {name}"
        for rank, wrong in enumerate(wrong_by_rank)
        for name in wrong
    ]
    shown = "\n".join(lines[:SHOWN])
    assert not lines, f"{len(lines)} wrong cells\n{shown}"


def tagged(cell, *tags):
    cell.name = ", ".join([cell.name, *map(str, tags)])
    return cell


def reductions(me, dtype):
    comm = me.comm()
    wrong = []
    for count in lengths(dtype, me.size):
        maker = cells.Maker(me, comm, dtype, count)
        ops = reference.legal_ops(dtype)
        if count * me.size * dtype.itemsize > 2 * LARGE_BYTES:
            ops = ops[:1]
        for op, asynchronous in itertools.product(ops, [False, True]):
            how = "async" if asynchronous else "sync"
            wrong += cells.run(
                (tagged(c, op, count, how) for c in maker.reductions(op)), asynchronous
            )
    return wrong


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", REDUCED, ids=name_of)
def test_reductions_are_the_sum_in_rank_order(ranks, dtype, size):
    expect_right(ranks(size).run(reductions, dtype))


def movements(me, dtype):
    comm = me.comm()
    wrong = []
    for count in lengths(dtype, me.size):
        maker = cells.Maker(me, comm, dtype, count)
        for asynchronous in (False, True):
            how = "async" if asynchronous else "sync"
            wrong += cells.run(
                (tagged(c, count, how) for c in maker.movements()), asynchronous
            )
    return wrong


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", MOVED, ids=name_of)
def test_movement_keeps_every_bit(ranks, dtype, size):
    expect_right(ranks(size).run(movements, dtype))


def refusals(me, asynchronous):
    comm = me.comm()
    wrong = []
    for dtype, op in itertools.product(MOVED, reference.OPS):
        if op in reference.legal_ops(dtype):
            continue
        redop = reference.op_of(op, me.rank)
        text = rf"Cannot use ReduceOp\.{op} with (non-integral )?dtype {name_of(dtype)}"
        one = torch.zeros(4 * dtype.itemsize, dtype=torch.uint8).view(dtype)
        whole = torch.zeros(4 * me.size * dtype.itemsize, dtype=torch.uint8).view(dtype)
        parts = list(torch.split(whole, 4))
        calls = {
            "all_reduce": (one,),
            "reduce": (one, 0),
            "reduce_scatter": (one, parts),
            "reduce_scatter_v": (one, parts),
            "reduce_scatter_single": (one, whole),
        }
        for name, arguments in calls.items():
            try:
                with pytest.raises(RuntimeError, match=text):
                    getattr(comm, name)(*arguments, redop, asynchronous)
            except BaseException as cause:
                wrong.append(f"{name} {op} {name_of(dtype)}: {cause}")
        # The next call works: no rank has counted the refused one.
        comm.broadcast(one, 0, asynchronous).wait()
    return wrong


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("size", SIZES)
def test_ops_without_meaning_are_refused_and_the_next_call_works(
    ranks, size, asynchronous
):
    expect_right(ranks(size).run(refusals, asynchronous))


SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    3e38,
    -1e-40,
]


def special_values(me, dtype):
    """NaN, infinities, zeros of both signs: NaN where the reference has one."""
    comm = me.comm()
    pairs = list(itertools.product(SPECIAL, repeat=2))
    columns = [[p[r % 2] for p in pairs] * 50 for r in range(me.size)]
    every = [torch.tensor(c, dtype=torch.float64).to(dtype) for c in columns]
    wrong = []
    for op in reference.legal_ops(dtype):
        if op in ("MIN", "MAX"):
            # Of two zeros the first wins; torch does not say which.
            tensors = [
                torch.where(t.double() == 0, 0.0, t.double()).to(dtype) for t in every
            ]
        else:
            tensors = every
        mine = tensors[me.rank].clone()
        comm.all_reduce(mine, reference.op_of(op, me.rank), False)
        expected = reference.reduction(op, tensors)
        nan = expected.double().isnan()
        same = (mine.double() == expected.double()) & (
            mine.double().signbit() == expected.double().signbit()
        )
        if not torch.where(nan, mine.double().isnan(), same).all():
            wrong.append(op)
    return wrong


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", reference.FLOATS, ids=name_of)
def test_special_values(ranks, dtype, size):
    expect_right(ranks(size).run(special_values, dtype))


def shapes(me):
    """Shape does not matter, only the elements in order; scalars have one."""
    comm = me.comm()
    total = sum(r + 1.0 for r in range(me.size))
    for shape in [(), (1,), (2, 3, 4), (0, 5), (7, 1, 1)]:
        t = torch.full(shape, me.rank + 1.0)
        comm.all_reduce(t, torchcomms.ReduceOp.SUM, False)
        assert t.shape == shape
        assert torch.equal(t, torch.full(shape, total))
    outputs = [torch.empty(2, 2) for _ in range(me.size)]
    comm.all_gather(outputs, torch.full((4,), float(me.rank)), False)
    assert [o[1, 1].item() for o in outputs] == [float(r) for r in range(me.size)]
    grad = torch.ones(3, requires_grad=True)
    comm.all_reduce(grad, torchcomms.ReduceOp.SUM, False)
    assert torch.equal(grad.detach(), torch.full((3,), float(me.size)))


@pytest.mark.parametrize("size", SIZES)
def test_shapes(ranks, size):
    ranks(size).run(shapes)


def parameters(me):
    """Keywords, defaults, hints and timeouts are taken by every method."""
    from datetime import timedelta

    comm = me.comm()
    one, whole = torch.ones(2), torch.ones(2 * me.size)
    parts = [torch.ones(2) for _ in range(me.size)]
    others = [torch.ones(2) for _ in range(me.size)]
    op = torchcomms.ReduceOp.SUM
    splits = [2] * me.size
    calls = {
        "broadcast": {"tensor": one, "root": 0},
        "all_reduce": {"tensor": one, "op": op},
        "reduce": {"tensor": one, "root": 0, "op": op},
        "all_gather": {"tensor_list": parts, "tensor": one},
        "all_gather_v": {"tensor_list": parts, "tensor": one},
        "all_gather_single": {"output": whole, "input": one},
        "reduce_scatter": {"output": one, "input_list": parts, "op": op},
        "reduce_scatter_v": {"output": one, "input_list": parts, "op": op},
        "reduce_scatter_single": {"output": one, "input": whole, "op": op},
        "all_to_all": {"output_tensor_list": parts, "input_tensor_list": others},
        "all_to_all_single": {"output": whole, "input": torch.cat(parts)},
        "all_to_all_v_single": {
            "output": whole,
            "input": torch.cat(parts),
            "output_split_sizes": splits,
            "input_split_sizes": splits,
        },
        "barrier": {},
        "scatter": {"output_tensor": one, "input_tensor_list": parts, "root": 0},
        "gather": {"output_tensor_list": parts, "input_tensor": one, "root": 0},
        "gather_single": {"output": whole, "input": one, "root": 0},
    }
    for name, arguments in calls.items():
        method = getattr(comm, name)
        extras = [
            {},
            {"async_op": True},
            {"async_op": False, "hints": {"unknown": "1"}},
            {"async_op": True, "timeout": timedelta(seconds=30)},
            {"async_op": False, "timeout": torchcomms.Timeout(seconds=30)},
        ]
        for extra in extras:
            work = method(**arguments, **extra)
            assert isinstance(work, torchcomms.TorchWork), name
            work.wait()
            work.wait()
            assert work.is_completed(), name
        method(*arguments.values(), False, {"a": "b"}, timedelta(seconds=30)).wait()


@pytest.mark.parametrize("size", [1, 2])
def test_parameters(ranks, size):
    ranks(size).run(parameters)


def barriers(me):
    comm = me.comm()
    for turn in range(20):
        open(os.path.join(me.folder, f"{turn}-{me.rank}"), "w").close()
        comm.barrier(turn % 2 == 0).wait()
        seen = [
            os.path.exists(os.path.join(me.folder, f"{turn}-{r}"))
            for r in range(me.size)
        ]
        assert all(seen), (turn, seen)


@pytest.mark.parametrize("size", SIZES)
def test_a_barrier_ends_when_all_have_come(ranks, size):
    ranks(size).run(barriers)


def use(comm, ranks_of_child):
    """The child's ranks are in the order of the list."""
    assert comm.get_size() == len(ranks_of_child)
    got = torch.empty(len(ranks_of_child))
    parent_rank = ranks_of_child[comm.get_rank()]
    comm.all_gather_single(got, torch.tensor([float(parent_rank)]), False)
    assert got.tolist() == [float(r) for r in ranks_of_child]
    large = torch.full((100_000,), 1.0)
    comm.all_reduce(large, torchcomms.ReduceOp.SUM, True).wait()
    assert torch.equal(large, torch.full((100_000,), float(len(ranks_of_child))))


def splits(me, groups):
    parent = me.comm(timeout=None)
    everyone = list(range(me.size))
    mine = next((g for g in groups if me.rank in g), [])
    child = parent.split(mine, "child")
    if not mine:
        assert child is None
    else:
        me.keep(child)
        assert child.get_name() == "child"
        assert child.get_rank() == mine.index(me.rank)
        assert child.get_backend() == parent.get_backend()
        assert child.get_device() == parent.get_device()
        use(child, mine)
    use(parent, everyone)
    if child is not None:
        use(child, mine)
        grandchild = me.keep(child.split(list(range(child.get_size()))[::-1], "child"))
        use(grandchild, list(range(child.get_size()))[::-1])
    again = parent.split(mine, "child")
    parent.finalize()
    if again is not None:
        use(me.keep(again), mine)
        use(child, mine)


GROUPS = {
    "contiguous": [[0, 1], [2, 3]],
    "strided": [[0, 2], [1, 3]],
    "reversed": [[3, 2, 1, 0]],
    "uneven": [[1, 3, 0], [2]],
    "single": [[2]],
    "none": [],
    "each alone": [[0], [1], [2], [3]],
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_split(ranks, groups):
    ranks(4).run(splits, groups)


def split_of_one(me):
    comm = me.comm()
    use(me.keep(comm.split([0], "child")), [0])
    assert comm.split([], "nobody") is None


def test_split_of_one_rank(ranks):
    ranks(1).run(split_of_one)


def mixed(me, seed):
    """All collectives in one random order, many in flight, on two communicators."""
    generator = torch.Generator().manual_seed(seed)
    comms = [me.comm(name) for name in ("first", "second")]
    makers = [
        cells.Maker(me, comm, dtype, count)
        for comm in comms
        for dtype, count in [
            (torch.float32, 9),
            (torch.int64, 20_000),
            (torch.uint8, 0),
        ]
    ]
    every = [c for m in makers for c in [*m.movements(), *m.reductions("SUM")]]
    order = torch.randperm(len(every), generator=generator).tolist()
    return cells.run((every[i] for i in order), True)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_order_on_two_communicators(ranks, size):
    expect_right(ranks(size).run(mixed, size))
