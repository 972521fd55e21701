# SPDX-License-Identifier: BSD-3-Clause
"""api.md 11: the backend `gloo` beside what tests/contract has for all backends."""

import gc
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torchcomms
from multi.support.c10d import switched_world

SUM = torchcomms.ReduceOp.SUM
SIZE = 3


def test_it_is_built():
    assert torchcomms.is_backend_built("gloo")
    assert "gloo" in torchcomms.built_backends()


def use(comm):
    tensor = torch.full((100,), float(comm.get_rank()))
    comm.all_reduce(tensor, SUM, False)
    assert tensor.eq(sum(range(comm.get_size()))).all()


def work(me):
    comm = me.comm(backend="gloo")
    tensor = torch.ones(4)
    later = comm.all_reduce(tensor, SUM, True)
    with pytest.raises(RuntimeError, match="waitBlocking not implemented"):
        later.wait_blocking()
    later.wait()
    later.wait_blocking()
    assert later.is_completed()
    assert tensor.tolist() == [SIZE] * 4
    now = comm.all_reduce(tensor, SUM, False)
    assert now.is_completed()
    now.wait_blocking()
    with pytest.raises(RuntimeError, match="not implemented for communicator"):
        comm.get_backend_version()


def test_works(ranks):
    ranks(SIZE).run(work)


def implementation(me):
    from torchcomms._comms_gloo import TorchCommGloo

    comm = me.comm(backend="gloo")
    found = comm.get_backend_impl()
    assert isinstance(found, TorchCommGloo)
    assert isinstance(found, torchcomms.TorchCommBackend)
    with pytest.warns(DeprecationWarning, match="older name"):
        assert comm.unsafe_get_backend() is found
    comm.finalize()
    assert comm.get_backend_impl() is found


def test_the_class_behind_it(ranks):
    ranks(2).run(implementation)


def dropped_by_an_error(me):
    """The exception that drops a communicator arrives as it was."""
    os.environ.update(RANK="0", WORLD_SIZE="1")
    with pytest.raises(RuntimeError, match="getInitHandle not implemented"):
        torchcomms.new_comm("gloo", torch.device("cpu"), "x").get_init_handle()


def test_dropped_by_an_error(fresh):
    fresh(1).run(dropped_by_an_error)


def lazy(me, hints):
    """Connects on first use: a peer that does nothing holds up no other."""
    comm = me.comm(backend="gloo", hints={"lazy": "", **hints})
    peer = {0: 1, 1: 0}.get(me.rank)
    if peer is not None:
        out = torch.empty(1000)
        works = [comm.recv(out, peer, True)]
        if me.rank == 0:
            works.append(comm.recv(torch.empty(1), 2, True))
        works.append(comm.send(torch.full((1000,), float(me.rank)), peer, True))
        works[0].wait()
        works[-1].wait()
        assert out.eq(peer).all()
        me.store("met").set(f"{me.rank}", "1")
    else:
        me.store("met").wait(["0", "1"])
        comm.send(torch.ones(1), 0, False)
    use(comm)
    child = me.keep(comm.split([2, 1, 0], "child"))
    use(child)
    comm.finalize()
    use(child)


@pytest.mark.parametrize(
    "hints",
    [{}, {"hostname": "127.0.0.1"}, {"interface": "lo"}, {"persistent_store": "true"}],
    ids=lambda h: next(iter(h), "none"),
)
def test_lazy_and_where_it_listens(fresh, hints):
    fresh(SIZE).run(lazy, hints)


