# SPDX-License-Identifier: BSD-3-Clause
"""api.md 4, 5, 6, 8: Lives of communicators, works and processes; waiting, deadlines,
abort, signals."""

import gc
import os
import pathlib
import random
import re
import resource
import signal
import threading
import time
import warnings
from datetime import timedelta

import pytest
import torch

import torchcomms
from multi.support.ranks import wait

SUM = torchcomms.ReduceOp.SUM
DEADLINE = timedelta(seconds=1)
IDLE_S = 5
IDLE_SHARE = 0.05


def check_sum(comm, count=3, asynchronous=False):
    size = comm.get_size()
    t = torch.full((count,), comm.get_rank() + 1.0)
    comm.all_reduce(t, SUM, asynchronous).wait()
    assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))


# Waiting ------------------------------------------------------------------------------


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle(me, count):
    """Rank 0 comes late; each of the others waits in its own way."""
    comm = me.comm()
    check_sum(comm, count)
    t = torch.ones(count)
    begin = processor_seconds()
    if me.rank == 0:
        time.sleep(IDLE_S)
        spent = processor_seconds() - begin
        for peer in (3, 4):
            comm.send(t, peer, False)
        comm.all_reduce(t, SUM, False)
        return spent
    if me.rank >= 3:
        work = comm.recv(t, 0, me.rank == 4)
        work.wait()
    t = torch.ones(count)
    comm.all_reduce(t, SUM, me.rank == 2).wait()
    return processor_seconds() - begin


@pytest.mark.parametrize("count", [4, 100_000], ids=["small", "large"])
def test_ranks_that_wait_use_no_processor(fresh, count):
    spent = fresh(5).run(idle, count)
    assert max(spent) < IDLE_S * IDLE_SHARE, spent


def stop_others(me):
    comm = me.comm()
    for _ in range(50):
        check_sum(comm, 20_000)


def test_a_stopped_process_is_slow_not_dead(fresh):
    pool = fresh(3)
    pool.start(stop_others)
    for _ in range(3):
        pool.workers[1].kill(signal.SIGSTOP)
        wait([w.pidfd for w in pool.workers], 0.2)
        pool.workers[1].kill(signal.SIGCONT)
    assert all(outcome.ok for outcome in pool.finish())


# Works and communicators --------------------------------------------------------------


def works_outlive(me):
    comm = me.comm("first", store=me.store())
    tensors = [torch.full((n,), me.rank + 1.0) for n in (3, 100_000)]
    works = [comm.all_reduce(t, SUM, True) for t in tensors]
    comm.finalize()
    total = me.size * (me.size + 1) / 2
    for work, t in zip(works, tensors, strict=True):
        assert work.is_completed()
        assert torch.equal(t, torch.full_like(t, total))
    del comm, me._comms[:]
    gc.collect()
    for work in works:
        work.wait()
        assert work.is_completed()


def dropped_works(me):
    """Neither works nor tensors are kept: the operation ends all the same."""
    comm = me.comm()
    kept = torch.full((50_000,), me.rank + 1.0)
    for _ in range(20):
        comm.all_reduce(torch.ones(50_000), SUM, True)
    out = [torch.empty(50_000) for _ in range(me.size)]
    work = comm.all_gather(out, kept.clone(), True)
    del kept
    work.wait()
    assert [o[7].item() for o in out] == [r + 1.0 for r in range(me.size)]
    check_sum(comm)


