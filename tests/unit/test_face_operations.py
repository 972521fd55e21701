# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5, 6: Every operation through the Python face: how it is called and what it
gives."""

import inspect
from datetime import timedelta

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp, Timeout, TorchComm
from unit.thread_ranks import make_fake, on_all

SUM = ReduceOp.SUM


def f(*shape):
    return torch.ones(*shape)


# For rank 1 of 3.
OPERATIONS = {
    "send": lambda: {"tensor": f(4), "dst": 0},
    "recv": lambda: {"tensor": f(4), "src": 2},
    "broadcast": lambda: {"tensor": f(4), "root": 2},
    "all_reduce": lambda: {"tensor": f(4), "op": SUM},
    "reduce": lambda: {"tensor": f(4), "root": 0, "op": SUM},
    "all_gather": lambda: {"tensor_list": [f(4) for _ in range(3)], "tensor": f(4)},
    "all_gather_v": lambda: {"tensor_list": [f(1), f(4), f(0)], "tensor": f(2, 2)},
    "all_gather_single": lambda: {"output": f(3, 4), "input": f(4)},
    "reduce_scatter": lambda: {
        "output": f(4),
        "input_list": [f(4) for _ in range(3)],
        "op": SUM,
    },
    "reduce_scatter_v": lambda: {
        "output": f(4),
        "input_list": [f(1), f(4), f(0)],
        "op": SUM,
    },
    "reduce_scatter_single": lambda: {"output": f(4), "input": f(12), "op": SUM},
    "all_to_all": lambda: {
        "output_tensor_list": [f(1), f(2), f(3)],
        "input_tensor_list": [f(3), f(2), f(1)],
    },
    "all_to_all_single": lambda: {"output": f(6), "input": f(6)},
    "all_to_all_v_single": lambda: {
        "output": f(6, 2),
        "input": f(4, 2),
        "output_split_sizes": [1, 2, 3],
        "input_split_sizes": [0, 2, 1],
    },
    "barrier": dict,
    "scatter": lambda: {
        "output_tensor": f(4),
        "input_tensor_list": [f(4) for _ in range(3)],
        "root": 1,
    },
    "gather": lambda: {
        "output_tensor_list": [f(4) for _ in range(3)],
        "input_tensor": f(4),
        "root": 1,
    },
    "gather_single": lambda: {"output": f(12), "input": f(4), "root": 1},
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("async_op", [False, True])
def test_positions_and_keywords_are_alike(fake, name, async_op):
    arguments = OPERATIONS[name]()
    method = getattr(fake, name)
    hints, timeout = {"any": "hint"}, timedelta(seconds=3)

    for work in (
        method(*arguments.values(), async_op),
        method(*arguments.values(), async_op, hints, timeout),
        method(**arguments, async_op=async_op, hints=hints, timeout=timeout),
        method(**arguments),
        method(**arguments, hints=None, timeout=Timeout(seconds=1)),
    ):
        assert type(work) is torchcomms.TorchWork
        assert work.wait() is None
        assert work.wait() is None
        assert work.wait_blocking() is None
        assert work.is_completed()


@pytest.mark.parametrize("name", OPERATIONS)
def test_signature_is_the_contracts(name):
    expected = [*OPERATIONS[name](), "async_op", "hints", "timeout"]
    signature = inspect.signature(getattr(TorchComm, name))

    assert list(signature.parameters)[1:] == expected
    assert signature.parameters["async_op"].default is False
    assert inspect.getdoc(getattr(TorchComm, name))


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n != "barrier"])
def test_empty_tensors_and_scalars_are_legal(fake, name):
    def emptied(value):
        if isinstance(value, torch.Tensor):
            return torch.empty(0)
        if isinstance(value, list) and isinstance(value[0], torch.Tensor):
            return [torch.empty(0) for _ in value]
        return [0] * len(value) if isinstance(value, list) else value

    arguments = {k: emptied(v) for k, v in OPERATIONS[name]().items()}
    assert getattr(fake, name)(**arguments).is_completed()


def test_scalars_are_legal(fake):
    scalar = torch.tensor(1.0)

    fake.all_reduce(scalar, SUM)
    fake.all_gather([torch.tensor(0.0) for _ in range(3)], scalar)
    fake.all_gather_single(torch.empty(3), scalar)
    fake.all_to_all_v_single(scalar, torch.tensor(2.0), [0, 1, 0], [0, 1, 0])


def test_tuples_are_lists(fake):
    fake.all_gather(tuple(f(2) for _ in range(3)), f(2))
    fake.all_to_all_v_single(f(3), f(3), (1, 1, 1), (1, 1, 1))


def test_lists_of_others_are_not_looked_at(fake):
    for nothing in ([], None, "anything"):
        fake.scatter(f(4), nothing, 0)
        fake.gather(nothing, f(4), 0)
        fake.gather_single(nothing, f(4), 0)


def test_own_block_may_be_input_and_output(fake):
    whole = f(12)
    fake.all_gather_single(whole, whole[4:8])
    fake.reduce_scatter_single(whole[4:8], whole, SUM)
    parts = list(f(12).chunk(3))
    fake.all_gather(parts, parts[1])
    fake.reduce_scatter(parts[1], parts, SUM)
    fake.gather(parts, parts[1], 1)
    fake.scatter(parts[1], parts, 1)


def test_one_input_for_several_ranks(fake):
    same = f(4)
    fake.reduce_scatter(f(4), [same, same, same], SUM)
    fake.all_to_all([f(4), f(4), f(4)], [same, same, same])


def test_more_ranks_than_fit_inline():
    comm = make_fake(20, 40, name="many")
    comm.all_to_all([f(2) for _ in range(40)], [f(2) for _ in range(40)])
    comm.all_to_all_v_single(f(40), f(40), [1] * 40, [1] * 40)
    with pytest.raises(RuntimeError, match=r"input_tensor_list\[39\] has dtype int64"):
        comm.all_to_all(
            [f(2) for _ in range(40)],
            [*(f(2) for _ in range(39)), torch.ones(2, dtype=torch.int64)],
        )
    comm.finalize()


def test_every_dtype_is_moved(alone):
    names = (
        "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 "
        "float32 float64 complex32 complex64 complex128 float8_e4m3fn float8_e5m2 "
        "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2"
    )
    for name in names.split():
        dtype = getattr(torch, name)
        raw = torch.arange(4 * dtype.itemsize, dtype=torch.uint8) % 2
        tensor = raw.view(dtype)
        output = torch.zeros_like(raw).view(dtype)
        alone.all_gather_single(output, tensor)
        assert torch.equal(output.view(torch.uint8), raw), name


def test_tensors_that_want_gradients_and_parameters(alone):
    parameter = torch.nn.Parameter(f(3))
    alone.all_reduce(parameter, SUM)
    alone.all_reduce(f(3).requires_grad_(), SUM)


def test_premul_sum_leaves_the_input_alone(pair):
    inputs = [f(4), f(4)]
    outputs = [f(2), f(2)]
    on_all(
        pair,
        lambda comm: comm.reduce_scatter_single(
            outputs[comm.get_rank()],
            inputs[comm.get_rank()],
            ReduceOp.PREMUL_SUM(torch.tensor([2.0 + comm.get_rank()])),
        ),
    )
    assert torch.equal(inputs[0], f(4))
    assert torch.equal(outputs[1], torch.full((2,), 5.0))


def test_operation_larger_than_what_keeps_the_gil(pair):
    tensors = [torch.full((1 << 16,), float(rank)) for rank in range(2)]
    on_all(pair, lambda comm: comm.all_reduce(tensors[comm.get_rank()], SUM))
    assert torch.equal(tensors[0], torch.ones(1 << 16))
    assert torch.equal(tensors[0], tensors[1])


def test_asynchronous_work(pair):
    target = torch.zeros(3)
    work = pair[0].recv(target, 1, async_op=True)
    assert not work.is_completed()
    pair[1].send(torch.arange(3.0), 0)
    work.wait()
    assert work.is_completed()
    assert torch.equal(target, torch.arange(3.0))


def test_batch_exchanges_without_deadlock(pair):
    def exchange(comm):
        other = 1 - comm.get_rank()
        mine, theirs = torch.full((1 << 17,), float(comm.get_rank())), f(1 << 17)
        batch = comm.batch_op_create()
        assert batch.send(mine, other) is None
        assert batch.recv(tensor=theirs, src=other) is None
        assert len(batch.ops) == 2
        assert batch.issue(False, torchcomms.BatchP2POptions()).is_completed()
        return theirs[0].item()

    assert on_all(pair, exchange) == [1.0, 0.0]


def test_batch_is_repeated_and_edited(fake):
    batch = fake.batch_op_create()
    batch.send(f(2), 0)
    batch.issue()
    batch.issue(async_op=True, options=None).wait()
    assert len(batch.ops) == 1
    batch.ops = [torchcomms.P2POp(torchcomms.P2POpType.RECV, f(2), 2)]
    batch.issue()
    batch.ops.append(torchcomms.P2POp(torchcomms.P2POpType.SEND, f(2), 2))
    batch.issue()


def test_split(pair):
    reverse = on_all(pair, lambda comm: comm.split([1, 0], "reverse"))
    assert [c.get_rank() for c in reverse] == [1, 0]
    assert [c.get_name() for c in reverse] == ["reverse", "reverse"]
    some = on_all(
        pair, lambda comm: comm.split([0] if comm.get_rank() == 0 else [], name="some")
    )
    assert some[1] is None
    assert some[0].get_size() == 1
    for comm in (*reverse, some[0]):
        comm.finalize()
    on_all(pair, lambda comm: comm.barrier())


def test_split_inherits_or_is_told(fake):
    fake.set_timeout(timedelta(seconds=7))
    child = fake.split([1, 2], "child")
    assert child.get_options().timeout == timedelta(seconds=7)
    told = fake.split([1], "told", {"a": "b"}, timedelta(seconds=2))
    assert told.get_options().timeout == timedelta(seconds=2)
    assert told.get_options().hints == {"a": "b"}
    for comm in (child, told):
        assert comm.get_backend() == "fake"
        comm.finalize()