def environment(me, variable, value):
    os.environ[variable] = value
    use(me.comm(backend="gloo"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TORCHCOMM_GLOO_HOSTNAME", "127.0.0.1"), ("TORCHCOMM_GLOO_INTERFACE", "lo")],
)
def test_where_it_listens_by_the_environment(ranks, variable, value):
    ranks(2).run(environment, variable, value)


def nowhere(me, hints):
    with pytest.raises(RuntimeError, match="communicator 'test'"):
        me.comm(backend="gloo", hints=hints)


@pytest.mark.parametrize(
    "hints",
    [{"hostname": "192.0.2.1"}, {"interface": "none0"}],
    ids=["hostname", "interface"],
)
def test_nowhere_to_listen(fresh, hints):
    fresh(1).run(nowhere, hints)


def stores(me, persistent):
    """The given store may go, and the name may come again."""
    hints = {"persistent_store": "true"} if persistent else {}
    for _ in range(3):
        store = me.store("given")
        comm = me.comm("again", backend="gloo", store=store, hints=hints)
        del store
        use(comm)
        use(me.keep(comm.split([2, 0, 1], "child")))
        comm.finalize()
        me.store("turns").add("left", 1)
        comm = me.comm("between", backend="gloo")
        use(comm)
        comm.finalize()


@pytest.mark.parametrize("persistent", [False, True])
def test_stores(ranks, persistent):
    ranks(SIZE).run(stores, persistent)


class Written(dist.Store):
    """A store in Python, over one of c10d's that nobody else keeps."""

    def __init__(self, store):
        super().__init__()
        self.inner = store

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, amount):
        return self.inner.add(key, amount)

    def check(self, keys):
        return self.inner.check(keys)

    def wait(self, keys, timeout=timedelta(seconds=60)):
        self.inner.wait(keys, timeout)


def written(me, hints):
    given = Written(me.store("given"))
    comm = me.comm(backend="gloo", store=given, hints=hints)
    del given
    gc.collect()
    use(comm)
    use(me.keep(comm.split([1, 0], "child")))


@pytest.mark.parametrize(
    "hints", [{}, {"persistent_store": "true"}, {"persistent_store": "1", "lazy": "1"}]
)
def test_a_store_written_in_python(fresh, hints):
    fresh(2).run(written, hints)


def limits(me):
    """The given store keeps its own timeout."""
    given = me.store("given")
    given.set_timeout(timedelta(seconds=123))
    hints = {"persistent_store": "true"}
    use(me.comm(backend="gloo", store=given, hints=hints))
    assert given.timeout == timedelta(seconds=123)


def test_the_timeout_of_a_given_store(ranks):
    ranks(2).run(limits)


def twice(me):
    store = me.store("given")
    options = {"store": store, "hints": {"persistent_store": "true"}}
    comm = me.comm("name", backend="gloo", **options)
    with pytest.raises(RuntimeError, match="multiple communicators on same store"):
        me.comm("name", backend="gloo", **options)
    use(me.comm("another", backend="gloo", **options))
    use(comm)


def test_two_communicators_of_one_name_on_one_store(ranks):
    ranks(SIZE).run(twice)


def alone(me):
    os.environ.update(RANK="0", WORLD_SIZE="1")
    comm = me.keep(torchcomms.new_comm("gloo", torch.device("cpu"), "alone"))
    tensor = torch.arange(4)
    comm.all_reduce(tensor, torchcomms.ReduceOp.AVG, True).wait()
    assert tensor.tolist() == [0, 1, 2, 3]
    use(comm)
    child = me.keep(comm.split([0], "child"))
    assert child.get_name() == "child_0"
    use(child)


def test_one_rank_needs_no_store(fresh):
    fresh(1).run(alone)


def absent(me):
    """A rank that never comes to the start."""
    if me.rank == 0:
        with pytest.raises(RuntimeError, match="communicator 'test'"):
            me.comm(backend="gloo", timeout=timedelta(seconds=2))


def test_a_rank_is_missing_at_the_start(fresh):
    fresh(2).run(absent)


