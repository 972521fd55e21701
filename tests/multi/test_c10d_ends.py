# SPDX-License-Identifier: BSD-3-Clause
"""Ends of the c10d door, by name and by the switch: groups in every order, exceptions
in the middle, many lives, forks, and processes that end without an end."""

import gc
import itertools
import os
import pathlib
import re
import signal
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from multi.support import leftovers
from multi.support.c10d import DOORS
from multi.support.ranks import wait
from torchcomms.hooks import FlightRecorderHook

MIB = 1 << 20
LIMIT_S = 60


def sum_in(group, me):
    tensor = torch.full((3,), float(me.rank + 1))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


# Groups -------------------------------------------------------------------------------


def every_order(me, door):
    """The groups that are left work until they, too, are destroyed."""
    for number, order in enumerate(itertools.permutations(range(3))):
        with DOORS[door](me, name=f"order{number}"):
            members = [[0, 1], [1, 2], [0, 1, 2]]
            groups = [dist.new_group(m) for m in members]
            for gone in range(3):
                for i in order[gone:]:
                    if me.rank in members[i]:
                        wanted = sum(r + 1 for r in members[i])
                        assert sum_in(groups[i], me) == wanted, (order, i)
                if me.rank in members[order[gone]]:
                    dist.destroy_process_group(groups[order[gone]])
            assert sum_in(None, me) == 6


def world_first(me, door):
    """The world takes its groups along; what holds them still says so."""
    with DOORS[door](me):
        pair = dist.new_group([0, 1, 2])
        backend = pair._get_backend(torch.device("cpu"))
        assert sum_in(pair, me) == 6
        dist.destroy_process_group()
        with pytest.raises(RuntimeError, match="already finalized"):
            backend.allreduce([torch.ones(1)])
        backend.shutdown()
        del backend, pair
        gc.collect()
    with DOORS[door](me, name="again"):
        assert sum_in(None, me) == 6


def dropped(me, door):
    """A group that nobody destroys goes with the world."""
    with DOORS[door](me):
        for _ in range(3):
            assert sum_in(dist.new_group([0, 1, 2]), me) == 6
            gc.collect()
        work = dist.all_reduce(torch.ones(100_000), async_op=True)
        del work
        assert sum_in(None, me) == 6


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("function", [every_order, world_first, dropped])
def test_groups_end_in_any_order(ranks, function, door):
    ranks(3).run(function, door)


# Exceptions ---------------------------------------------------------------------------


class Mistake(Exception):
    """Of the user's program."""


def use_mistaken(me, door, tensor):
    with DOORS[door](me, name="first"):
        assert sum_in(None, me) == 6
        if me.rank == 1:
            dist.all_reduce(tensor, async_op=True).get_future()
            raise Mistake
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        dist.barrier()
        dist.barrier()


def mistake(me, door, count):
    """Rank 1 raises with works in flight; the others hear of it, all go on later."""
    with pytest.raises((Mistake, RuntimeError)) as caught:
        use_mistaken(me, door, torch.ones(count))
    assert not dist.is_initialized()
    with DOORS[door](me, name="second"):
        assert sum_in(None, me) == 6
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("count", [3, 1_000_000])
def test_an_exception_in_the_middle(ranks, door, count):
    first, second, third = ranks(3).run(mistake, door, count)
    assert second == "Mistake: "
    for text in (first, third):
        assert re.match("DistBackendError: .*rank 1", text), text


def refused(me, door):
    """A call that is refused leaves nothing behind it."""
    with DOORS[door](me):
        for _ in range(3):
            with pytest.raises(ValueError, match="same dtype"):
                dist.all_gather_into_tensor(
                    torch.ones(3 * me.size), torch.ones(3).int()
                )
            with pytest.raises(ValueError, match="expected 2 x 3"):
                dist.reduce_scatter_tensor(torch.ones(3), torch.ones(5))
        return sum_in(None, me)


@pytest.mark.parametrize("door", DOORS)
def test_a_refused_call_leaves_the_group_whole(ranks, door):
    assert ranks(2).run(refused, door) == [3, 3]


# Fifty lives --------------------------------------------------------------------------


def children_of_this():
    task = f"/proc/self/task/{os.getpid()}/children"
    return pathlib.Path(task).read_text().split()


