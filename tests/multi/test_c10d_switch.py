# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.config.use_torchcomms: communicators by new_comm, wrapped."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import torchcomms
from multi.support.c10d import switched_world


def sum_in(group, me):
    tensor = torch.full((3,), float(me.rank + 1))
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def everyday(me, backend):
    assert c10d._TORCHCOMM_AVAILABLE
    with switched_world(me, backend) as world:
        wrapper = world._get_backend(torch.device("cpu"))
        from torchcomms._comms import _BackendWrapper, _BackendWrapperOptions

        assert isinstance(wrapper, _BackendWrapper)
        assert wrapper.name() == backend
        comm = wrapper.get_comm()
        assert comm is c10d._world.comms[0]
        assert isinstance(comm, torchcomms.TorchComm)
        assert isinstance(wrapper.options, _BackendWrapperOptions)
        gathered = [torch.zeros(2) for _ in range(me.size)]
        dist.all_gather(gathered, torch.full((2,), float(me.rank)))
        assert [g[0].item() for g in gathered] == list(range(me.size))
        outputs = [torch.zeros(2) for _ in range(me.size)] if me.rank == 0 else None
        dist.gather(torch.full((2,), float(me.rank)), outputs, dst=0)
        if me.rank == 0:
            assert [o[0].item() for o in outputs] == list(range(me.size))
        dist.barrier()
        # The object API and c10d on one communicator, in turn.
        tensor = torch.ones(3)
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM)
        assert tensor[0] == me.size
        return sum_in(None, me)


@pytest.mark.parametrize("backend", ["ncclx", "torchcomms"])
def test_everyday_use(ranks, backend):
    assert ranks(3).run(everyday, backend) == [6.0] * 3


def groups(me):
    with switched_world(me):
        pair = dist.new_group([0, 1])
        halves = dist.split_group(split_ranks=[[0], [1, 2]])
        found = [sum_in(halves, me)]
        if me.rank in (0, 1):
            assert isinstance(pair, dist.ProcessGroup)
            found.append(sum_in(pair, me))
            dist.destroy_process_group(pair)
        else:
            assert pair == dist.GroupMember.NON_GROUP_MEMBER
        found.append(sum_in(None, me))
        return found


def test_groups_and_destroy_of_one_before_the_world(ranks):
    assert ranks(3).run(groups) == [[1, 3, 6], [5, 3, 6], [5, 6]]


def partial(me):
    with switched_world(me):
        child = dist.split_group(split_ranks=[[0, 1]])
        # None, or from torch 2.14 on GroupMember.NON_GROUP_MEMBER.
        return sum_in(child, me) if isinstance(child, dist.ProcessGroup) else None


def test_a_rank_in_no_group_gets_none(ranks):
    assert ranks(3).run(partial) == [3, 3, None]


def wrapped(me):
    from torchcomms._comms import _BackendWrapper

    comm = me.comm()
    with pytest.raises(TypeError, match="TorchComm"):
        _BackendWrapper(3)
    wrapper = _BackendWrapper(comm)
    assert wrapper.get_comm() is comm
    assert (wrapper.rank(), wrapper.size()) == (me.rank, me.size)
    assert wrapper.options._timeout == timedelta(seconds=600)
    tensor = torch.ones(2)
    work = wrapper.allreduce([tensor])
    work.wait()
    assert tensor[0] == me.size
    assert wrapper._verify_work_timeout(work, timedelta(seconds=600))
    wrapper._set_default_timeout(timedelta(seconds=30))
    work = wrapper.barrier()
    work.wait()
    assert wrapper._verify_work_timeout(work, timedelta(seconds=30))
    comm.finalize()
    wrapper.shutdown()
    wrapper.shutdown()
    with pytest.raises(RuntimeError, match="already finalized"):
        wrapper.barrier()


def test_wrapper_of_a_communicator(ranks):
    ranks(2).run(wrapped)


def cycles(me):
    for i in range(10):
        with switched_world(me, name=f"cycle{i % 2}"):
            assert sum_in(None, me) == 3


def test_cycles(ranks):
    ranks(2).run(cycles)
