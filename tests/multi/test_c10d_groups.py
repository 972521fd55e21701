# SPDX-License-Identifier: BSD-3-Clause
"""Groups of the c10d door: subgroups, ends in every order, cycles, forks."""

import os

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import world


def sum_in(group, me):
    tensor = torch.full((3,), float(me.rank + 1))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def subgroups(me):
    with world(me):
        low = dist.new_group([0, 1])
        high = dist.new_group(list(range(1, me.size)), backend="torchcomms")
        everyone = dist.new_group(backend="cpu:torchcomms")
        mixed = dist.new_group(backend="ncclx")
        found = [sum_in(g, me) for g in (everyone, mixed)]
        if me.rank in (0, 1):
            found.append(sum_in(low, me))
        if me.rank >= 1:
            found.append(sum_in(high, me))
        if me.rank in (0, 1):
            dist.destroy_process_group(low)
        found.append(sum_in(None, me))
        return found


def test_subgroups_and_their_end_before_the_world(ranks):
    assert ranks(3).run(subgroups) == [[6, 6, 3, 6], [6, 6, 3, 5, 6], [6, 6, 5, 6]]


def names(me):
    with world(me, backend="cpu:torchcomms") as group:
        backend = group._get_backend(torch.device("cpu"))
        assert backend.name() == "torchcomms"
        assert backend.supports_coalescing
        assert (backend.rank(), backend.size()) == (me.rank, me.size)
        comm = backend.get_comm()
        assert comm is backend.get_comm()
        assert comm.get_name() == group.group_name
        text = repr(comm)
        del comm
        assert repr(backend.get_comm()) == text
        return sum_in(None, me)


def test_names_and_the_communicator_behind(ranks):
    assert ranks(2).run(names) == [3, 3]


def objects(me):
    with world(me):
        found = [None] * me.size
        dist.all_gather_object(found, {"rank": me.rank, "text": "x" * me.rank})
        assert [f["rank"] for f in found] == list(range(me.size))
        shared = [me.rank, "root"] if me.rank == 1 else [None, None]
        dist.broadcast_object_list(shared, src=1)
        assert shared == [1, "root"]
        output = [None]
        dist.scatter_object_list(output, [str(r) for r in range(me.size)], src=0)
        assert output == [str(me.rank)]
        gathered = [None] * me.size if me.rank == 0 else None
        dist.gather_object(me.rank, gathered, dst=0)
        if me.rank == 0:
            assert gathered == list(range(me.size))
        if me.rank == 0:
            dist.send_object_list(["hello", 3], dst=1)
        elif me.rank == 1:
            received = [None, None]
            dist.recv_object_list(received, src=0)
            assert received == ["hello", 3]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_object_collectives(ranks, size):
    ranks(size).run(objects)


def cycles(me):
    for i in range(50):
        with world(me, name=f"cycle{i % 2}"):
            assert sum_in(None, me) == 3
    assert len(os.listdir("/proc/self/fd")) < 100
    tasks = len(os.listdir("/proc/self/task"))
    with world(me):
        dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
        more = len(os.listdir("/proc/self/task"))
    return tasks, more


def test_fifty_cycles_leave_nothing(fresh):
    for tasks, more in fresh(2).run(cycles, limit_s=120):
        # The engine's thread, and one that completes futures.
        assert more - tasks <= 1


def leave(me, in_flight):
    import torchcomms

    torchcomms.register_c10d()
    dist.init_process_group(
        "torchcomms", rank=me.rank, world_size=me.size, store=me.store()
    )
    dist.barrier()
    if in_flight and me.rank == 0:
        work = dist.all_reduce(torch.ones(5), async_op=True)
        work.get_future()
    return True


@pytest.mark.parametrize("in_flight", [False, True])
def test_exit_without_destroy(fresh, in_flight):
    pool = fresh(2, whole_exit=True)
    assert pool.run(leave, in_flight) == [True, True]


def fork(me):
    with world(me):
        assert sum_in(None, me) == 3
        pid = os.fork()
        if pid == 0:
            text = ""
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                text = str(error)
            os._exit(0 if "forked child" in text else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sum_in(None, me) == 3


def test_a_forked_child_is_refused_and_harms_nothing(ranks):
    ranks(2).run(fork)
