# SPDX-License-Identifier: BSD-3-Clause
"""Every collective of torch.distributed by name, against gloo in the same processes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from multi.support.c10d import both

SIZES = [1, 2, 3, 4]
COUNTS = [0, 1, 5, 1024, 100_000]


def values(me, count, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + me.rank)
    return torch.randint(1, 5, (count,), generator=generator).to(dtype)


def empty_list(me, count, dtype=torch.float32):
    return [torch.full((count,), -1, dtype=dtype) for _ in range(me.size)]


def all_reduce(me, group, count):
    tensor = values(me, count)
    dist.all_reduce(tensor, group=group)
    return [tensor]


def broadcast(me, group, count):
    results = []
    for root in range(me.size):
        tensor = values(me, count, seed=root)
        dist.broadcast(tensor, root, group=group)
        results.append(tensor)
    return results


def reduce(me, group, count):
    results = []
    for root in range(me.size):
        tensor = values(me, count, seed=root)
        dist.reduce(tensor, root, op=ReduceOp.MAX, group=group)
        if me.rank == root:
            results.append(tensor)
    return results


def all_gather(me, group, count):
    outputs = empty_list(me, count)
    dist.all_gather(outputs, values(me, count), group=group)
    return outputs


def all_gather_single(me, group, count):
    output = torch.empty(me.size * count)
    dist.all_gather_into_tensor(output, values(me, count), group=group)
    return [output]


def all_gather_in_place(me, group, count):
    output = torch.empty(me.size * count)
    own = output[me.rank * count : (me.rank + 1) * count]
    own.copy_(values(me, count))
    dist.all_gather_into_tensor(output, own, group=group)
    return [output]


def all_gather_coalesced(me, group, count):
    lists = [[torch.empty(count), torch.empty(2)] for _ in range(me.size)]
    dist.all_gather_coalesced(
        lists, [values(me, count), values(me, 2, seed=1)], group=group
    )
    return [tensor for tensors in lists for tensor in tensors]


def gather(me, group, count):
    results = []
    for root in range(me.size):
        outputs = empty_list(me, count) if me.rank == root else None
        dist.gather(values(me, count, seed=root), outputs, dst=root, group=group)
        results += outputs or []
    return results


def scatter(me, group, count):
    results = []
    for root in range(me.size):
        inputs = [values(me, count, seed=i) for i in range(me.size)]
        output = torch.empty(count)
        dist.scatter(output, inputs if me.rank == root else None, root, group=group)
        results.append(output)
    return results


def reduce_scatter_single(me, group, count):
    output = torch.empty(count)
    dist.reduce_scatter_tensor(output, values(me, me.size * count), group=group)
    return [output]


def reduce_scatter(me, group, count):
    output = torch.empty(count)
    inputs = [values(me, count, seed=i) for i in range(me.size)]
    dist.reduce_scatter(output, inputs, group=group)
    return [output]


def all_to_all_single(me, group, count):
    output = torch.empty(me.size * count)
    dist.all_to_all_single(output, values(me, me.size * count), group=group)
    return [output]


def all_to_all_uneven(me, group, count):
    sent = [(me.rank + r) % 3 for r in range(me.size)]
    received = [(r + me.rank) % 3 for r in range(me.size)]
    tensor = values(me, sum(sent) * max(count, 1)).reshape(-1, max(count, 1))
    output = torch.empty(sum(received), max(count, 1))
    dist.all_to_all_single(output, tensor, received, sent, group=group)
    return [output]


def coalesced(me, group, count):
    tensors = [values(me, count, seed=i) for i in range(5)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors


CASES = [
    all_reduce, broadcast, reduce, all_gather, all_gather_single, all_gather_in_place,
    all_gather_coalesced, gather, scatter, reduce_scatter_single, reduce_scatter,
    all_to_all_single, all_to_all_uneven, coalesced,
]  # fmt: skip


def against_gloo(me, case):
    case = globals()[case]
    with both(me) as (ours, gloo):
        for count in COUNTS:
            got, wanted = case(me, ours, count), case(me, gloo, count)
            assert len(got) == len(wanted)
            for a, b in zip(got, wanted, strict=True):
                assert torch.equal(a, b), (count, a, b)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_against_gloo(ranks, case, size):
    ranks(size).run(against_gloo, case)


def every_op(me):
    ops = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    bits = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
    floats = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    with both(me) as (ours, gloo):
        for dtype in [*floats, torch.int8, torch.uint8, torch.int32, torch.int64]:
            for op in ops + ([] if dtype.is_floating_point else bits):
                got, wanted = values(me, 33, dtype), values(me, 33, dtype)
                dist.all_reduce(got, op, group=ours)
                dist.all_reduce(wanted, op, group=gloo)
                assert torch.equal(got, wanted), (dtype, op)
        for dtype in floats:
            got = torch.full((7,), float(me.rank), dtype=dtype)
            dist.all_reduce(got, ReduceOp.AVG)
            assert torch.equal(got, torch.full_like(got, (me.size - 1) / 2)), dtype
            got = torch.ones(7, dtype=dtype)
            dist.all_reduce(got, dist._make_nccl_premul_sum(0.5))
            assert torch.equal(got, torch.full_like(got, me.size / 2)), dtype


def test_every_op_and_dtype(ranks):
    ranks(3).run(every_op)


def strided(me):
    with both(me) as (ours, _):
        base = torch.zeros(6, 4)
        column = base[:, 1]
        column.fill_(me.rank + 1)
        dist.all_reduce(column)
        total = me.size * (me.size + 1) / 2
        assert torch.equal(column, torch.full((6,), total))
        assert base.sum() == 6 * total
        work = dist.all_reduce(column.fill_(1), async_op=True)
        while not work.is_completed():
            pass
        assert torch.equal(column, torch.full((6,), float(me.size)))
        outputs = [torch.zeros(4, 3).t() for _ in range(me.size)]
        dist.all_gather(outputs, torch.full((4, 3), float(me.rank)).t())
        assert [o.unique().tolist() for o in outputs] == [
            [float(r)] for r in range(me.size)
        ]
        received = [torch.zeros(2) for _ in range(me.size)]
        dist.all_gather(received, torch._neg_view(torch.ones(2)))
        assert torch.equal(received[0], torch.full((2,), -1.0))
        turned = torch._neg_view(torch.ones(2))
        # Past torch's dispatcher, which would reduce a copy and lose it.
        ours._get_backend(torch.device("cpu")).allreduce([turned]).wait()
        assert torch.equal(turned, torch.full((2,), -float(me.size)))
        with pytest.raises(RuntimeError, match="memory"):
            dist.all_reduce(torch.zeros(1).expand(3))
        same = torch.zeros(3)
        dist.all_gather([same] * me.size, torch.full((3,), float(me.rank)))
        assert torch.equal(same, torch.full((3,), float(me.size - 1)))


def test_strided_negated_and_aliased_tensors(ranks):
    ranks(3).run(strided)


def refusals(me):
    with both(me) as (ours, _):
        for call, text in (
            (lambda: dist.broadcast(torch.zeros(2).to_sparse(), 0), "(?i)sparse"),
            (lambda: dist.all_gather([torch.zeros(2)], torch.zeros(2)), "entries"),
            (lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2)), "x"),
            (lambda: ours.send([torch.zeros(1)], 0, -1), "tag"),
        ):
            with pytest.raises(
                (ValueError, RuntimeError, NotImplementedError), match=text
            ):
                call()
        # The calls can be repeated, and nothing was sent.
        dist.barrier()


def test_bad_arguments_are_refused_before_anything_is_sent(ranks):
    ranks(2).run(refusals)


def sparse(me):
    with both(me) as (ours, gloo):
        tensors = []
        for group in (ours, gloo):
            indices = torch.tensor([list(range(me.rank + 1)), [2] * (me.rank + 1)])
            tensor = torch.sparse_coo_tensor(
                indices, torch.ones(me.rank + 1, 3), (6, 4, 3)
            )
            dist.all_reduce(tensor, group=group)
            tensors.append(tensor.to_dense())
        assert torch.equal(*tensors)
        work = dist.all_reduce(torch.zeros(3).to_sparse(), async_op=True)
        work.wait()
        with pytest.raises(ValueError, match="SUM"):
            dist.all_reduce(torch.ones(3).to_sparse(), ReduceOp.MAX)


@pytest.mark.parametrize("size", [1, 3])
def test_sparse_tensors_are_summed(ranks, size):
    ranks(size).run(sparse)
