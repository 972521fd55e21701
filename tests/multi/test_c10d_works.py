# SPDX-License-Identifier: BSD-3-Clause
"""Works of the c10d door: futures, finite waits, errors, timeouts."""

import os
import signal
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import LIMIT, world


def futures(me):
    with world(me):
        tensor = torch.full((1000,), float(me.rank + 1))
        work = dist.all_reduce(tensor, async_op=True)
        future = work.get_future().then(lambda f: f.value()[0].sum().item())
        total = me.size * (me.size + 1) / 2
        # Nobody waits for the work.
        assert future.wait() == 1000 * total
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert work.result()[0] is not None
        again = work.get_future()
        assert again.done()
        large = torch.ones(2_000_000)
        chain = [dist.all_reduce(large, async_op=True) for _ in range(4)]
        last = [w.get_future() for w in chain]
        torch.futures.wait_all(last)
        assert large[0] == float(me.size) ** 4
        done = torch.futures.Future()
        dist.barrier(async_op=True).get_future().then(lambda f: done.set_result(1))
        assert done.wait() == 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_futures(ranks, size):
    ranks(size).run(futures)


def finite_waits(me):
    with world(me):
        store = me.store("signals")
        tensor = torch.ones(3)
        if me.rank == 0:
            work = dist.all_reduce(tensor, async_op=True)
            assert not work.is_completed()
            with pytest.raises(RuntimeError, match="Operation timed out"):
                work.wait(timedelta(milliseconds=50))
            assert not work.is_completed()
            store.set("go", "on")
            work.wait()
        else:
            store.wait(["go"])
            dist.all_reduce(tensor)
        return tensor.tolist()


def test_a_finite_wait_leaves_the_operation_alone(ranks):
    assert ranks(2).run(finite_waits) == [[2.0] * 3] * 2


def timeout(me):
    with world(me, timeout=timedelta(seconds=0.5)):
        store = me.store("signals")
        if me.rank == 1:
            store.wait(["over"])
            return ""
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        with pytest.raises(dist.DistBackendError) as caught:
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
        assert "timed out" in str(work.exception())
        with pytest.raises(RuntimeError, match="timed out"):
            future.wait()
        store.set("over", "yes")
        return str(caught.value)


def test_a_timeout_names_who_is_missing(fresh):
    text = fresh(2).run(timeout)[0]
    assert "timed out after 0.500 s" in text
    assert "rank 1 had not called it" in text


def left(me):
    with world(me):
        store = me.store("signals")
        if me.rank == 0:
            store.wait(["left"])
            with pytest.raises(dist.DistBackendError) as caught:
                dist.all_reduce(torch.ones(3))
            return str(caught.value)
    store.set("left", "yes")
    return ""


def test_a_rank_that_destroyed_the_group_is_named(fresh):
    text = fresh(2).run(left)[0]
    assert "rank 1 (pid" in text
    assert "has left the communicator" in text


def send_timeout(me):
    with world(me, timeout=timedelta(seconds=0.3)):
        text = ""
        if me.rank == 0:
            with pytest.raises(dist.DistBackendError) as caught:
                dist.recv(torch.zeros(3), 1)
            text = str(caught.value)
            me.store("signals").set("late", "yes")
        else:
            me.store("signals").wait(["late"])
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor[0] == 2
        return text


def test_a_recv_that_times_out_leaves_the_group_whole(ranks):
    assert "recv from rank 1" in ranks(2).run(send_timeout)[0]


def set_timeout(me):
    with world(me) as group:
        backend = group._get_backend(torch.device("cpu"))
        assert backend.options._timeout == timedelta(seconds=60)
        backend._set_default_timeout(timedelta(seconds=0.2))
        if me.rank == 0:
            with pytest.raises(dist.DistBackendError, match="0.200 s"):
                dist.recv(torch.zeros(1), 1)
        backend._set_default_timeout(LIMIT)
        before = backend._get_sequence_number_for_group()
        dist.broadcast_object_list([1])
        return backend._get_sequence_number_for_group() - before


def test_timeout_set_later_and_sequence_numbers(ranks):
    a, b = ranks(2).run(set_timeout)
    assert a == b > 0


def dropped(me):
    with world(me):
        tensor = torch.ones(100_000)
        for _ in range(20):
            dist.all_reduce(torch.ones(100_000), async_op=True)
        dist.all_reduce(tensor)
        return tensor[0].item()


def test_works_may_be_dropped(ranks):
    assert ranks(3).run(dropped) == [3.0] * 3


def interrupted(me):
    with world(me):
        store = me.store("signals")
        tensor = torch.ones(3)
        if me.rank == 0:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                dist.all_reduce(tensor)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                dist.recv(torch.zeros(1), 1)
            store.set("go", "on")
        else:
            store.wait(["go"])
            dist.all_reduce(tensor)
            dist.send(torch.ones(1), 0)
        # Nobody has heard of it but the rank that was called away.
        dist.barrier()
        return tensor.tolist()


def test_interrupts_leave_the_group_whole(ranks):
    assert ranks(2).run(interrupted) == [[2.0] * 3] * 2


def profiled(me):
    with world(me):
        tensor = torch.ones(3, 2)
        with torch.profiler.profile(record_shapes=True) as profiler:
            dist.all_reduce(tensor)
            work = dist.broadcast(tensor, 0, async_op=True)
            work.wait()
        events = {e.name: e for e in profiler.events()}
        assert events["torchcomms:all_reduce"].input_shapes == [[3, 2]]
        assert events["torchcomms:broadcast"].is_async
        return tensor[0, 0].item()


def test_profiler_events_carry_the_backends_name(ranks):
    assert ranks(2).run(profiled) == [2.0, 2.0]
