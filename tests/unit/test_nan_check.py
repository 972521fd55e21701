# SPDX-License-Identifier: BSD-3-Clause
"""api.md 19: the NaN check, on the fake backend."""

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import NanCheckHook
from torchcomms.hooks.nan_check import nan_check
from unit.thread_ranks import leave


@pytest.fixture(params=["torch's check", "our own"])
def fallback(request, monkeypatch):
    """With and without torch.ops.c10d.check_for_nan."""
    if request.param == "our own":
        monkeypatch.setattr(nan_check, "_find_check", lambda: nan_check._look)


def bad(*shape, dtype=torch.float32):
    tensor = torch.zeros(shape, dtype=dtype)
    tensor.view(-1)[-1] = float("nan")
    return tensor


def registered(comm, **options):
    hook = NanCheckHook(**options)
    assert not hook.is_enabled()
    hook.register_with_comm(comm)
    assert hook.is_enabled()
    return hook


def calls(comm):
    fine, one, two, three = (torch.zeros(4) for _ in range(4))
    yield "send", lambda: comm.send(bad(4), 0)
    yield "broadcast", lambda: comm.broadcast(bad(4), 0)
    yield "all_reduce", lambda: comm.all_reduce(bad(4), ReduceOp.SUM)
    yield "reduce", lambda: comm.reduce(bad(4), 0, ReduceOp.SUM)
    yield "all_gather", lambda: comm.all_gather([one, two, three], bad(4))
    yield "all_gather_single", lambda: comm.all_gather_single(torch.zeros(12), bad(4))
    yield (
        "reduce_scatter",
        lambda: comm.reduce_scatter(fine, [one, two, bad(4)], ReduceOp.SUM),
    )
    yield (
        "reduce_scatter_single",
        lambda: comm.reduce_scatter_single(fine, bad(12), ReduceOp.SUM),
    )
    yield "all_to_all_single", lambda: comm.all_to_all_single(torch.zeros(3), bad(3))
    yield "scatter", lambda: comm.scatter(fine, [one, bad(4), two], 1)
    yield "gather", lambda: comm.gather([], bad(4), 0)


def test_inputs_of_each_operation(fake, fallback):
    registered(fake)
    for name, call in calls(fake):
        text = f"NaN detected in input tensor for '{name}' on comm 'main': "
        with pytest.raises(RuntimeError, match=text):
            call()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floating_dtypes(fake, fallback, dtype):
    registered(fake)
    fake.broadcast(torch.zeros(4, dtype=dtype), 0)
    with pytest.raises(RuntimeError, match="NaN detected"):
        fake.broadcast(bad(4, dtype=dtype), 0)


def test_outputs_are_looked_at_as_they_are(fake, fallback):
    registered(fake, check_inputs=False, check_outputs=True)
    text = "NaN detected in output tensor for '{}' on comm 'main': "
    with pytest.raises(RuntimeError, match=text.format("all_gather_single")):
        fake.all_gather_single(bad(12), torch.zeros(4))
    with pytest.raises(RuntimeError, match=text.format("recv")):
        fake.recv(bad(4), 0)
    fake.all_gather_single(torch.zeros(12), bad(4))
    # In place counts as input.
    fake.all_reduce(bad(4), ReduceOp.SUM)


def test_what_passes(fake, fallback):
    registered(fake, check_outputs=True)
    fake.all_reduce(torch.full((4,), float("inf")), ReduceOp.SUM)
    fake.all_reduce(torch.ones(4, dtype=torch.int32), ReduceOp.SUM)
    fake.all_reduce(torch.ones(0), ReduceOp.SUM)
    fake.barrier()
    fake.recv(torch.ones(4), 0)
    # Of a tensor with gaps only what belongs to it.
    wide = torch.zeros(4, 2)
    wide[1, 1] = float("nan")
    nan_check.NanCheckHook()._examine("input", (wide[:, 0],), "main", "OpName.send")
    with pytest.raises(RuntimeError, match="'send'"):
        nan_check.NanCheckHook()._examine("input", (wide[:, 1],), "main", "OpName.send")


def test_two_communicators_and_no_call_after_a_nan(fake, world):
    world(0, 2)
    other = torchcomms.new_comm("fake", torch.device("cpu"), name="other")
    hook = registered(fake)
    hook.register_with_comm(other)
    after = []
    other.register_post_hook(lambda op_id, args: after.append(op_id))
    with pytest.raises(RuntimeError, match="on comm 'other'"):
        other.broadcast(bad(2), 0)
    assert after == []
    other.broadcast(torch.zeros(2), 0)
    assert len(after) == 1
    leave([other])


def test_a_wrong_argument_is_refused():
    with pytest.raises(TypeError, match="comm must be a torchcomms.TorchComm"):
        NanCheckHook().register_with_comm(None)
