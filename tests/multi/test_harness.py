# SPDX-License-Identifier: BSD-3-Clause
"""The harness reports what goes wrong, so that the other tests can fail."""

import os
import signal
import socket

import pytest
import torch

import torchcomms
from multi.support import leftovers
from multi.support.ranks import RanksFailed


def sum_of_ranks(me):
    comm = me.comm()
    tensor = torch.full((4,), float(me.rank + 1))
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    return tensor.tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_values_come_back_in_rank_order(ranks, size):
    total = size * (size + 1) / 2
    assert ranks(size).run(sum_of_ranks) == [[total] * 4] * size


def fail_on_one(me):
    comm = me.comm()
    comm.barrier(False)
    print(f"rank {me.rank} was here")
    if me.rank == 1:
        raise ValueError("on purpose")
    comm.barrier(False)


def test_a_failing_rank_ends_the_others_and_all_output_is_shown(fresh):
    pool = fresh(3)
    with pytest.raises(RanksFailed) as caught:
        pool.run(fail_on_one)
    text = str(caught.value)
    assert "ValueError: on purpose" in text
    for rank in range(3):
        assert f"rank {rank} was here" in text


def die(me):
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_killed_rank_is_reported(fresh):
    pool = fresh(2)
    pool.start(die)
    alive, killed = pool.finish()
    assert alive.value == "alive"
    assert killed.exit == -signal.SIGKILL


def hang(me):
    print("before the endless wait")
    signal.pause()


def test_a_hang_is_cut_and_shows_the_stacks(fresh):
    with pytest.raises(RanksFailed, match="(?s)before the endless wait.*in hang"):
        fresh(2).run(hang, limit_s=2)


def test_a_pool_with_a_failed_call_is_replaced(ranks):
    with pytest.raises(RanksFailed):
        ranks(2).run(fail_on_one)
    assert ranks(2).run(sum_of_ranks) == [[3.0] * 4] * 2


def test_what_is_left_behind_is_found(zygote, ranks, fresh):
    before = leftovers.shm_files()
    expected = {zygote.pid} | ranks.pids()
    name = f"\0torchcomms-{zygote.session}"
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind(name)
        # Held by this process, which is no rank of the session: not a rank's.
        assert leftovers.find(zygote.session, expected, before) == []
    pool = fresh(1)
    problems = leftovers.find(zygote.session, expected, before)
    assert [str(pool.workers[0].pid) in p for p in problems] == [True]
    assert (
        leftovers.find(zygote.session, expected | {pool.workers[0].pid}, before) == []
    )
