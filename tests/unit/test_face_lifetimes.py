# SPDX-License-Identifier: BSD-3-Clause
"""api.md 4, 5, 6, 8: Who keeps what alive, for how long, and how a process ends."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from datetime import timedelta

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp
from unit.thread_ranks import leave, make_fake, make_ranks, on_all

SUM = ReduceOp.SUM
CPU = torch.device("cpu")


def run(program, expected=0):
    """Runs a program that has make_ranks and on_all; returns what it wrote."""
    head = """
    import os, signal, sys, threading, gc
    import torch, torchcomms
    from unit.thread_ranks import leave, make_ranks, on_all
    SUM = torchcomms.ReduceOp.SUM
    """
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            textwrap.dedent(head) + textwrap.dedent(program),
        ],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == expected, (done.returncode, done.stderr)
    return done


# Tensors ------------------------------------------------------------------------------


def test_pending_work_keeps_its_tensors(pair):
    tensor = torch.zeros(3)
    alive = weakref.ref(tensor)
    work = pair[0].recv(tensor, 1, async_op=True)
    del tensor
    gc.collect()
    assert alive() is not None
    pair[1].send(torch.ones(3), 0)
    work.wait()
    pair[0].get_rank()
    del work
    assert alive() is None


def test_dropped_work_completes_and_lets_go(pair):
    tensor = torch.zeros(3)
    view = tensor.view(3)
    alive = weakref.ref(view)
    pair[0].recv(view, 1, async_op=True)
    del view
    gc.collect()
    assert alive() is not None
    pair[1].send(torch.ones(3), 0)
    # The engine ends it on its own thread; the next calls let go of the tensor.
    for _ in itertools.takewhile(lambda _: alive() is not None, iter(int, 1)):
        pair[0].send(torch.ones(0), 1, async_op=True)
        threading.Event().wait(0.001)
    assert torch.equal(tensor, torch.ones(3))


def test_lists_may_change_after_the_call(pair):
    outputs = [torch.zeros(2), torch.zeros(2)]
    keep = list(outputs)
    work = pair[0].all_gather(outputs, torch.ones(2), async_op=True)
    outputs.clear()
    gc.collect()
    pair[1].all_gather([torch.zeros(2), torch.zeros(2)], torch.full((2,), 5.0))
    work.wait()
    assert torch.equal(keep[1], torch.full((2,), 5.0))


def test_batch_keeps_its_communicator_and_tensors():
    comm = make_fake(0, 2)
    alive = weakref.ref(comm)
    batch = comm.batch_op_create()
    batch.send(torch.ones(2), 1)
    comm.finalize()
    del comm
    assert alive() is not None
    with pytest.raises(RuntimeError, match="already finalized"):
        batch.issue()
    del batch
    assert alive() is None


# Drops in any order -------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_drops_in_any_order(world, order):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", CPU, name="x")
    things = [
        comm,
        comm.split([0], "child"),
        comm.batch_op_create(),
        comm.all_reduce(torch.ones(2), SUM, True),
    ]
    del comm
    for which in order:
        things[which] = None
        gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("comm_first", [False, True])
def test_communicator_dropped_with_work_pending(comm_first):
    """The work goes on without its communicator's object."""
    pair = make_ranks(2)
    target = torch.zeros(2)
    work = pair[0].recv(target, 1, async_op=True)
    if comm_first:
        pair[0] = None
        gc.collect()
        pair[1].send(torch.ones(2), 0)
        work.wait()
        assert torch.equal(target, torch.ones(2))
    else:
        del work
        pair[0] = None
        gc.collect()
        pair[1].send(torch.ones(2), 0)
    # The next communicator sweeps up what was left over.
    leave([pair[1]])
    leave(make_ranks(2, name="next"))


def test_dropping_warns_and_nothing_else(world):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", CPU, name="forgotten")
    with pytest.warns(
        ResourceWarning, match="'forgotten' was dropped without finalize"
    ):
        del comm


