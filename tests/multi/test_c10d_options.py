# SPDX-License-Identifier: BSD-3-Clause
"""Options of the c10d door: defaults, what a child inherits, timeouts of works."""

import copy
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import LIMIT, switched_world, world
from torchcomms._comms import _BackendWrapper, _BackendWrapperOptions

CPU = torch.device("cpu")


def seconds(number):
    return timedelta(seconds=number)


def test_fields_and_defaults(monkeypatch):
    options = _BackendWrapperOptions()
    assert isinstance(options, torch._C._distributed_c10d.Backend.Options)
    assert options.backend == "torchcomms"
    assert options.timeout == seconds(600)
    assert options.abort_process_on_timeout_or_error is True
    assert options.is_high_priority_stream is False
    assert options.store is None
    assert options.hints == {}
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", "no")
    assert _BackendWrapperOptions().abort_process_on_timeout_or_error is False
    monkeypatch.setenv("TORCHCOMM_ABORT_ON_ERROR", "perhaps")
    with pytest.raises(RuntimeError, match="TORCHCOMM_ABORT_ON_ERROR.*perhaps"):
        _BackendWrapperOptions()


def test_fields_are_kept():
    options = _BackendWrapperOptions()
    options.timeout = seconds(7)
    assert options._timeout == seconds(600)
    options._timeout = seconds(9)
    assert options.timeout == seconds(7)
    options.abort_process_on_timeout_or_error = False
    options.is_high_priority_stream = True
    options.store = dist.HashStore()
    options.hints = {"one": "1"}
    for other in (options, copy.copy(options), copy.deepcopy(options)):
        assert other.timeout == seconds(7)
        assert other.abort_process_on_timeout_or_error is False
        assert other.is_high_priority_stream is True
        assert isinstance(other.store, dist.Store)
        assert other.hints == {"one": "1"}


def test_what_does_not_fit_is_refused():
    options = _BackendWrapperOptions()
    with pytest.raises(ValueError, match="timeout must be positive, but got 0 ms"):
        options.timeout = seconds(0)
    with pytest.raises(TypeError):
        options.hints = {"one": 1}
    # A copy: what is written into it would be lost.
    with pytest.raises(TypeError):
        options.hints["one"] = "1"
    assert (options.timeout, options.hints) == (seconds(600), {})


def own_timeout(me):
    comm = me.comm(timeout=LIMIT)
    wrapper = _BackendWrapper(comm)
    options = wrapper.options
    assert (options.timeout, options._timeout) == (seconds(600), seconds(600))
    wrapper._set_default_timeout(seconds(30))
    assert (options.timeout, options._timeout) == (seconds(30), seconds(600))
    assert comm.get_options().timeout == LIMIT
    with pytest.raises(ValueError, match="timeout must be positive, but got -1000 ms"):
        wrapper._set_default_timeout(seconds(-1))
    assert wrapper.options.timeout == seconds(30)


def test_the_default_timeout_is_apart_from_the_communicators(ranks):
    ranks(2).run(own_timeout)


def work_timeouts(me):
    wrapper = _BackendWrapper(me.comm())
    tensor, peer = torch.ones(2), 1 - me.rank
    given = dist.AllreduceOptions()
    given.timeout = seconds(5)

    def carries(work, limit):
        work.wait()
        others = [seconds(1), limit + seconds(1), limit - timedelta(milliseconds=1)]
        assert wrapper._verify_work_timeout(work, limit)
        assert not any(wrapper._verify_work_timeout(work, o) for o in others)

    carries(wrapper.allreduce([tensor]), seconds(600))
    carries(wrapper.allreduce([tensor], given), seconds(5))
    wrapper._set_default_timeout(seconds(40))
    carries(wrapper.allreduce([tensor], given), seconds(5))
    carries(wrapper.barrier(), seconds(40))
    first = wrapper.send if me.rank == 0 else wrapper.recv
    second = wrapper.recv if me.rank == 0 else wrapper.send
    carries(first([tensor], peer, 0), seconds(40))
    carries(second([tensor], peer, 0), seconds(40))
    with pytest.raises(RuntimeError, match="Work is not a WorkWrapper"):
        wrapper._verify_work_timeout(dist.Work(), seconds(40))


