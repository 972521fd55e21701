# SPDX-License-Identifier: BSD-3-Clause
"""api.md 7: hooks over several ranks, of the object API and through c10d."""

import threading
import traceback
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import torchcomms
from multi.support.c10d import DOORS, switched_world, world
from torchcomms import _comms

SUM = torchcomms.ReduceOp.SUM
SHORT = timedelta(milliseconds=200)


class Journal:
    """What the hooks of a communicator were told, in order."""

    def __init__(self, comm):
        self.comm = comm
        self.lines, self.args, self.events, self.aborts = [], [], [], 0
        self.handles = [
            comm.register_pre_hook(self.before),
            comm.register_post_hook(self.after),
            comm.register_abort_hook(self.abort),
        ]

    def before(self, name, op_id, args):
        self.lines.append(("pre", name.name, op_id))
        self.args.append(args)

    def after(self, op_id, args):
        self.lines.append(("post", type(args).__name__, op_id))
        if args._work is not None:
            args._work._observe(lambda event, ns: self.events.append((op_id, event)))

    def abort(self):
        self.aborts += 1

    def names(self):
        return [name for point, name, _ in self.lines if point == "pre"]

    def check_pairs(self):
        """Each post-hook follows its pre-hook, and ids rise."""
        pres = [line[2] for line in self.lines if line[0] == "pre"]
        posts = [line[2] for line in self.lines if line[0] == "post"]
        assert pres == posts == sorted(set(pres))


class Oops(Exception):
    pass


def comm_of(group):
    return group._get_backend(torch.device("cpu")).get_comm()


# The object API -----------------------------------------------------------------------


def every_operation(me):
    comm = me.comm()
    journal = Journal(comm)
    n, other = me.size, (me.rank + 1) % me.size
    for async_op in (False, True):
        t, outs = torch.ones(2), [torch.ones(2) for _ in range(n)]
        whole = torch.ones(2 * n)
        works = [
            comm.broadcast(t, 0, async_op),
            comm.all_reduce(t, SUM, async_op),
            comm.reduce(t, 0, SUM, async_op),
            comm.all_gather(outs, t, async_op),
            comm.all_gather_v(outs, t, async_op),
            comm.all_gather_single(whole, t, async_op),
            comm.reduce_scatter(t, outs, SUM, async_op),
            comm.reduce_scatter_v(t, outs, SUM, async_op),
            comm.reduce_scatter_single(t, whole, SUM, async_op),
            comm.all_to_all_single(whole.clone(), whole, async_op),
            comm.all_to_all_v_single(whole.clone(), whole, [2] * n, [2] * n, async_op),
            comm.all_to_all([o.clone() for o in outs], outs, async_op),
            comm.barrier(async_op),
            comm.scatter(t, outs if me.rank == 0 else [], 0, async_op),
            comm.gather(outs if me.rank == 0 else [], t, 0, async_op),
            comm.gather_single(whole, t, 0, async_op),
        ]
        batch = comm.batch_op_create()
        batch.send(torch.ones(2), other)
        batch.recv(torch.ones(2), other)
        works.append(batch.issue(async_op))
        if me.rank == 0:
            works += [comm.send(t, 1, async_op), comm.recv(t, 1, async_op)]
        else:
            works += [comm.recv(t, 0, async_op), comm.send(t, 0, async_op)]
        for work in works:
            work.wait()
    child = comm.split(list(range(n)), "child")
    child.finalize()
    journal.check_pairs()
    comm.finalize()
    return journal.names(), journal.events, journal.aborts


def test_every_operation(ranks):
    names = [op.name for op in torchcomms.OpName][2:18]
    expected = sorted([*names, "batch_op_issue", "send", "recv"] * 2)
    for told, events, aborts in ranks(2).run(every_operation):
        assert sorted(told) == sorted([*expected, "split", "finalize"])
        assert told[-2:] == ["split", "finalize"]
        assert aborts == 0
        by_work = {}
        for op_id, event in events:
            by_work.setdefault(op_id, []).append(event)
        assert len(by_work) == len(expected)
        for seen in by_work.values():
            assert seen[0] == "start"
            assert sorted(seen) == ["end", "start", "wait"]


def rooted_arguments(me):
    """A rank that is not the root may give anything, and the hook sees no list."""
    comm = me.comm()
    journal = Journal(comm)
    t = torch.ones(2)
    outs = [torch.ones(2), torch.ones(2)]
    comm.gather(outs if me.rank == 0 else None, t, 0, False)
    comm.scatter(t, outs if me.rank == 0 else [], 0, False)
    gather, scatter = journal.args
    return [len(gather.output), gather.root, len(scatter.input), scatter.root]


