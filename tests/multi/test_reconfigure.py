# SPDX-License-Identifier: BSD-3-Clause
"""api.md 9: Reconfigure: fresh, shrunk, grown and repaired memberships, with kills."""

import os
import re
import signal
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torchcomms
from multi.support.ranks import Pool

SUM = torchcomms.ReduceOp.SUM
LIMIT_S = 60
LONG = timedelta(seconds=50)
SHORT = timedelta(milliseconds=300)


def fresh_comm(me, name="flock", backend="ncclx", **options):
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(variable, None)
    comm = torchcomms.new_comm(
        backend, torch.device("cpu"), name, enable_reconfigure=True, **options
    )
    return me.keep(comm)


def exchange(me, comm, round_name):
    """Everybody's handle, by rank, as an application would pass them around."""
    store = me.store("handles")
    store.set(f"{round_name}/{me.rank}", comm.get_init_handle())
    return [store.get(f"{round_name}/{r}").decode() for r in range(me.size)]


def check(comm, rank, size):
    """Rank, size, and several collectives of several lengths."""
    assert (comm.get_rank(), comm.get_size()) == (rank, size)
    for count in (1, 1000, 200_000):
        t = torch.full((count,), float(rank + 1))
        comm.all_reduce(t, SUM, False)
        assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))
    parts = [torch.empty(2) for _ in range(size)]
    comm.all_gather(parts, torch.full((2,), float(rank)), True).wait()
    assert [p[0].item() for p in parts] == list(range(size))


def form(comm, me, uuid, handles, ranks):
    """The membership of these ranks of the pool, in this order."""
    chosen = [handles[r] for r in ranks]
    work = comm.reconfigure(uuid=uuid, init_handles=chosen, timeout=LONG)
    assert work.is_completed()
    work.wait()
    check(comm, ranks.index(me.rank), len(ranks))


def before(me):
    comm = fresh_comm(me, timeout=timedelta(seconds=7))
    handle = comm.get_init_handle()
    assert isinstance(handle, str)
    assert handle
    assert handle == comm.get_init_handle()
    assert not set(handle) & set(" \t\n,")
    assert handle != fresh_comm(me).get_init_handle()
    assert comm.get_name() == "flock"
    assert comm.get_backend() == "ncclx"
    assert comm.get_device() == torch.device("cpu")
    options = comm.get_options()
    assert options.enable_reconfigure
    assert options.timeout == timedelta(seconds=7)
    assert "flock" in repr(comm)
    assert comm.is_abort_supported()
    assert not comm.is_aborted()
    t = torch.ones(2)
    calls = [
        lambda: comm.all_reduce(t, SUM, False),
        lambda: comm.broadcast(t, 0, True),
        lambda: comm.all_gather([t], t, False),
        lambda: comm.send(t, 0, False),
        lambda: comm.recv(t, 0, False),
        lambda: comm.barrier(False),
        lambda: comm.split([0], "child"),
        lambda: comm.batch_op_create().send(t, 0),
        lambda: comm.batch_op_create().issue(False),
        comm.get_rank,
        comm.get_size,
        lambda: torchcomms._comms._BackendWrapper(comm),
    ]
    fired = []
    comm.register_pre_hook(lambda name, op_id, args: fired.append(name))
    comm.register_post_hook(lambda op_id, args: fired.append("post"))
    comm.register_abort_hook(lambda: fired.append("abort"))
    for call in calls:
        with pytest.raises(RuntimeError, match="not initialized"):
            call()
    assert not fired
    comm.finalize()
    assert fired == [torchcomms.OpName.finalize, "post"]
    with pytest.raises(RuntimeError, match="already finalized"):
        comm.finalize()
    with pytest.raises(RuntimeError, match="already finalized"):
        comm.reconfigure(0, [handle])


def test_without_ranks(ranks):
    ranks(1).run(before)


BAD = [
    ({"uuid": -1}, r"uuid must be in range \[0, 2\*\*64\), but got -1"),
    ({"uuid": 2**64}, r"uuid must be in range"),
    ({"init_handles": []}, "init_handles is empty"),
    ({"init_handles": ["mine", "mine"]}, r"init_handles\[0\] and init_handles\[1\]"),
    ({"init_handles": ["other"]}, "is not among the 1 init_handles"),
    ({"init_handles": ["mine", "nonsense"]}, r"init_handles\[1\] 'nonsense'"),
    ({"init_handles": ["mine", "a\0b"]}, r"init_handles\[1\] .* null character"),
]
WRONG = [{"uuid": "1"}, {"init_handles": "mine"}, {"init_handles": [1]}, {"hints": 3}]