def test_finalized_communicator_is_dropped_quietly(world):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", CPU, name="x")
    comm.finalize()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del comm


def test_warning_as_error_does_not_escape(world, monkeypatch):
    world(0, 1)
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", caught.append)
    comm = torchcomms.new_comm("ncclx", CPU, name="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del comm
    assert [c.exc_type for c in caught] == [ResourceWarning]


# Leaks --------------------------------------------------------------------------------


def live_objects():
    gc.collect()
    classes = (
        torchcomms.TorchComm,
        torchcomms.TorchWork,
        torchcomms.BatchSendRecv,
        torchcomms.P2POp,
        torchcomms.ReduceOp,
        torch.Tensor,
    )
    return sum(issubclass(type(o), classes) for o in gc.get_objects())


def steady(act, rounds=50):
    """Rounds of act() leave neither objects nor memory of Python behind.

    Caches fill at first, so several windows are looked at: a leak shows in all of them.
    """
    for _ in range(5):
        act()
    grown = []
    for _ in range(5):
        before, blocks = live_objects(), sys.getallocatedblocks()
        for _ in range(rounds):
            act()
        assert live_objects() == before
        grown.append(sys.getallocatedblocks() - blocks)
        if grown[-1] < rounds // 2:
            return
    raise AssertionError(f"blocks left by {rounds} rounds: {grown}")


def test_no_leak_of_communicators(world):
    world(0, 1)

    def act():
        comm = torchcomms.new_comm("ncclx", CPU, name="x", hints={"a": "b"})
        child = comm.split([0], "child")
        comm.get_options()
        child.finalize()
        comm.finalize()

    descriptors = len(os.listdir("/proc/self/fd"))
    steady(act)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 8


def test_no_leak_of_operations(pair):
    target = torch.zeros(3)

    def act():
        work = pair[0].recv(target, 1, True, {"a": "b"}, timedelta(seconds=5))
        pair[1].send(torch.ones(3), 0)
        work.wait()
        pair[0].get_rank()

    steady(act)


def test_no_leak_of_refusals(fake):
    def act():
        for call in (
            lambda: fake.all_reduce(torch.ones(2, 2).t(), SUM),
            lambda: fake.all_gather([torch.ones(2), 5, None], torch.ones(2)),
            lambda: fake.all_to_all_v_single(
                torch.ones(3), torch.ones(3), [1, 1, 1], [1, 1, "1"]
            ),
            lambda: fake.split([1, 5], "x", {"a": "b"}),
            lambda: fake.barrier(hints={"a": 5}),
            lambda: fake.barrier(nothing=5),
        ):
            try:
                call()
            except (RuntimeError, TypeError):
                continue
            raise AssertionError("not refused")

    steady(act, rounds=200)


def test_no_leak_of_small_objects(fake):
    def act():
        ReduceOp.PREMUL_SUM(0.5).__copy__()
        batch = fake.batch_op_create()
        batch.send(torch.ones(2), 0)
        batch.ops.append(batch)  # a cycle through the list
        op = torchcomms.P2POp(torchcomms.P2POpType.SEND, None, 0)
        op.tensor = op

    steady(act)


def test_tensor_classes_are_not_kept_in_number(fake):
    classes = [type(f"T{n}", (torch.Tensor,), {}) for n in range(8)]
    for cls in classes:
        fake.all_reduce(torch.ones(2).as_subclass(cls), SUM)
    seen = [weakref.ref(cls) for cls in classes]
    del classes, cls
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= 4


# Waiting ------------------------------------------------------------------------------


def test_waiting_releases_the_gil(pair):
    """A rank that waits must let the rank run that it waits for."""
    on_all(pair, lambda comm: [comm.barrier() for _ in range(100)])


def test_error_of_a_work_is_raised_each_time(pair):
    work = pair[0].recv(
        torch.zeros(2), 1, async_op=True, timeout=timedelta(milliseconds=50)
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match="recv"):
            work.wait()
    assert not work.is_completed()
    # A receive that timed out fails alone.
    on_all(pair, lambda comm: comm.barrier())


def test_abort_ends_the_wait_of_another_thread(pair):
    assert pair[0].is_abort_supported()
    assert not pair[0].is_aborted()
    work = pair[0].recv(torch.zeros(2), 1, async_op=True)
    texts = []

    def wait():
        try:
            work.wait()
        except RuntimeError as error:
            texts.append(str(error))

    waiter = threading.Thread(target=wait)
    waiter.start()
    pair[0].abort()
    pair[0].abort()
    waiter.join(20)
    assert len(texts) == 1
    assert pair[0].is_aborted()
    with pytest.raises(RuntimeError):
        pair[0].barrier()
    pair[0].finalize()
    with pytest.raises(RuntimeError, match="rank 0 aborted it"):
        pair[1].finalize()


@pytest.mark.parametrize(
    "wait",
    ["comms[0].recv(target, 1)", "comms[0].recv(target, 1, async_op=True).wait()"],
)
def test_interrupt_leaves_the_wait_and_not_the_operation(wait):
    run(
        f"""
        comms = make_ranks(2)
        target = torch.zeros(2)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            {wait}
        except KeyboardInterrupt:
            pass
        else:
            sys.exit("not interrupted")
        comms[1].send(torch.ones(2), 0)
        on_all(comms, lambda comm: comm.barrier())
        assert target.tolist() == [1.0, 1.0]
        leave(comms)
        """
    )


def test_signal_handler_runs_and_the_wait_goes_on():
    run(
        """
        comms = make_ranks(2)
        target = torch.zeros(2)

        def handler(signum, frame):
            comms[1].send(torch.ones(2), 0)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        comms[0].recv(target, 1)
        assert target.tolist() == [1.0, 1.0]
        leave(comms)
        """
    )


# The end of a process -----------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        "pass",
        "leave(comms)",
        "del comms; gc.collect()",
        "work = comms[0].recv(torch.zeros(2), 1, async_op=True)",
        "comms[0].recv(torch.zeros(2), 1, async_op=True)",
        "comms[0].recv(torch.zeros(2), 1, async_op=True); del comms; gc.collect()",
        "sys.kept = comms",
        "os.kept = comms[0].all_reduce(torch.ones(2), SUM, True); sys.exit(0)",
        "threading.excepthook = id\n"
        "threading.Thread(target=comms[0].barrier, daemon=True).start()",
    ],
)
def test_exit_is_quiet(rest):
    done = run(f"comms = make_ranks(2)\n{rest}\n")
    assert (done.stdout, done.stderr) == ("", "")


