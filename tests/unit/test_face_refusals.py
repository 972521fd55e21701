# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5, 6: Bad arguments: refused before anything is sent; the text names the
argument."""

from datetime import timedelta

import pytest
import torch

import torchcomms
from torchcomms import P2POp, P2POpType, ReduceOp
from unit.thread_ranks import on_all

SUM = ReduceOp.SUM
BIG = (1 << 63) - 1


def f(*shape):
    return torch.ones(*shape)


def i(*shape):
    return torch.ones(*shape, dtype=torch.int64)


def z(*shape):
    return torch.ones(*shape, dtype=torch.complex64)


def batch(comm, *ops):
    made = comm.batch_op_create()
    made.ops = list(ops)
    return made.issue()


def nested():
    return torch.nested.nested_tensor([f(2), f(3)], layout=torch.jagged)


def freed():
    tensor = f(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def quantized():
    with pytest.warns(UserWarning, match="quantize"):
        return torch.quantize_per_tensor(f(2), 0.1, 0, torch.quint8)


# Text, exception, call; for rank 1 of 3 of communicator 'main'.
REFUSALS = [
    # tensors
    ("tensor must be a torch.Tensor, but got list", TypeError,
     lambda c: c.all_reduce([1.0], SUM)),
    ("tensor must be a torch.Tensor, but got NoneType", TypeError,
     lambda c: c.broadcast(None, 0)),
    ("tensor is on meta, communicator 'main' on cpu", RuntimeError,
     lambda c: c.all_reduce(torch.empty(2, device="meta"), SUM)),
    ("tensor has layout torch.sparse_coo: only dense tensors work", RuntimeError,
     lambda c: c.all_reduce(f(2, 2).to_sparse(), SUM)),
    ("tensor is quantized, which is not supported", RuntimeError,
     lambda c: c.all_reduce(quantized(), SUM)),
    ("tensor is a nested tensor, which is not supported", RuntimeError,
     lambda c: c.all_reduce(nested(), SUM)),
    ("tensor has its conjugate bit set: pass resolve_conj() of it", RuntimeError,
     lambda c: c.all_reduce(z(2).conj(), SUM)),
    ("tensor has its negative bit set: pass resolve_neg() of it", RuntimeError,
     lambda c: c.all_reduce(torch._neg_view(f(2)), SUM)),
    ("input has its negative bit set", RuntimeError,
     lambda c: c.all_gather_single(f(3), z(1).conj().imag)),
    ("Tensor must be contiguous: tensor has shape torch.Size([3, 2]) and strides (1",
     RuntimeError, lambda c: c.all_reduce(f(2, 3).t(), SUM)),
    ("Tensor must be contiguous: tensor has", RuntimeError,
     lambda c: c.broadcast(f(1).expand(4), 0)),
    ("Tensor must be contiguous: tensor has", RuntimeError,
     lambda c: c.send(f(1, 2, 3, 4).to(memory_format=torch.channels_last), 0)),
    ("Tensor must be contiguous: tensor_list[2] has", RuntimeError,
     lambda c: c.all_gather([f(2), f(2), f(4)[::2]], f(2))),
    ("tensor has dtype torch.bits8, which is not supported", RuntimeError,
     lambda c: c.broadcast(torch.empty(2, dtype=torch.bits8), 0)),
    ("tensor has no memory of its own", RuntimeError,
     lambda c: c.all_reduce(freed(), SUM)),
    # ranks
    ("root must be in range [0, 3), but got 3", RuntimeError,
     lambda c: c.broadcast(f(2), 3)),
    ("root must be in range [0, 3), but got -1", RuntimeError,
     lambda c: c.reduce(f(2), -1, SUM)),
    ("root must be in range [0, 3), but got 7", RuntimeError,
     lambda c: c.scatter(f(2), [], 7)),
    ("root must be in range [0, 3), but got 8", RuntimeError,
     lambda c: c.gather([], f(2), root=8)),
    ("root must be in range [0, 3), but got 9", RuntimeError,
     lambda c: c.gather_single(f(6), f(2), 9)),
    ("dst must be in range [0, 3), but got 3", RuntimeError, lambda c: c.send(f(2), 3)),
    ("src must be in range [0, 3), but got -1", RuntimeError,
     lambda c: c.recv(f(2), -1)),
    ("root does not fit 64 bits", OverflowError, lambda c: c.broadcast(f(2), 1 << 70)),
    ("root must be an int, but got float", TypeError, lambda c: c.broadcast(f(2), 1.0)),
    ("Cannot send to self (rank 1)", RuntimeError, lambda c: c.send(f(2), 1)),
    ("Cannot recv from self (rank 1)", RuntimeError, lambda c: c.recv(f(2), 1)),
    # lists, counts and dtypes
    ("tensor_list must be a list of tensors, but got Tensor", TypeError,
     lambda c: c.all_gather(f(3, 2), f(2))),
    ("tensor_list has 2 entries, but the communicator has 3 ranks", RuntimeError,
     lambda c: c.all_gather([f(2), f(2)], f(2))),
    ("tensor_list[1] must be a torch.Tensor, but got int", TypeError,
     lambda c: c.all_gather([f(2), 5, f(2)], f(2))),
    ("tensor_list[2] has 3 elements, expected 2", RuntimeError,
     lambda c: c.all_gather([f(2), f(2), f(3)], f(2))),
    ("tensor_list[1] has 3 elements, expected 2", RuntimeError,
     lambda c: c.all_gather_v([f(5), f(3), f(3)], f(2))),
    ("tensor_list[0] has dtype int64, but the others have float32", RuntimeError,
     lambda c: c.all_gather([i(2), f(2), f(2)], f(2))),
    ("output has 5 elements, expected 6: 3 ranks with the 2 of input", RuntimeError,
     lambda c: c.all_gather_single(f(5), f(2))),
    ("input has dtype int64, but the others have float32", RuntimeError,
     lambda c: c.all_gather_single(f(6), i(2))),
    ("input_list[0] has 3 elements, expected 2", RuntimeError,
     lambda c: c.reduce_scatter(f(2), [f(3), f(2), f(2)], SUM)),
    ("input_list[1] has 1 elements, expected 2", RuntimeError,
     lambda c: c.reduce_scatter_v(f(2), [f(3), f(1), f(2)], SUM)),
    ("input has 7 elements, expected 6: 3 ranks with the 2 of output", RuntimeError,
     lambda c: c.reduce_scatter_single(f(2), f(7), SUM)),
    ("input_tensor_list[1] has 3 elements, expected 2", RuntimeError,
     lambda c: c.all_to_all([f(2)] + [f(2), f(2)], [f(3), f(3), f(3)])),
    ("output has 3 elements, expected 6", RuntimeError,
     lambda c: c.all_to_all_single(f(3), f(6))),
    ("input has 4 elements, which 3 ranks do not divide evenly", RuntimeError,
     lambda c: c.all_to_all_single(f(4), f(4))),
    ("output_split_sizes sums to 7, but output has 6 rows", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [3, 2, 2], [2, 2, 2])),
    ("input_split_sizes sums to 4, but input has 3 rows", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6, 2), f(3, 2), [2, 2, 2], [0, 2, 2])),
    ("input_split_sizes[2] must not be negative, but got -1", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [2, 2, 2], [2, 2, -1])),
    ("output_split_sizes has 2 entries, but the communicator has 3 ranks", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [3, 3], [2, 2, 2])),
    ("input_split_sizes[1] means 1 elements, output_split_sizes[1] 2", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [2, 2, 2], [2, 1, 2])),
    ("output_split_sizes sums to 18446744073709551614, but output has 6", RuntimeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [BIG, BIG, 0], [2, 2, 2])),
    ("output_split_sizes must be an int, but got str", TypeError,
     lambda c: c.all_to_all_v_single(f(6), f(6), [2, 2, "2"], [2, 2, 2])),
    ("input_tensor_list[0] has 5 elements, expected 2", RuntimeError,
     lambda c: c.scatter(f(2), [f(5), f(2), f(2)], 1)),
    ("input_tensor_list has 0 entries, but the communicator has 3 ranks", RuntimeError,
     lambda c: c.scatter(f(2), [], 1)),
    ("output_tensor_list[0] has 5 elements, expected 2", RuntimeError,
     lambda c: c.gather([f(5), f(2), f(2)], f(2), 1)),
    ("output has 2 elements, expected 6: 3 ranks with the 2 of input", RuntimeError,
     lambda c: c.gather_single(f(2), f(2), 1)),
    # the rest of the arguments
    ("op must be a torchcomms.ReduceOp, but got RedOpType", TypeError,
     lambda c: c.all_reduce(f(2), torchcomms.RedOpType.SUM)),
    ("async_op must be a bool, but got dict", TypeError,
     lambda c: c.broadcast(f(2), 0, {})),
    ("hints must be a dict of str or None, but got list", TypeError,
     lambda c: c.barrier(False, [])),
    ("a value of hints must be a str, but got int", TypeError,
     lambda c: c.barrier(hints={"a": 1})),
    ("a key of hints must be a str, but got int", TypeError,
     lambda c: c.barrier(hints={1: "a"})),
    ("timeout must be a datetime.timedelta or None, but got int", TypeError,
     lambda c: c.barrier(timeout=3)),
    ("timeout must not be negative, but got -1 day, 23:59:59", RuntimeError,
     lambda c: c.barrier(timeout=timedelta(seconds=-1))),
    ("timeout must be positive, but got 0:00:00", RuntimeError,
     lambda c: c.set_timeout(timedelta(0))),
    ("all_reduce() missing required argument 'op' (pos 2)", TypeError,
     lambda c: c.all_reduce(f(2))),
    ("all_reduce() got an unexpected keyword argument 'opp'", TypeError,
     lambda c: c.all_reduce(f(2), opp=SUM)),
    ("all_reduce() got multiple values for argument 'tensor'", TypeError,
     lambda c: c.all_reduce(f(2), SUM, tensor=f(2))),
    ("barrier() takes at most 3 positional arguments (4 given)", TypeError,
     lambda c: c.barrier(False, None, None, None)),
    # overlapping memory
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.all_gather_single(t, t[:2]))(f(6))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.all_gather_single(t[:6], t[5:7]))(f(8))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.all_gather([t[:2], t[1:3], t[4:6]], f(2)))(f(6))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.all_to_all_single(t, t))(f(6))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.reduce_scatter_single(t[1:3], t, SUM))(f(6))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: c.reduce_scatter(t, [t, t, t], SUM))(f(2))),
    ("tensors of one call overlap in memory", RuntimeError,
     lambda c: (lambda t: batch(c, P2POp(P2POpType.SEND, t, 0),
                                P2POp(P2POpType.RECV, t, 2)))(f(2))),
    # batches
    ("Cannot issue empty batch operation", RuntimeError, lambda c: batch(c)),
    ("dst must be in range [0, 3), but got 4", RuntimeError,
     lambda c: c.batch_op_create().send(f(2), 4)),
    ("Cannot recv from self", RuntimeError,
     lambda c: c.batch_op_create().recv(f(2), 1)),
    ("src must be in range [0, 3), but got 5", RuntimeError,
     lambda c: batch(c, P2POp(P2POpType.RECV, f(2), 5))),
    ("Cannot send to self (rank 1)", RuntimeError,
     lambda c: batch(c, P2POp(P2POpType.SEND, f(2), 1))),
    ("ops[1] must be a torch.Tensor, but got str", TypeError,
     lambda c: batch(c, P2POp(P2POpType.SEND, f(2), 0), P2POp(P2POpType.SEND, "x", 0))),
    ("an element of ops must be a torchcomms.P2POp, but got int", TypeError,
     lambda c: batch(c, 1)),
    ("ops must be a list of P2POp", TypeError,
     lambda c: setattr(c.batch_op_create(), "ops", 1)),
    # split
    ("rank must be in range [0, 3), but got 3", RuntimeError,
     lambda c: c.split([1, 3], "x")),
    ("ranks[0] and ranks[1] are both 1", RuntimeError, lambda c: c.split([1, 1], "x")),
    ("Current rank 1 is not included in the provided ranks list", RuntimeError,
     lambda c: c.split([0, 2], "x")),
    ("an element of ranks must be an int, but got str", TypeError,
     lambda c: c.split(["1"], "x")),
    ("name must be a str, but got int", TypeError, lambda c: c.split([1], 5)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*nested:UserWarning")
@pytest.mark.parametrize(
    ("text", "exception", "call"), REFUSALS, ids=[row[0][:60] for row in REFUSALS]
)
def test_refusal(fake, text, exception, call):
    with pytest.raises(exception) as caught:
        call(fake)
    assert text in str(caught.value)
    assert type(caught.value) is exception
    assert len(str(caught.value)) < 200  # no C++ stack
    # Nothing was consumed: the same communicator goes on.
    assert fake.all_reduce(f(2), SUM).is_completed()


@pytest.mark.parametrize("op", ["BAND", "BOR", "BXOR"])
def test_bitwise_op_of_a_float(alone, op):
    with pytest.raises(RuntimeError, match=f"ReduceOp.{op} with non-integral dtype"):
        alone.all_reduce(f(2), getattr(ReduceOp, op))


def test_a_refused_call_can_be_repeated(pair):
    """The rank that gave a wrong argument is not one operation ahead of the others."""
    tensors = [f(4), f(4)]

    def act(comm):
        if comm.get_rank() == 0:
            with pytest.raises(RuntimeError, match="contiguous"):
                comm.all_reduce(f(2, 2).t(), SUM)
            with pytest.raises(RuntimeError, match="root must be in range"):
                comm.broadcast(f(4), 2)
        comm.all_reduce(tensors[comm.get_rank()], SUM)

    on_all(pair, act)
    assert torch.equal(tensors[0], torch.full((4,), 2.0))


def test_use_after_finalize(fake):
    fake.finalize()
    for call in (
        lambda: fake.all_reduce(f(2), SUM),
        lambda: fake.barrier(),
        lambda: fake.split([1], "x"),
        lambda: batch(fake, P2POp(P2POpType.SEND, f(2), 0)),
        lambda: fake.finalize(),
    ):
        with pytest.raises(RuntimeError, match="'main' already finalized"):
            call()
    assert (fake.get_rank(), fake.get_size(), fake.get_name()) == (1, 3, "main")


def test_types_that_are_not_made_by_users():
    for cls in (torchcomms.TorchComm, torchcomms.TorchWork, torchcomms.BatchSendRecv):
        with pytest.raises(TypeError, match="cannot create"):
            cls()


def test_status_of_an_own_work_cannot_be_set(fake):
    with pytest.raises(RuntimeError, match="written in Python"):
        fake.barrier()._set_status(torchcomms.WorkStatus.ERROR)


@pytest.mark.parametrize("name", ["int1", "int4", "uint3", "uint7"])
def test_integers_below_a_byte_move_and_are_not_reduced(fake, name):
    tensor = torch.zeros(3, dtype=torch.uint8).view(getattr(torch, name))
    fake.broadcast(tensor, 0)
    with pytest.raises(RuntimeError, match=f"torch.{name}, which cannot be reduced"):
        fake.all_reduce(tensor, SUM)