def refusals(me):
    comm, other = fresh_comm(me), fresh_comm(me, "other")
    words = {"mine": comm.get_init_handle(), "other": other.get_init_handle()}
    comm.reconfigure(3, [words["mine"]])

    def call(change):
        arguments = {"uuid": 4, "init_handles": ["mine"]} | change
        if isinstance(arguments["init_handles"], list):
            given = arguments["init_handles"]
            arguments["init_handles"] = [words.get(h, h) for h in given]
        comm.reconfigure(**arguments)

    for change, text in BAD:
        with pytest.raises(RuntimeError, match=text):
            call(change)
        check(comm, 0, 1)
    for change in WRONG:
        with pytest.raises(TypeError, match=next(iter(change))):
            call(change)
        check(comm, 0, 1)
    with pytest.raises(RuntimeError, match="is at 3 and got 3"):
        call({"uuid": 3})
    check(comm, 0, 1)
    call({"uuid": 2**64 - 1})
    check(comm, 0, 1)


def test_a_bad_argument_changes_nothing(ranks):
    ranks(1).run(refusals)


def transitions(me):
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    everybody = list(range(me.size))
    last, middle = everybody[:-1], [r for r in everybody if r != 1]
    steps = [everybody, everybody, last, everybody, middle, everybody[::-1], [0]]
    for uuid, ranks in enumerate([*steps, everybody, [me.size - 1], everybody]):
        if me.rank in ranks:
            form(comm, me, uuid, handles, ranks)
    assert comm.get_init_handle() == handles[me.rank]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_transitions(ranks, size):
    ranks(size).run(transitions)


def grows(me):
    """Rank 0 stays, the others are fresh communicators each time."""
    comm = fresh_comm(me)
    for uuid in range(6):
        handles = exchange(me, comm, f"round{uuid}")
        form(comm, me, uuid, handles, list(range(me.size)))
        if me.rank != 0:
            comm.finalize()
            comm = fresh_comm(me)


def test_fresh_members_join_those_who_stay(ranks):
    ranks(3).run(grows)


def unordered(me):
    comm = fresh_comm(me)
    handles = exchange(me, comm, "set")
    comm.reconfigure(0, set(handles), LONG)
    check(comm, sorted(handles).index(handles[me.rank]), me.size)
    return comm.get_rank()


def test_a_set_is_ordered_alike_on_all(ranks):
    assert sorted(ranks(4).run(unordered)) == [0, 1, 2, 3]


def shut_out(me):
    """The last rank has an operation in flight that nobody will answer."""
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    form(comm, me, 0, handles, list(range(me.size)))
    if me.rank == me.size - 1:
        work = comm.recv(torch.empty(4), 0, True)
        comm.finalize()
        with pytest.raises(RuntimeError):
            work.wait()
        return
    form(comm, me, 1, handles, list(range(me.size - 1)))


def test_the_excluded_leaves_at_once(ranks):
    ranks(3).run(shut_out)


def in_flight(me):
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    everybody = list(range(me.size))
    form(comm, me, 0, handles, everybody)
    works = [comm.recv(torch.empty(4), (me.rank + 1) % me.size, True) for _ in range(5)]
    exchange(me, comm, "posted")
    form(comm, me, 9, handles, everybody)
    for work in works:
        with pytest.raises(RuntimeError, match=r"left it for membership 9|has left"):
            work.wait()
        assert not work.is_completed()
    check(comm, me.rank, me.size)


def test_what_was_in_flight_fails_and_says_why(ranks):
    ranks(3).run(in_flight)


def absent(me):
    """Rank 2 is not there: named at the deadline, left out, and it comes late."""
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    store = me.store("flags")
    if me.rank == 2:
        store.get("gone on")
        with pytest.raises(RuntimeError) as caught:
            comm.reconfigure(0, handles, LONG)
        assert "comes for membership 0" in str(caught.value)
        assert "this is membership 1" in str(caught.value)
        store.set("refused", "yes")
    else:
        with pytest.raises(RuntimeError) as caught:
            comm.reconfigure(0, handles, SHORT)
        # Rank 1 may be late itself.
        named = r"ranks? .*2 did not join .*within 0\.3 s"
        named = named if me.rank == 0 else rf"{named}|rank 0 did not finish"
        assert re.search(named, str(caught.value)), caught.value
        with pytest.raises(RuntimeError, match="not initialized"):
            comm.get_rank()
        store.set("gone on", "yes")
        if me.rank == 1:
            # Only so that the late one meets the second membership in the making.
            store.get("refused")
        form(comm, me, 1, handles, [0, 1])