def test_exit_in_an_atexit_function_of_the_user():
    done = run(
        """
        import atexit

        def late():
            try:
                comms[0].barrier()
            except RuntimeError as error:
                print(error)
            try:
                make_ranks(1)
            except RuntimeError as error:
                print(error)

        atexit.register(late)  # before ours, so it runs after it
        comms = make_ranks(2)
        """
    )
    assert "already finalized" in done.stdout
    assert "the interpreter is exiting" in done.stdout
    assert done.stderr == ""


def test_forked_child_is_told_and_leaves_its_parents_alone():
    run(
        """
        comms = make_ranks(2)
        work = comms[0].recv(torch.zeros(2), 1, async_op=True)
        child = os.fork()
        if child == 0:
            try:
                comms[0].barrier()
            except RuntimeError as error:
                told = "fork" in str(error)
            # Its own communicators work, and its exit does not end the parent's.
            mine = make_ranks(2, name="child")
            on_all(mine, lambda comm: comm.barrier())
            leave(mine)
            del work, comms, mine
            gc.collect()
            sys.exit(0 if told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        comms[1].send(torch.ones(2), 0)
        work.wait()
        on_all(comms, lambda comm: comm.barrier())
        leave(comms)
        """
    )


def test_killed_process_leaves_no_file():
    before = set(os.listdir("/dev/shm"))
    run("make_ranks(2); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)
    assert set(os.listdir("/dev/shm")) == before
