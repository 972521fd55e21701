# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5, 6: rows of the numerics, and works that are waited for in either way."""

import pytest
import torch

from torchcomms import ReduceOp
from unit.thread_ranks import on_all


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str
)
def test_avg_of_integers_truncates_toward_zero(pair, dtype):
    given = [[7, 5, 4, 0], [0, 2, 5, 1]]
    wanted = [3, 3, 4, 0]
    if dtype.is_signed:
        given = [[-7, 5, -4, -1], [0, -2, -5, 0]]
        wanted = [-3, 1, -4, 0]
    tensors = [torch.tensor(row, dtype=dtype) for row in given]
    on_all(pair, lambda comm: comm.all_reduce(tensors[comm.get_rank()], ReduceOp.AVG))
    assert tensors[0].tolist() == wanted
    assert torch.equal(tensors[0], tensors[1])


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16],
    ids=str,
)
def test_factors_are_each_ranks_own(pair, dtype):
    """A tensor or a number; the input of an operation out of place stays."""
    tensors = [torch.full((5,), 3.0, dtype=dtype) for _ in pair]
    factors = [0.5, torch.tensor([2.0], dtype=dtype)]
    on_all(
        pair,
        lambda comm: comm.all_reduce(
            tensors[comm.get_rank()], ReduceOp.PREMUL_SUM(factors[comm.get_rank()])
        ),
    )
    assert torch.equal(tensors[0], torch.full((5,), 7.5, dtype=dtype))
    inputs = [torch.full((4,), 3.0, dtype=dtype) for _ in pair]
    outputs = [torch.zeros(2, dtype=dtype) for _ in pair]
    on_all(
        pair,
        lambda comm: comm.reduce_scatter(
            outputs[comm.get_rank()],
            [inputs[comm.get_rank()][:2], inputs[comm.get_rank()][2:]],
            ReduceOp.PREMUL_SUM(factors[comm.get_rank()]),
        ),
    )
    assert torch.equal(outputs[1], torch.full((2,), 7.5, dtype=dtype))
    assert torch.equal(inputs[1], torch.full((4,), 3.0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8], ids=str)
@pytest.mark.parametrize("count", [0, 4, 1024, 1 << 20])
def test_counts_and_dtypes_of_the_contract(pair, count, dtype):
    tensors = [torch.full((count,), rank + 1, dtype=dtype) for rank in range(2)]
    on_all(
        pair,
        lambda comm: comm.all_reduce(
            tensors[comm.get_rank()], ReduceOp.SUM, True
        ).wait(),
    )
    for tensor in tensors:
        assert torch.equal(tensor, torch.full((count,), 3, dtype=dtype))


def test_wait_blocking(pair, fake):
    """Of a completed work it does nothing; of one in progress it waits."""
    assert fake.barrier().wait_blocking() is None
    target = torch.zeros(2)
    work = pair[0].recv(target, 1, async_op=True)
    pair[1].send(torch.ones(2), 0)
    assert work.wait_blocking() is None
    assert work.is_completed()
    assert torch.equal(target, torch.ones(2))
    work.wait()