def test_a_missing_member_is_named_and_refused_later(ranks):
    ranks(3).run(absent)


def aborts(me):
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    everybody = list(range(me.size))
    for uuid in range(3):
        form(comm, me, uuid, handles, everybody)
        assert not comm.is_aborted()
        comm.barrier(False)
        if me.rank == 0:
            comm.abort()
            comm.abort()
        with pytest.raises(RuntimeError, match="rank 0 aborted it"):
            comm.barrier(False)
        assert comm.is_aborted()
    comm.finalize()


def test_abort_is_repaired_by_reconfigure(ranks):
    ranks(3).run(aborts)


def timeout_never_kills(me):
    """api.md 8: with the abort flag on, a timeout raises, and can be repaired."""
    comm = fresh_comm(me, abort_process_on_timeout_or_error=True)
    handles = exchange(me, comm, "start")
    form(comm, me, 0, handles, [0, 1])
    store = me.store("flags")
    if me.rank == 0:
        comm.set_timeout(SHORT)
        with pytest.raises(RuntimeError, match="timed out .*rank 1 had not called it"):
            comm.all_reduce(torch.ones(3), SUM, False)
        store.set("timed out", "yes")
    else:
        store.get("timed out")
    assert comm.is_aborted()
    form(comm, me, 1, handles, [0, 1])


def test_a_timeout_can_be_repaired(ranks):
    ranks(2).run(timeout_never_kills)


class Alarm(Exception):
    pass


def raise_alarm(number, frame):
    raise Alarm


def interrupted(me):
    comm, absent = fresh_comm(me), fresh_comm(me)
    handles = [comm.get_init_handle(), absent.get_init_handle()]
    signal.signal(signal.SIGALRM, raise_alarm)
    for uuid, chosen in enumerate([handles, handles[::-1]]):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm):
            comm.reconfigure(uuid, chosen, LONG)
        with pytest.raises(RuntimeError, match="not initialized"):
            comm.get_size()
    form(comm, me, 2, handles, [0])


def test_a_signal_handler_may_end_it(ranks):
    ranks(1).run(interrupted)


def hints_and_timeout(me):
    comm = fresh_comm(me, hints={"a": "1"})
    handle = comm.get_init_handle()
    comm.reconfigure(0, [handle])
    assert comm.get_options().hints == {"a": "1"}
    comm.set_hints({"b": "2", "c": "3"})
    assert comm.get_options().hints == {"b": "2", "c": "3"}
    comm.reconfigure(1, [handle], None, {"d": "4"})
    assert comm.get_options().hints == {"d": "4"}
    comm.set_hints({})
    assert comm.get_options().hints == {}
    comm.set_timeout(timedelta(seconds=3))
    assert comm.get_options().timeout == timedelta(seconds=3)
    with pytest.raises(TypeError):
        comm.set_hints(3)


def test_hints_and_timeout(ranks):
    ranks(1).run(hints_and_timeout)


def ordinary(me):
    """A communicator made in the usual way has a handle, and can be reconfigured."""
    comm = me.comm()
    check(comm, me.rank, me.size)
    handles = exchange(me, comm, "start")
    form(comm, me, 0, handles, list(range(me.size))[::-1])
    child = me.keep(comm.split(list(range(me.size)), "child"))
    check(child, comm.get_rank(), me.size)
    form(comm, me, 1, handles, list(range(me.size)))
    check(child, me.size - 1 - me.rank, me.size)


def test_an_ordinary_communicator_and_its_children(ranks):
    ranks(3).run(ordinary)


def fake(me):
    comm = fresh_comm(me, backend="fake")
    with pytest.raises(RuntimeError, match="not initialized"):
        comm.barrier(False)
    assert comm.get_init_handle()
    comm.reconfigure(0, [comm.get_init_handle()]).wait()
    assert (comm.get_rank(), comm.get_size()) == (0, 1)
    comm.barrier(False)


def test_fake(ranks):
    ranks(1).run(fake)


# With real deaths -------------------------------------------------------------------