def dropped_comm(me):
    """A communicator is forgotten with an operation in flight."""
    options = {"store": me.store()}
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(me.rank), str(me.size)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "dropped", **options)
    t = torch.full((100_000,), 1.0)
    work = comm.all_reduce(t, SUM, True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del comm
        gc.collect()
    assert ["dropped" in str(w.message) for w in caught] == [True]
    work.wait()
    assert torch.equal(t, torch.full_like(t, float(me.size)))
    check_sum(me.comm("after"))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("function", [works_outlive, dropped_works, dropped_comm])
def test_ends_in_any_order(ranks, function, size):
    ranks(size).run(function)


def footprint():
    maps = pathlib.Path("/proc/self/maps").read_text().count("\n")
    return len(os.listdir("/proc/self/fd")), maps, len(os.listdir("/proc/self/task"))


def one_cycle(me, number):
    comm = me.comm("cycle", store=me.store(f"store{number}"))
    check_sum(comm, 4)
    check_sum(comm, 100_000, True)
    if me.size > 1:
        child = comm.split(list(range(me.size)), "child")
        check_sum(child)
        child.finalize()
    comm.finalize()
    me._comms.clear()


def cycles(me):
    for number in range(10):
        one_cycle(me, number)
    gc.collect()
    before = footprint()
    for number in range(10, 60):
        one_cycle(me, number)
    gc.collect()
    return before, footprint()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_fifty_lives_leave_no_descriptor_no_mapping_and_no_thread(fresh, size):
    for before, after in fresh(size).run(cycles):
        assert after[0] == before[0], "descriptors"
        # The allocator maps and unmaps its own, and the engine unmaps the last segments
        # a moment later; a leak would be one a cycle, fifty.
        assert after[1] <= before[1] + 25, "mappings"
        assert after[2] == before[2], "threads"


def same_name_again(me):
    store = me.store()
    for _ in range(5):
        comm = me.comm("again", store=store)
        check_sum(comm)
        comm.finalize()


def test_the_same_name_on_the_same_store_again(ranks):
    ranks(3).run(same_name_again)


def several_at_once(me):
    comms = [me.comm(f"comm{i}") for i in range(3)]
    for turn in range(30):
        check_sum(comms[turn % 3], 10 ** (turn % 6), turn % 2 == 0)
    # In different orders on different ranks: none waits for another.
    order = comms if me.rank % 2 == 0 else comms[::-1]
    tensors = {c: torch.full((60_000,), me.rank + 1.0) for c in order}
    works = [c.all_reduce(tensors[c], SUM, True) for c in order]
    for work in works:
        work.wait()
    for t in tensors.values():
        assert torch.equal(t, torch.full_like(t, me.size * (me.size + 1) / 2))


def several_threads(me):
    comms = [me.comm(f"comm{i}") for i in range(3)]
    failures = []

    def use(comm, seed):
        generator = random.Random(seed)
        try:
            for _ in range(60):
                count = generator.choice([1, 700, 30_000])
                check_sum(comm, count, generator.random() < 0.5)
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=use, args=(c, i)) for i, c in enumerate(comms)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("function", [several_at_once, several_threads])
@pytest.mark.parametrize("size", [2, 3])
def test_several_communicators(ranks, function, size):
    ranks(size).run(function)


# Processes ----------------------------------------------------------------------------

left_over = []


def leave_without_finalize(me, in_flight):
    options = {"store": me.store()}
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(me.rank), str(me.size)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "left", **options)
    check_sum(comm, 100_000)
    left_over.append(comm)
    if in_flight and me.rank == 0:
        left_over.append(comm.all_reduce(torch.ones(100_000), SUM, True))


@pytest.mark.parametrize("in_flight", [False, True])
def test_exit_without_finalize(fresh, in_flight):
    pool = fresh(2, whole_exit=True)
    pool.run(leave_without_finalize, in_flight)
    pool.close()
    assert [w.status for w in pool.workers] == [0, 0]


def exits_early(me):
    """Rank 1 reaches its end while the others need it."""
    if me.rank == 1:
        leave_without_finalize(me, False)
        return None
    comm = me.comm("left")
    check_sum(comm, 100_000)
    with pytest.raises(RuntimeError) as caught:
        comm.all_reduce(torch.ones(4), SUM, False)
    return str(caught.value)


def test_a_rank_that_has_left_is_named(fresh):
    pool = fresh(3)
    pool.start(exits_early)
    while not wait([pool.workers[1].channel], 0.01):
        pass
    pool.workers[1].channel.close()
    wait([pool.workers[1].pidfd], 60)
    for rank in (0, 2):
        assert wait([pool.workers[rank].channel], 60), "still waiting"
        outcome = pool.workers[rank].outcome()
        assert outcome.ok, outcome.error
        assert re.search("rank 1 .*has left", outcome.value), outcome.value