def other_size(me):
    """What gloo keeps ready for a recv that has timed out."""
    comm = me.comm(backend="gloo")
    if me.rank == 0:
        with pytest.raises(RuntimeError, match="recv.*timed out.*from rank 1"):
            comm.recv(torch.zeros(4), 1, False, timeout=timedelta(milliseconds=100))
        with pytest.raises(RuntimeError, match="of 20 bytes.*16 bytes"):
            comm.recv(torch.zeros(5), 1, False)
    comm.barrier(False)
    if me.rank == 0:
        first, second = torch.zeros(4), torch.zeros(5)
        works = [comm.recv(first, 1, True), comm.recv(second, 1, True)]
        for pending in works:
            pending.wait()
        assert (first[0], second[0]) == (1.0, 2.0)
    else:
        comm.send(torch.full((4,), 1.0), 0, False)
        comm.send(torch.full((5,), 2.0), 0, False)


def test_a_recv_of_another_size_after_one_that_timed_out(fresh):
    fresh(2).run(other_size)


def unheard(me):
    """A large send that nobody receives; others are not disturbed."""
    comm = me.comm(backend="gloo")
    if me.rank == 0:
        with pytest.raises(RuntimeError, match="send.*timed out.*to rank 1"):
            comm.send(
                torch.ones(100_000), 1, False, timeout=timedelta(milliseconds=100)
            )
    use(comm)
    comm.barrier(False)


def test_a_send_that_nobody_receives(ranks):
    ranks(SIZE).run(unheard)


def collectives(me):
    with switched_world(me, "gloo") as world:
        wrapper = world._get_backend(torch.device("cpu"))
        from torchcomms._comms import _BackendWrapper

        assert isinstance(wrapper, _BackendWrapper)
        assert wrapper.name() == "gloo"
        assert wrapper.get_comm().get_backend() == "gloo"
        tensor = torch.full((3,), me.rank + 1.0)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [6.0] * 3
        gathered = [torch.zeros(2) for _ in range(SIZE)]
        dist.all_gather(gathered, torch.full((2,), float(me.rank)))
        assert [g[0].item() for g in gathered] == [0, 1, 2]
        out = torch.zeros(1)
        ops = [
            dist.P2POp(dist.isend, torch.full((1,), float(me.rank)), (me.rank + 1) % 3),
            dist.P2POp(dist.irecv, out, (me.rank - 1) % 3),
        ]
        for each in dist.batch_isend_irecv(ops):
            each.wait()
        assert out.item() == (me.rank - 1) % 3
        pair = dist.new_group([0, 1])
        if me.rank < 2:
            dist.all_reduce(tensor, group=pair)
            assert tensor.tolist() == [12.0] * 3
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        assert future.wait()[0].tolist() == [3.0] * 2
        dist.barrier()
        dist.monitored_barrier()


def test_torch_distributed_by_the_switch(ranks):
    ranks(SIZE).run(collectives)


def tags(me):
    with switched_world(me, "gloo"):
        if me.rank == 0:
            dist.send(torch.tensor([1.0]), 1, tag=1)
            dist.send(torch.tensor([2.0]), 1, tag=2)
        if me.rank == 1:
            first, second = torch.zeros(1), torch.zeros(1)
            dist.recv(second, 0, tag=2)
            dist.recv(first, 0, tag=1)
            assert (first.item(), second.item()) == (1.0, 2.0)
        if me.rank == 2:
            dist.send(torch.tensor([9.0]), 1)
        if me.rank == 1:
            anybody = torch.zeros(1)
            assert dist.recv(anybody) == 2
            assert anybody.item() == 9.0
        dist.barrier()


def test_tags_and_any_source(ranks):
    ranks(SIZE).run(tags)


def straggling(me):
    """monitored_barrier names who did not come, and the group still works."""
    with switched_world(me, "gloo"):
        if me.rank == 0:
            with pytest.raises(RuntimeError, match="Ranks? 2 failed to pass"):
                dist.monitored_barrier(
                    timeout=timedelta(milliseconds=500), wait_all_ranks=True
                )
            me.store("over").set("over", "1")
        elif me.rank == 1:
            with pytest.raises(RuntimeError, match="Rank 1 successfully reached"):
                dist.monitored_barrier(timeout=timedelta(seconds=2))
        else:
            me.store("over").wait(["over"])
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == SIZE


def test_monitored_barrier(fresh):
    fresh(SIZE).run(straggling)