def survive(me, victim, busy):
    """The victim is killed inside a membership; the others go on without it."""
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    form(comm, me, 0, handles, list(range(me.size)))
    comm.barrier(False)
    if me.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"rank {victim} \(pid \d+\) died"):
        comm.all_reduce(torch.ones(100_000), SUM, busy).wait()
    assert comm.is_aborted()
    left = [r for r in range(me.size) if r != victim]
    form(comm, me, 1, handles, left)
    if len(left) > 2:
        form(comm, me, 2, handles, left[1:]) if me.rank != left[0] else comm.finalize()
    return True


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize(("size", "victim"), [(3, 0), (3, 1), (3, 2), (4, 3), (4, 1)])
def test_a_killed_member_is_left_out(zygote, size, victim, busy):
    pool = Pool(zygote, size)
    pool.start(survive, victim, busy)
    for rank, outcome in enumerate(pool.finish(LIMIT_S)):
        if rank == victim:
            assert outcome.exit == -signal.SIGKILL
        else:
            assert outcome.value, outcome.error
    pool.failed = False
    pool.close()


def gone_before(me):
    """The last rank dies before it comes: known long before the deadline of 50 s."""
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    if me.rank == me.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="is gone|but this is membership 1"):
        comm.reconfigure(0, handles, timedelta(hours=1))
    form(comm, me, 1, handles, list(range(me.size - 1)))
    return True


def test_a_member_that_died_before_is_named_at_once(zygote):
    pool = Pool(zygote, 3)
    pool.start(gone_before)
    *outcomes, victim = pool.finish(LIMIT_S)
    assert victim.exit == -signal.SIGKILL
    for outcome in outcomes:
        assert outcome.value, outcome.error
    pool.failed = False
    pool.close()


def leave_the_dead(me):
    """api.md 23: finalize as abort, also where it never was configured."""
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    form(comm, me, 0, handles, [0, 1])
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = comm.recv(torch.empty(3), 1, True)
    comm.finalize()
    with pytest.raises(RuntimeError):
        work.wait()
    never = fresh_comm(me, "never")
    never.get_init_handle()
    never.finalize()
    return True


def test_finalize_with_dead_peers(zygote):
    pool = Pool(zygote, 2)
    pool.start(leave_the_dead)
    survivor, victim = pool.finish(LIMIT_S)
    assert victim.exit == -signal.SIGKILL
    assert survivor.value, survivor.error
    pool.failed = False
    pool.close()


# Nothing grows ----------------------------------------------------------------------


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident_kib():
    with open("/proc/self/smaps_rollup") as file:
        return int(next(line for line in file if line.startswith("Pss:")).split()[1])


def many_times(me):
    comm = fresh_comm(me)
    handles = exchange(me, comm, "start")
    seen = []
    for uuid in range(200):
        comm.reconfigure(uuid, handles, LONG)
        t = torch.ones(1000)
        comm.all_reduce(t, SUM, False)
        assert t[0] == me.size
        seen.append(descriptors())
    assert seen[20] == seen[-1]
    return resident_kib()


def test_nothing_grows_over_200_reconfigures(ranks):
    pool = ranks(3)
    pool.run(many_times)
    first = pool.run(many_times)
    second = pool.run(many_times)
    # A forgotten membership would leave a mapped segment of megabytes each time.
    assert all(b < a + 16_000 for a, b in zip(first, second, strict=True))


# Under torch.distributed ------------------------------------------------------------


def as_torchft(me):
    """api.md 23: the pattern of torchft: one communicator, a wrapper a membership."""
    comm = fresh_comm(me)
    wrapper = None
    for uuid, ranks in enumerate([[0, 1, 2], [0, 1], [2, 0, 1]]):
        handles = exchange(me, comm, f"round{uuid}")
        if me.rank not in ranks:
            continue
        comm.reconfigure(
            uuid=uuid, init_handles=[handles[r] for r in ranks], timeout=LONG
        ).wait()
        if wrapper is not None and wrapper.size() != len(ranks):
            with pytest.raises(RuntimeError, match="was reconfigured to rank"):
                wrapper.allreduce([torch.ones(1)]).wait()
        wrapper = torchcomms._comms._BackendWrapper(comm)
        assert wrapper.get_comm() is comm
        assert (wrapper.rank(), wrapper.size()) == (ranks.index(me.rank), len(ranks))
        t = torch.full((5,), float(wrapper.rank() + 1))
        wrapper.allreduce([t]).wait()
        assert t[0] == len(ranks) * (len(ranks) + 1) / 2
        parts = [torch.empty(2) for _ in ranks]
        wrapper.allgather([parts], [torch.full((2,), float(me.rank))]).wait()
        assert [p[0].item() for p in parts] == ranks
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        wrapper.allreduce([t], options).wait()
    wrapper.shutdown()


def test_a_wrapper_for_each_membership(ranks):
    ranks(3).run(as_torchft)