def in_child(function):
    """Runs it in a fork and returns what it printed, or its exception."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            text = function()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def fork_after_init(me):
    comm = me.comm()
    check_sum(comm, 100_000)
    work = comm.recv(torch.empty(1), 1 - me.rank, True)
    for call in (
        comm.finalize,
        comm.abort,
        work.wait,
        lambda: comm.barrier(False),
        lambda: comm.all_reduce(torch.ones(4), SUM, True),
        lambda: comm.send(torch.ones(4), 1 - me.rank, False),
        lambda: comm.split([me.rank], "child"),
    ):
        said = in_child(call)
        assert re.match("RuntimeError.*fork", said), said

    def own():
        os.environ["RANK"], os.environ["WORLD_SIZE"] = "0", "1"
        mine = torchcomms.new_comm("ncclx", torch.device("cpu"), "own")
        check_sum(mine, 100_000, True)
        mine.finalize()
        return "fine"

    assert in_child(own) == "fine"
    comm.send(torch.ones(1), 1 - me.rank, False)
    work.wait()
    check_sum(comm)
    check_sum(comm, 100_000, True)


def test_fork_after_init(fresh):
    fresh(2).run(fork_after_init)


# Signals, deadlines, abort ------------------------------------------------------------


def interrupted(me, count, kind):
    comm = me.comm()
    t = torch.full((count,), me.rank + 1.0)
    if me.rank == 1:
        comm.recv(torch.empty(1), 0, False)
        comm.all_reduce(t, SUM, False)
    else:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        work = comm.all_reduce(t, SUM, True) if kind == "async" else None
        with pytest.raises(KeyboardInterrupt):
            comm.all_reduce(t, SUM, False) if work is None else work.wait()
        timer.join()
        # The operation goes on without its caller and ends now that the other comes.
        comm.send(torch.ones(1), 1, False)
        if work is not None:
            work.wait()
            assert t[0] == 3
    check_sum(comm)
    check_sum(comm, 50_000)
    assert torch.equal(t, torch.full_like(t, 3.0))


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("count", [4, 100_000])
def test_ctrl_c_leaves_the_communicator_usable(ranks, count, kind):
    ranks(2).run(interrupted, count, kind)


def handled_signal(me):
    """A handler that returns does not disturb the call."""
    comm = me.comm()
    seen = []
    signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))
    if me.rank == 0:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2))
        timer.start()
        comm.recv(torch.empty(1), 1, True)
        check_sum(comm)
        timer.join()
        assert seen == [1]
    else:
        time.sleep(0.3)
        comm.send(torch.ones(1), 0, False)
        check_sum(comm)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_a_signal_with_a_handler(ranks):
    ranks(2).run(handled_signal)


def timeouts(me, kind, count):
    """Rank 2 does not come."""
    comm = me.comm(timeout=DEADLINE if kind == "comm" else None)
    if kind == "set":
        comm.set_timeout(DEADLINE)
    options = {"timeout": DEADLINE} if kind in ("call", "async") else {}
    if me.rank == 2:
        # Until the others have given up: its own call then tells what happened.
        while not os.path.exists(f"{me.folder}/late"):
            time.sleep(0.01)
    with pytest.raises(RuntimeError) as caught:
        comm.all_reduce(torch.ones(count), SUM, kind == "async", **options).wait()
    open(f"{me.folder}/late", "w").close()
    said = str(caught.value)
    assert "timed out after 1.000 s" in said, said
    assert "rank 2 had not called it" in said, said
    assert f"all_reduce of {count} float32" in said, said
    with pytest.raises(RuntimeError, match="rank 2 had not called it"):
        comm.barrier(False)
    check_sum(me.comm("after"))


@pytest.mark.parametrize("count", [4, 100_000])
@pytest.mark.parametrize("kind", ["comm", "call", "async", "set"])
def test_a_deadline_names_the_missing_rank(ranks, kind, count):
    ranks(3).run(timeouts, kind, count)


def receive_times_out(me):
    comm = me.comm()
    if me.rank == 0:
        for asynchronous in (False, True):
            with pytest.raises(RuntimeError, match="rank 1"):
                comm.recv(torch.ones(3), 1, asynchronous, None, DEADLINE).wait()
    check_sum(comm)
    check_sum(comm, 100_000)


def test_a_receive_that_times_out_fails_alone(ranks):
    ranks(2).run(receive_times_out)


def aborts(me, kind):
    comm = me.comm("aborted")
    assert comm.is_abort_supported()
    assert not comm.is_aborted()
    check_sum(comm)
    t = torch.ones(100_000)
    if me.rank == 0:
        if kind == "other thread":
            work = comm.all_reduce(t, SUM, True)
            threading.Timer(0.1, comm.abort).start()
            with pytest.raises(RuntimeError, match="aborted"):
                work.wait()
        comm.abort()
        comm.abort()
        assert comm.is_aborted()
    else:
        if kind == "other thread":
            # Never called: the others are still to learn of it.
            while not comm_is_broken(comm):
                pass
        with pytest.raises(RuntimeError, match="rank 0 aborted"):
            comm.all_reduce(t, SUM, False)
    with pytest.raises(RuntimeError, match="abort"):
        comm.barrier(False)
    if me.rank == 0:
        comm.finalize()
    check_sum(me.comm("after"))


def comm_is_broken(comm):
    try:
        comm.recv(torch.empty(1), 0, False, None, timedelta(seconds=0.05))
    except RuntimeError as error:
        return "aborted" in str(error)
    raise AssertionError("nothing was sent")


@pytest.mark.parametrize("kind", ["waiting peers", "other thread"])
@pytest.mark.parametrize("size", [2, 3])
def test_abort(ranks, kind, size):
    ranks(size).run(aborts, kind)


def many_in_flight(me):
    """Far more asynchronous operations than slots, then waited for backwards."""
    comm = me.comm()
    tensors = [torch.full((1 + i % 900,), me.rank + 1.0) for i in range(600)]
    works = [comm.all_reduce(t, SUM, True) for t in tensors]
    for work in reversed(works):
        work.wait()
    total = me.size * (me.size + 1) / 2
    assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_many_in_flight(ranks, size):
    ranks(size).run(many_in_flight)


def polled(me):
    """is_completed alone, without wait: the operation gets on by itself."""
    comm = me.comm()
    t = torch.full((100_000,), me.rank + 1.0)
    work = comm.all_reduce(t, SUM, True)
    deadline = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < deadline, "no progress without wait"
        time.sleep(0.001)
    assert t[0] == me.size * (me.size + 1) / 2


def test_an_operation_needs_no_wait(ranks):
    ranks(3).run(polled)