def test_arguments_of_rooted_operations(ranks):
    assert ranks(2).run(rooted_arguments) == [[2, 0, 2, 0], [0, 0, 0, 0]]


def refused_here(me):
    """Rank 0's pre-hook refuses; repeated without it, the operation works."""
    comm = me.comm()
    error = Oops("mine")

    def refuse(*_):
        raise error

    t = torch.full((50_000,), me.rank + 1.0)
    if me.rank == 0:
        handle = comm.register_pre_hook(refuse)
        for async_op in (False, True):
            with pytest.raises(Oops) as caught:
                comm.all_reduce(t, SUM, async_op)
            assert caught.value is error
        handle.remove()
    comm.all_reduce(t, SUM, False)
    return t[0].item()


def test_a_call_that_a_hook_refuses_can_be_repeated(ranks):
    assert ranks(2).run(refused_here) == [3.0, 3.0]


def split_of_some(me):
    comm = me.comm()
    journal = Journal(comm)
    child = comm.split([0] if me.rank == 0 else [], "some")
    if child is not None:
        child.finalize()
    return [line[:2] for line in journal.lines]


def test_post_hooks_of_a_split_run_where_a_child_came_out(ranks):
    pre = ("pre", "split")
    assert ranks(2).run(split_of_some) == [[pre, ("post", "SplitPostHookArgs")], [pre]]


def fail(me):
    """Rank 1 does not call: rank 0's operations run out of time."""
    comm = me.comm(timeout=timedelta(seconds=20))
    journal = Journal(comm)
    store = me.store("signals")
    counts = []
    if me.rank == 0:
        with pytest.raises(RuntimeError):
            comm.recv(torch.ones(2), 1, False, timeout=SHORT)
        counts.append(journal.aborts)
        work = comm.all_reduce(torch.ones(2), SUM, True, timeout=SHORT)
        counts.append(journal.aborts)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                work.wait()
        counts.append(journal.aborts)
        with pytest.raises(RuntimeError):
            comm.barrier(False)
        counts.append(journal.aborts)
        store.set("through", "1")
        return counts, [line[:2] for line in journal.lines], journal.events
    store.wait(["through"])
    return None


def test_abort_hooks(fresh):
    counts, lines, events = fresh(2).run(fail)[0]
    assert counts == [1, 1, 2, 3]
    assert lines == [
        ("pre", "recv"),
        ("pre", "all_reduce"),
        ("post", "AllReducePostHookArgs"),
        ("pre", "barrier"),
    ]
    assert [event for _, event in events][0] == "start"
    assert sorted(event for _, event in events) == ["end", "start", "wait", "wait"]