def private_bytes():
    """Memory of this process alone, which the segments are not."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10


def objects_of_torch():
    """torch itself leaves a closure for each init_process_group: not counted."""
    kinds = [type(o).__module__ for o in gc.get_objects()]
    return sum(isinstance(k, str) and k.startswith("torch") for k in kinds)


def footprint():
    # torch registers the recorder by the switch; it keeps its last 2000 operations.
    FlightRecorderHook().reset()
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": pathlib.Path("/proc/self/maps").read_text().count("\n"),
        "threads": len(os.listdir("/proc/self/task")),
        "processes": len(children_of_this()),
        "objects": objects_of_torch(),
        "memory": private_bytes(),
    }


def one_life(me, door, number):
    with DOORS[door](me, name=f"life{number}"):
        assert sum_in(None, me) == 3
        tensor = torch.ones(50_000)
        dist.all_reduce(tensor, async_op=True).get_future().wait()
        pair = dist.new_group([0, 1])
        assert sum_in(pair, me) == 3
        if number % 2:
            dist.destroy_process_group(pair)


def lives(me, door):
    for number in range(20):
        one_life(me, door, number)
    before = footprint()
    for number in range(20, 70):
        one_life(me, door, number)
    return before, footprint()


@pytest.mark.parametrize("door", DOORS)
def test_fifty_lives_leave_nothing(fresh, door):
    for before, after in fresh(2).run(lives, door, limit_s=240):
        for exact in ("descriptors", "threads", "processes", "objects"):
            assert after[exact] == before[exact], exact
        # Room for what others cache; a leak is one a life, fifty.
        assert after["mappings"] <= before["mappings"] + 25
        assert after["memory"] <= before["memory"] + 2 * MIB


# Forks --------------------------------------------------------------------------------


def in_child(function):
    """Runs it in a fork and returns what it returned, or its exception, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            text = str(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def fork(me, door):
    with DOORS[door](me) as group:
        assert sum_in(None, me) == 3
        tensor = torch.ones(4)
        pending = group._get_backend(torch.device("cpu")).recv([tensor], 1 - me.rank, 0)
        future = pending.get_future()
        for call in (
            lambda: dist.all_reduce(tensor),
            lambda: dist.all_reduce(tensor, async_op=True),
            lambda: dist.barrier(),
            lambda: dist.send(tensor, 1 - me.rank),
            lambda: group.monitored_barrier(),
            lambda: pending.wait(),
        ):
            said = in_child(call)
            assert re.match(".*Error: .*fork", said), said
        # Those that only ask are answered.
        assert in_child(lambda: (dist.get_rank(), dist.get_world_size())) == str(
            (me.rank, me.size)
        )
        assert not future.done()
        dist.barrier()
        dist.send(torch.full((4,), 7.0), 1 - me.rank)
        pending.wait()
        assert future.done()
        assert tensor.tolist() == [7.0] * 4
        assert sum_in(None, me) == 3


@pytest.mark.parametrize("door", DOORS)
def test_a_forked_child_is_refused_and_harms_nothing(ranks, door):
    ranks(2).run(fork, door)


def own_world():
    """What a child does that wants groups of its own."""
    dist.destroy_process_group()
    assert not dist.is_initialized()
    dist.init_process_group("torchcomms", rank=0, world_size=1, store=dist.HashStore())
    tensor = torch.full((3,), 5.0)
    dist.all_reduce(tensor, async_op=True).get_future().wait()
    dist.destroy_process_group()
    return tensor.tolist()


def fork_and_begin_anew(me):
    with DOORS["name"](me):
        assert sum_in(None, me) == 3
        dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
        assert in_child(own_world) == "[5.0, 5.0, 5.0]"
        assert sum_in(None, me) == 3


def test_a_forked_child_destroys_and_begins_anew(ranks):
    ranks(2).run(fork_and_begin_anew)


# Ends without an end ------------------------------------------------------------------


held = []


def join(me, door, in_flight):
    held.append(DOORS[door](me))
    held[0].__enter__()
    held.append(dist.new_group([0, 1]))
    assert sum_in(held[1], me) == 3
    if in_flight and me.rank == 0:
        held.append(dist.all_reduce(torch.ones(5), async_op=True))
        held.append(held[-1].get_future())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in-flight"])
def test_exit_without_destroy(fresh, door, in_flight):
    pool = fresh(2, whole_exit=True)
    pool.run(join, door, in_flight)
    pool.close()
    assert [w.status for w in pool.workers] == [0, 0]


def leave(me, door, how):
    """Rank 1 ends in the middle, rank 0 needs it."""
    join(me, door, False)
    if me.rank == 1 and how == "_exit":
        os._exit(7)
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", ["_exit", "SIGTERM"])
def test_a_process_that_just_ends(fresh, zygote, ranks, door, how):
    before = leftovers.shm_files()
    pool = fresh(2)
    pool.start(wait_for_the_end if how == "SIGTERM" else leave, door, how)
    if how == "SIGTERM":
        path = pool.call_folder / "ready"
        while not path.exists():
            assert wait([pool.workers[1].channel], 0.01) == []
        pool.workers[1].kill(signal.SIGTERM)
    survivor, gone = pool.finish(LIMIT_S)
    assert survivor.ok, survivor.error
    assert re.search("rank 1 .*(died|dead|gone)", survivor.value), survivor.value
    assert gone.exit == (7 if how == "_exit" else -signal.SIGTERM)
    pool.close()
    expected = {zygote.pid} | ranks.pids()
    assert leftovers.find_lasting(zygote.session, expected, before) == []


def wait_for_the_end(me, door, how):
    """As `leave`, where rank 1 is in a call that waits for rank 0's send."""
    join(me, door, False)
    if me.rank == 1:
        pathlib.Path(me.folder, "ready").touch()
        dist.recv(torch.ones(3), 0)
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(3))
    return str(caught.value)


def broken(me, door):
    """A group that broke is destroyed like any other, and torch forgets it."""
    with DOORS[door](me, name="first"):
        pair = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
        if me.rank == 0:
            with pytest.raises(dist.DistBackendError, match="timed out"):
                dist.barrier(group=pair)
        dist.barrier()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.destroy_process_group()
        assert not dist.is_initialized()
    with DOORS[door](me, name="second"):
        assert sum_in(None, me) == 3
    return [str(w.message) for w in caught]


def test_a_broken_group_by_name_is_destroyed(ranks):
    ranks(2).run(broken, "name")


def test_a_broken_group_by_the_switch_is_destroyed_with_a_warning(ranks):
    for texts in ranks(2).run(broken, "switch"):
        assert any("timed out after 0.500 s" in text for text in texts), texts