def test_the_timeout_that_a_work_carries(ranks):
    ranks(2).run(work_timeouts)


def by_name(me):
    with world(me, timeout=seconds(50)) as group:
        wrapper = group._get_backend(CPU)
        assert wrapper.options.timeout == seconds(50)
        assert wrapper.options.backend == "torchcomms"
        work = wrapper.barrier()
        work.wait()
        assert wrapper._verify_work_timeout(work, seconds(50))
        pair = dist.new_group([1, 0], timeout=seconds(20), sort_ranks=False)
        assert pair._get_backend(CPU).options.timeout == seconds(20)
        assert pair._get_backend(CPU).options.global_ranks_in_group == [1, 0]
        # The next call has the new limit, and nothing else has changed.
        group.set_timeout(seconds(45))
        assert wrapper.options.timeout == seconds(45)
        assert pair._get_backend(CPU).options.timeout == seconds(20)


def test_by_name_the_creators_timeout_is_the_default(ranks):
    ranks(2).run(by_name)


def split(group, options=None, **more):
    child = group.split_group([0, 1], opts=options, **more)
    wrapper = child._get_backend(CPU)
    tensor = torch.ones(3)
    dist_options = dist.AllreduceOptions()
    dist_options.asyncOp = False
    wrapper.allreduce([tensor], dist_options)
    assert tensor[0] == 2
    return wrapper


def children(me):
    with world(me) as group:
        parent = group._get_backend(CPU)
        child = split(group)
        assert child.options.timeout == parent.options.timeout == LIMIT
        child = split(group, timeout=seconds(11), group_name="limited")
        assert child.options.timeout == seconds(11)
        assert child.get_comm().get_name() == "limited"
        options = _BackendWrapperOptions()
        options.abort_process_on_timeout_or_error = False
        options.is_high_priority_stream = True
        options.store = dist.HashStore()
        options.hints = {"one": "1"}
        options.timeout = seconds(12)
        # c10d has a timeout for every split, whoever gave it; ours decides.
        child = split(group, options, timeout=seconds(13), group_name="given")
        found = child.get_comm().get_options()
        assert found.timeout == child.options.timeout == seconds(12)
        assert found.abort_process_on_timeout_or_error is False
        assert child.options.abort_process_on_timeout_or_error is False
        hints = {"one": "1", "is_high_priority_stream": "true"}
        assert found.hints == child.options.hints == hints
        assert child.options.is_high_priority_stream is True
        assert isinstance(child.options.store, dist.Store)
        assert (options.timeout, options.hints) == (seconds(12), {"one": "1"})
        untouched = _BackendWrapperOptions()
        child = split(group, untouched, timeout=seconds(14), group_name="c10d's")
        assert child.options.timeout == seconds(14)
        assert child.get_comm().get_options().hints == {}


def test_options_of_a_split_become_the_childs(ranks):
    ranks(2).run(children)


def by_switch(me):
    with switched_world(me) as group:
        wrapper = group._get_backend(CPU)
        assert wrapper.options.timeout == seconds(600)
        assert wrapper.options.hints == {"persistent_store": "true"}
        child = dist.split_group(split_ranks=[[0, 1]], timeout=seconds(21))
        assert child._get_backend(CPU).options.timeout == seconds(21)
        assert child._get_backend(CPU).options.hints == wrapper.options.hints
        options = _BackendWrapperOptions()
        options.timeout = seconds(22)
        options.hints = {"two": "2"}
        child = dist.split_group(split_ranks=[[0, 1]], pg_options=options)
        assert child._get_backend(CPU).options.timeout == seconds(22)
        assert child._get_backend(CPU).get_comm().get_options().hints == {"two": "2"}
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=child)
        assert tensor[0] == 2


def test_pg_options_of_split_group(ranks):
    ranks(2).run(by_switch)