def threads(me):
    """Each thread has a communicator of its own and changes its hooks as it goes."""
    comms = [me.comm(f"thread{i}") for i in range(3)]
    journals = [Journal(comm) for comm in comms]
    errors = []

    def work(comm, journal):
        try:
            for i in range(40):
                t = torch.full((2000 if i % 4 else 2,), me.rank + 1.0)
                extra = comm.register_pre_hook(lambda *_: None)
                comm.all_reduce(t, SUM, i % 2 == 0).wait()
                extra.remove()
                assert t[0] == 3
        except BaseException as error:
            errors.append(error)

    running = [
        threading.Thread(target=work, args=pair)
        for pair in zip(comms, journals, strict=True)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not errors, errors
    for journal in journals:
        journal.check_pairs()
    ids = [line[2] for j in journals for line in j.lines if line[0] == "pre"]
    return len(ids), len(set(ids))


def test_threads(ranks):
    assert ranks(2).run(threads) == [(120, 120)] * 2


# c10d ---------------------------------------------------------------------------------


def through_c10d(me, door):
    with DOORS[door](me) as group:
        journal = Journal(comm_of(group))
        t = torch.full((3,), me.rank + 1.0)
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        dist.barrier()
        first = journal.names()
        shown = [journal.args[0].tensor is t, str(journal.args[0].op)]
        outs = [torch.empty(3) for _ in range(me.size)]
        strided = torch.ones(6)[::2]
        dist.all_gather(outs, strided)
        gathered = journal.args[-1]
        shown.append(gathered.input is strided)
        shown.append(all(a is b for a, b in zip(gathered.output, outs, strict=True)))
        out, given = torch.empty(4, 3), torch.ones(4, 3)
        dist.all_to_all_single(out, given, [2, 2], [2, 2])
        shown.append(journal.args[-1].input_split_sizes)
        dist.all_reduce(t, op=dist.ReduceOp.MAX, async_op=True).wait()
        shown.append([str(journal.args[-1].op), journal.args[-1].async_op])
        other = 1 - me.rank
        ops = [dist.P2POp(dist.isend, t, other), dist.P2POp(dist.irecv, outs[0], other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        shown.append(journal.args[-1].num_ops)
        if me.rank == 0:
            dist.send(t, 1)
        else:
            dist.recv(t, 0)
        shown.append(journal.args[-1].peer)
        journal.check_pairs()
    return first, journal.names()[3:], shown, journal.aborts


@pytest.mark.parametrize("door", DOORS)
def test_calls_through_c10d(ranks, door):
    results = ranks(2).run(through_c10d, door)
    for rank, (first, rest, shown, aborts) in enumerate(results):
        assert first == ["all_reduce", "broadcast", "barrier"]
        assert rest == [
            "all_gather",
            "all_to_all_v_single",
            "all_reduce",
            "batch_op_issue",
            ["send", "recv"][rank],
            "finalize",
        ]
        assert shown == [
            True,
            "ReduceOp.SUM",
            True,
            True,
            [2, 2],
            ["ReduceOp.MAX", True],
            2,
            1 - rank,
        ]
        assert aborts == 0


def raise_through_c10d(me):
    with world(me) as group:
        comm = comm_of(group)
        error = Oops("mine")

        def refuse(*_):
            raise error

        t = torch.full((3,), me.rank + 1.0)
        handle = comm.register_pre_hook(refuse)
        for call in (
            lambda: dist.all_reduce(t),
            lambda: dist.all_reduce(t, async_op=True),
            dist.barrier,
            lambda: dist.isend(t, 1 - me.rank),
        ):
            with pytest.raises(Oops) as caught:
                call()
            assert caught.value is error
            assert traceback.extract_tb(error.__traceback__)[-1].name == "refuse"
        handle.remove()
        handle = comm.register_post_hook(refuse)
        with pytest.raises(Oops) as caught:
            dist.all_reduce(t)
        assert caught.value is error
        handle.remove()
        dist.all_reduce(t)
        return t.tolist()


def test_what_hooks_raise_goes_through_c10d(ranks):
    assert ranks(2).run(raise_through_c10d) == [[6.0] * 3] * 2


def fail_through_c10d(me):
    with world(me, timeout=timedelta(seconds=30)) as group:
        journal = Journal(comm_of(group))
        store = me.store("signals")
        if me.rank == 1:
            store.wait(["through"])
            return None
        group._get_backend(torch.device("cpu"))._set_default_timeout(SHORT)
        work = dist.irecv(torch.ones(2), 1)
        counts = [journal.aborts]
        for _ in range(2):
            with pytest.raises(RuntimeError):
                work.wait()
        counts.append(journal.aborts)
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(2))
        counts.append(journal.aborts)
        store.set("through", "1")
        return counts, journal.names()


def test_abort_hooks_through_c10d(fresh):
    assert fresh(2).run(fail_through_c10d)[0] == (
        [0, 1, 2],
        ["recv", "all_reduce"],
    )


def monitored(me):
    with world(me) as group:
        journal = Journal(comm_of(group))
        group.monitored_barrier(timedelta(seconds=60))
        journal.check_pairs()
        shapes = [list(args.tensor.shape) for args in journal.args]
        return journal.names(), shapes


def test_messages_of_a_monitored_barrier(ranks):
    assert ranks(2).run(monitored) == [
        (["recv", "send"], [[1], [1]]),
        (["send", "recv"], [[1], [1]]),
    ]


def split_through_c10d(me):
    with switched_world(me) as group:
        comm = comm_of(group)
        journal = Journal(comm)
        children = []

        def after(_, args):
            if isinstance(args, _comms.SplitPostHookArgs):
                children.append(args._child)

        comm.register_post_hook(after)
        child = dist.split_group(split_ranks=[[0, 1]])
        dist.barrier(child)
        assert children == [comm_of(child)]
        return journal.names()


def test_split_through_c10d(ranks):
    assert ranks(2).run(split_through_c10d) == [["split"]] * 2
