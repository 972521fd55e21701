# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1, 2, 3, 4, 5: Enums, ReduceOp, P2POp, options, and the queries of a
communicator."""

import copy
import pickle
from datetime import timedelta

import pytest
import torch

import torchcomms
from torchcomms import (
    BatchP2POptions,
    CommOptions,
    OpName,
    P2POp,
    P2POpType,
    RedOpType,
    ReduceOp,
    Timeout,
    WorkStatus,
)

MEMBERS = {
    RedOpType: "SUM PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM AVG",
    OpName: (
        "send recv broadcast all_reduce reduce all_gather all_gather_v "
        "all_gather_single reduce_scatter reduce_scatter_v reduce_scatter_single "
        "all_to_all_single all_to_all_v_single all_to_all barrier scatter gather "
        "gather_single split new_window finalize batch_op_issue"
    ),
    WorkStatus: "NOT_STARTED INPROGRESS COMPLETED TIMEDOUT ERROR",
    P2POpType: "SEND RECV",
}
OPS = [name for name in MEMBERS[RedOpType].split() if name != "PREMUL_SUM"]


@pytest.mark.parametrize("enum", MEMBERS)
def test_enum(enum):
    names = MEMBERS[enum].split()
    assert list(enum.__members__) == names
    for number, name in enumerate(names):
        member = getattr(enum, name)
        assert int(member) == number
        assert str(member) == f"{enum.__name__}.{name}"
        assert enum(number) is member
        assert {member: 1}[member] == 1
        assert pickle.loads(pickle.dumps(member)) is member


@pytest.mark.parametrize("name", OPS)
def test_reduce_op(name):
    op = getattr(ReduceOp, name)
    assert op is getattr(ReduceOp, name)
    assert op == getattr(ReduceOp, name)
    assert op.type is getattr(RedOpType, name)
    assert repr(op) == f"ReduceOp.{name}"
    assert {op: 1}[op] == 1
    made = ReduceOp(getattr(RedOpType, name))
    assert made.type is op.type
    assert made != op
    with pytest.raises(AttributeError):
        op.type = RedOpType.MAX


def test_reduce_op_copies():
    op = ReduceOp.PREMUL_SUM(0.5)
    other = copy.copy(op)
    assert other is not op
    assert repr(other) == repr(op) == "ReduceOp.PREMUL_SUM(0.5)"
    memo = {}
    deep = copy.deepcopy(op, memo)
    assert memo[id(op)] is deep
    assert deep.type is RedOpType.PREMUL_SUM
    assert op.__deepcopy__({id(op): "entry"}) == "entry"
    with pytest.raises(TypeError, match="memo must be a dict"):
        op.__deepcopy__(None)


@pytest.mark.parametrize("factor", [3, 3.0, torch.tensor(3), torch.tensor([3.0])])
def test_premul_sum_factor(factor):
    assert repr(ReduceOp.PREMUL_SUM(factor)) == "ReduceOp.PREMUL_SUM(3.0)"


@pytest.mark.parametrize("factor", ["3 ", None, torch.ones(2), 1j])
def test_premul_sum_refuses(factor):
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        ReduceOp.PREMUL_SUM(factor if factor != "3 " else "x")


def test_reduce_op_refuses():
    with pytest.raises(RuntimeError, match="PREMUL_SUM needs a factor"):
        ReduceOp(RedOpType.PREMUL_SUM)
    with pytest.raises(TypeError, match="opType must be a RedOpType, but got 0"):
        ReduceOp(0)


def test_p2p_op():
    tensor, other = torch.ones(1), torch.ones(2)
    op = P2POp(P2POpType.SEND, tensor, 3)
    assert (op.type, op.tensor, op.peer) == (P2POpType.SEND, tensor, 3)
    op.type, op.tensor, op.peer = P2POpType.RECV, other, 4
    assert (op.type, op.tensor, op.peer) == (P2POpType.RECV, other, 4)
    assert repr(P2POp(type=P2POpType.RECV, tensor=tensor, peer=1)) == (
        "P2POp(P2POpType.RECV, peer=1)"
    )
    with pytest.raises(TypeError, match="type must be a P2POpType, but got 0"):
        P2POp(0, tensor, 1)


def test_timeout_is_a_timedelta():
    assert issubclass(Timeout, timedelta)
    assert Timeout(seconds=2) == timedelta(seconds=2)


def test_comm_options_from_the_environment(monkeypatch):
    options = CommOptions()
    assert options.abort_process_on_timeout_or_error is True
    assert options.timeout == timedelta(seconds=600)
    assert (options.store, options.enable_reconfigure, options.hints) == (
        None,
        False,
        {},
    )
    monkeypatch.setenv("TORCHCOMM_TIMEOUT_SECONDS", " 12 ")
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", "No")
    changed = CommOptions()
    assert changed.timeout == timedelta(seconds=12)
    assert changed.abort_process_on_timeout_or_error is False
    assert changed != options
    assert CommOptions() == changed
    changed.store = object()
    assert CommOptions() == changed
    assert "timeout=" in repr(changed)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TORCHCOMM_ABORT_ON_ERROR", "maybe"), ("TORCHCOMM_TIMEOUT_SECONDS", "1.5")],
)
def test_bad_environment_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeError, match=f"{variable}.*{value}"):
        CommOptions()


def test_batch_options():
    options = BatchP2POptions()
    assert (options.hints, options.timeout) == ({}, timedelta(0))
    assert repr(options).startswith("BatchP2POptions(")


def test_batch_options_are_checked(fake):
    batch = fake.batch_op_create()
    batch.send(torch.ones(1), 0)
    options = BatchP2POptions()
    options.timeout = 5
    with pytest.raises(TypeError, match="timeout must be a datetime.timedelta"):
        batch.issue(False, options)
    with pytest.raises(AttributeError):
        batch.issue(False, object())


def test_queries(fake):
    assert (fake.get_rank(), fake.get_size()) == (1, 3)
    assert fake.get_name() == "main"
    assert fake.get_backend() == "fake"
    assert isinstance(fake.get_backend_version(), str)
    assert fake.get_device() == torch.device("cpu")
    assert fake.get_options() == CommOptions()
    fake.set_timeout(Timeout(milliseconds=1500))
    assert fake.get_options().timeout == timedelta(milliseconds=1500)
    assert repr(fake) == "<TorchComm 'main' on fake, rank 1 of 3>"


def test_huge_timeouts_are_kept(fake):
    fake.set_timeout(timedelta.max)
    assert fake.get_options().timeout > timedelta(days=200 * 365)


def test_communicator_is_not_copied(fake):
    assert copy.copy(fake) is fake
    memo = {}
    assert copy.deepcopy(fake, memo) is fake
    assert memo[id(fake)] is fake
    assert fake.__deepcopy__({id(fake): "entry"}) == "entry"


def test_module_names():
    for name in torchcomms.__all__:
        assert getattr(torchcomms, name).__module__ == "torchcomms"
    for enum in MEMBERS:
        assert enum.__module__ == "torchcomms"
    from torchcomms import _comms

    for name in _comms.__all__:
        if not name.startswith("_"):
            assert getattr(_comms, name) is getattr(torchcomms, name)


def test_hints_reach_the_backend(world):
    world(0, 1)
    comm = torchcomms.new_comm(
        "fake",
        torch.device("cpu"),
        "hinted",
        False,
        timedelta(seconds=9),
        True,
        hints={"a": "1"},
    )
    options = comm.get_options()
    assert options.hints == {"a": "1", "is_high_priority_stream": "true"}
    assert options.timeout == timedelta(seconds=9)
    assert options.abort_process_on_timeout_or_error is False
    comm.finalize()
