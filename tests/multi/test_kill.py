# SPDX-License-Identifier: BSD-3-Clause
"""One rank is killed at a random moment of a storm of collectives, again and again."""

import pathlib
import random
import re
import signal
import time
from datetime import timedelta

import pytest
import torch

import torchcomms
from multi.support.ranks import Pool, wait

ROUNDS = 100
# The storm is endless: a rank that learns nothing of the death runs into this.
LIMIT_S = 30
# Calls that may still succeed after the first error: none, a communicator stays broken.
LENGTHS = [0, 1, 12, 700, 20_000, 200_000]


def operations(comm, rank, size, generator):
    """Mixed collectives, the same sequence on every rank."""
    op = torchcomms.ReduceOp.SUM
    count = generator.choice(LENGTHS)
    root = generator.randrange(size)
    asynchronous = generator.random() < 0.5
    one, whole = torch.ones(count), torch.ones(count * size)
    parts = list(torch.split(torch.ones(count * size), count)) if count else None
    parts = parts or [torch.ones(0) for _ in range(size)]
    calls = [
        ("all_reduce", one, op),
        ("reduce", one, root, op),
        ("broadcast", one, root),
        ("all_gather", parts, one),
        ("all_gather_v", parts, one),
        ("all_gather_single", whole, one),
        ("reduce_scatter", one, parts, op),
        ("reduce_scatter_v", one, parts, op),
        ("reduce_scatter_single", one, whole, op),
        ("all_to_all", parts, [torch.ones(count) for _ in range(size)]),
        ("all_to_all_single", whole, torch.ones(count * size)),
        (
            "all_to_all_v_single",
            *(whole, torch.ones(count * size), [count] * size, [count] * size),
        ),
        ("barrier",),
        ("scatter", one, parts if rank == root else [], root),
        ("gather", parts if rank == root else [], one, root),
        ("gather_single", whole, one, root),
    ]
    name, *arguments = generator.choice(calls)
    return getattr(comm, name)(*arguments, asynchronous)


def storm(me, seed):
    """Never ends by itself. Says when it has begun, then what ended it."""
    comm = me.comm()
    generator = random.Random(seed)
    works = []
    comm.barrier(False)
    open(f"{me.folder}/begun{me.rank}", "w").close()
    try:
        while True:
            works.append(operations(comm, me.rank, me.size, generator))
            if len(works) > 4:
                works.pop(0).wait()
    except RuntimeError as error:
        first = str(error)
    later = []
    for work in works:
        try:
            work.wait()
        except RuntimeError as error:
            later.append(str(error))
    with pytest.raises(RuntimeError) as again:
        comm.barrier(False)
    return first, later, str(again.value)


def await_beginning(pool):
    """Until every rank is in the storm or has ended."""
    folder = pool.call_folder
    while not all((folder / f"begun{w.rank}").exists() for w in pool.workers):
        assert not wait([w.pidfd for w in pool.workers], 0.001), "died at the start"


def check_survivor(outcome, victim, pid):
    assert outcome.ok, outcome.error
    first, later, again = outcome.value
    named = rf"rank {victim} \(pid {pid}\) died"
    for text in [first, *later, again]:
        assert re.search(named, text), text


def one_round(zygote, number):
    generator = random.Random(number)
    size = generator.choice([2, 3, 4])
    victim = generator.randrange(size)
    pool = Pool(zygote, size)
    try:
        pool.start(storm, number)
        await_beginning(pool)
        time.sleep(generator.random() * 0.03)
        pool.workers[victim].kill(signal.SIGKILL)
        outcomes = pool.finish(LIMIT_S)
        assert outcomes[victim].exit == -signal.SIGKILL
        for rank, outcome in enumerate(outcomes):
            if rank != victim:
                check_survivor(outcome, victim, pool.workers[victim].pid)
    except AssertionError as cause:
        raise AssertionError(
            f"round {number}, rank {victim} of {size} killed\n{cause}"
        ) from cause
    finally:
        pool.failed = False
        pool.close()


@pytest.mark.parametrize("tens", range(ROUNDS // 10))
def test_a_killed_rank_is_named_by_the_others(zygote, tens):
    for number in range(10 * tens, 10 * tens + 10):
        one_round(zygote, number)


def idle_call(comm, me, kind):
    one = torch.ones(3)
    if kind == "sync":
        comm.all_reduce(one, torchcomms.ReduceOp.SUM, False)
    elif kind == "async":
        comm.all_reduce(torch.ones(100_000), torchcomms.ReduceOp.SUM, True).wait()
    elif kind == "recv":
        comm.recv(one, me.size - 1, False)
    else:
        comm.split([me.rank], "child")


def idle_victim(me, kind):
    """The others are long asleep in their call when the victim dies."""
    comm = me.comm()
    comm.barrier(False)
    open(f"{me.folder}/begun{me.rank}", "w").close()
    if me.rank == me.size - 1:
        signal.pause()
    with pytest.raises(RuntimeError) as caught:
        idle_call(comm, me, kind)
    return str(caught.value), [], str(caught.value)


def sleeps_of(worker):
    text = pathlib.Path(f"/proc/{worker.pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])


def await_sleeps(workers, number):
    """Until each has gone to sleep that many times more."""
    for worker in workers:
        target = sleeps_of(worker) + number
        while sleeps_of(worker) < target:
            assert not wait([worker.pidfd], 0.005), "died"


@pytest.mark.parametrize("kind", ["sync", "async", "recv", "split"])
def test_a_rank_that_dies_outside_a_call_is_named(zygote, kind):
    pool = Pool(zygote, 3)
    pool.start(idle_victim, kind)
    await_beginning(pool)
    await_sleeps(pool.workers[:2], 3)
    pool.workers[2].kill()
    *outcomes, victim = pool.finish(LIMIT_S)
    assert victim.exit == -signal.SIGKILL
    for outcome in outcomes:
        check_survivor(outcome, 2, pool.workers[2].pid)
    pool.failed = False
    pool.close()


def new_comm_fails(me):
    if me.rank == 1:
        signal.raise_signal(signal.SIGKILL)
    with pytest.raises(RuntimeError) as caught:
        me.comm(timeout=timedelta(seconds=2))
    return str(caught.value)


def test_a_rank_that_dies_before_new_comm_is_reported_as_missing(zygote):
    pool = Pool(zygote, 3)
    pool.start(new_comm_fails)
    outcomes = pool.finish(LIMIT_S)
    pool.failed = False
    pool.close()
    assert outcomes[1].exit == -signal.SIGKILL
    assert "rank 1" in outcomes[0].value, outcomes[0].value
