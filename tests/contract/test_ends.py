# SPDX-License-Identifier: BSD-3-Clause
"""api.md 8: timeouts, errors and the end of a communicator, on every backend."""

import copy
import gc
import os
import signal
import warnings
from datetime import timedelta

import pytest
import torch

import torchcomms
from contract.support import SIZE, raises

SHORT = timedelta(seconds=2)
SUM = torchcomms.ReduceOp.SUM


def missing(me, backend, later):
    """The last rank is there and does not call."""
    over = me.store("over")
    comm = me.comm(
        backend=backend, timeout=SHORT, abort_process_on_timeout_or_error=False
    )
    if me.rank == SIZE - 1:
        over.wait([f"over{r}" for r in range(SIZE - 1)])
        return
    tensor = torch.ones(4)
    if later:
        work = comm.all_reduce(tensor, SUM, True)
        with pytest.raises(RuntimeError, match="all_reduce"):
            work.wait()
        assert not work.is_completed()
    else:
        with pytest.raises(RuntimeError, match="all_reduce"):
            comm.all_reduce(tensor, SUM, False)
    with pytest.raises(RuntimeError):
        comm.barrier(False)
    over.set(f"over{me.rank}", "1")


@pytest.mark.parametrize("later", [False, True], ids=["sync", "async"])
def test_a_missing_rank(fresh, backend, later):
    fresh(SIZE).run(missing, backend, later)


def of_one_call(me, backend):
    comm = me.comm(backend=backend)
    if me.rank == 0:
        with pytest.raises(RuntimeError):
            comm.barrier(False, timeout=timedelta(milliseconds=200))
        me.store("over").set("over", "1")
    else:
        me.store("over").wait(["over"])


def test_a_timeout_of_one_call(fresh, backend):
    fresh(2).run(of_one_call, backend)


def recv_alone(me, backend):
    """A recv that times out fails alone; the next message is for the next recv."""
    comm = me.comm(backend=backend)
    short = timedelta(milliseconds=200)
    out = torch.zeros(4)
    if me.rank == 2:
        comm.send(torch.full((4,), 2.0), 0, False)
    if me.rank == 0:
        for later in (False, True):
            with pytest.raises(RuntimeError, match="recv"):
                comm.recv(out, 1, later, timeout=short).wait()
        other = torch.zeros(4)
        comm.recv(other, 2, False)
        assert other.tolist() == [2.0] * 4
    comm.barrier(False)
    assert out.tolist() == [0.0] * 4
    tensor = torch.ones(4)
    comm.all_reduce(tensor, SUM, False)
    assert tensor.tolist() == [SIZE] * 4
    if me.rank == 1:
        for turn in range(3):
            comm.send(torch.full((4,), float(turn)), 0, False)
    if me.rank == 0:
        for turn in range(3):
            comm.recv(out, 1, False)
            assert out.tolist() == [float(turn)] * 4


def test_a_recv_that_times_out_fails_alone(ranks, backend):
    ranks(SIZE).run(recv_alone, backend)


def ends(me, backend):
    comm = me.comm(backend=backend)
    work = comm.all_reduce(torch.ones(1024), SUM, True)
    comm.finalize()
    work.wait()
    assert (comm.get_rank(), comm.get_size()) == (me.rank, SIZE)
    assert (comm.get_name(), comm.get_backend()) == ("test", backend)
    with raises("already finalized"):
        comm.finalize()
    with raises("already finalized"):
        comm.all_reduce(torch.ones(1), SUM, False)
    with raises("already finalized"):
        comm.split([], "child")


def test_finalize_completes_what_is_outstanding(ranks, backend):
    ranks(SIZE).run(ends, backend)


def killed(me, backend):
    comm = me.comm(backend=backend)
    comm.barrier(False)
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="all_reduce"):
        comm.all_reduce(torch.ones(1024), SUM, False)
    with pytest.raises(RuntimeError):
        comm.barrier(False)


def test_a_rank_is_killed(fresh, backend):
    pool = fresh(SIZE)
    pool.start(killed, backend)
    outcomes = pool.finish()
    assert outcomes.pop(1).exit == -signal.SIGKILL
    assert all(outcome.ok for outcome in outcomes), pool.describe(outcomes)


def exit_amid(me, backend):
    """What is in flight when the process exits goes with it."""
    os.environ.update(RANK=str(me.rank), WORLD_SIZE=str(SIZE))
    comm = torchcomms.new_comm(
        backend, torch.device("cpu"), "amid", store=me.store("amid")
    )
    comm.barrier(False)
    if me.rank != 0:
        comm.all_reduce(torch.ones(1024), SUM, True)
        comm.recv(torch.ones(1), 0, True)
    globals()["kept"] = comm


def test_an_exit_without_finalize(fresh, backend):
    pool = fresh(SIZE, whole_exit=True)
    pool.run(exit_amid, backend)
    pool.close()
    assert [w.exit_status() for w in pool.workers] == [0] * SIZE


def last_words(me, backend):
    """Small sends arrive also where their rank has left."""
    for turn in range(5):
        comm = me.comm(f"turn{turn}", backend=backend)
        if me.rank > 0:
            comm.send(torch.full((9,), float(me.rank)), 0, False)
            comm.finalize()
            continue
        for peer in (3, 1, 2):
            out = torch.empty(9)
            comm.recv(out, peer, False)
            assert out.tolist() == [float(peer)] * 9


def test_what_was_sent_before_finalize_arrives(ranks, backend):
    ranks(SIZE).run(last_words, backend)


def rooted_and_gone(me, backend):
    """The root leaves as soon as it is done."""
    for turn in range(5):
        comm = me.comm(f"turn{turn}", backend=backend)
        tensor = torch.full((50_000,), float(me.rank))
        comm.broadcast(tensor, turn % SIZE, False)
        comm.finalize()
        assert tensor.eq(turn % SIZE).all()


def test_a_root_may_leave_at_once(ranks, backend):
    ranks(SIZE).run(rooted_and_gone, backend)


def several(me, backend):
    comms = [me.comm(f"c{i}", backend=backend) for i in range(3)]
    tensors = [torch.full((64,), float(i)) for i in range(3)]
    order = range(3) if me.rank % 2 == 0 else reversed(range(3))
    works = [comms[i].all_reduce(tensors[i], SUM, True) for i in order]
    for work in works:
        work.wait()
    assert [t[0].item() for t in tensors] == [0, SIZE, 2 * SIZE]


def test_three_communicators_at_once(ranks, backend):
    ranks(SIZE).run(several, backend)


def objects(me, backend):
    comm = me.comm(backend=backend)
    assert copy.copy(comm) is comm
    memo = {}
    assert copy.deepcopy(comm, memo) is comm
    assert memo[id(comm)] is comm
    works = [comm.all_reduce(torch.ones(256), SUM, True) for _ in range(4)]
    del works
    batch = comm.batch_op_create()
    comm.barrier(False)
    del batch
    gc.collect()


def test_copies_and_what_is_dropped(ranks, backend):
    ranks(SIZE).run(objects, backend)


def forgotten(me, backend):
    """Dropped without finalize: a warning."""
    os.environ.update(RANK=str(me.rank), WORLD_SIZE=str(SIZE))
    comm = torchcomms.new_comm(
        backend, torch.device("cpu"), "lost", store=me.store("lost")
    )
    comm.barrier(False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del comm
        gc.collect()
    assert ["'lost' was dropped without finalize()" in str(w.message) for w in seen]


def test_a_communicator_may_be_forgotten(fresh, backend):
    fresh(SIZE).run(forgotten, backend)
