# SPDX-License-Identifier: BSD-3-Clause
"""api.md 7: hooks in one process, on the fake backend and on one rank of ncclx."""

import gc
import os
import sys
import traceback
import weakref
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import AllreduceOptions

import torchcomms
from torchcomms import _comms
from unit.thread_ranks import leave, make_ranks, on_all

SUM = torchcomms.ReduceOp.SUM
LAST_ID = 2**64 - 1
RANK = torchcomms.TorchComm.get_rank


@pytest.fixture(params=["fake", "alone"])
def comm(request):
    return request.getfixturevalue(request.param)


class Journal:
    """What the hooks of a communicator were told."""

    def __init__(self, comm):
        self.pres, self.posts, self.aborts = [], [], 0
        self.handles = [
            comm.register_pre_hook(self.before),
            comm.register_post_hook(self.after),
            comm.register_abort_hook(self.abort),
        ]

    def before(self, name, op_id, args):
        self.pres.append((name, op_id, args))

    def after(self, op_id, args):
        self.posts.append((op_id, args, args._work))

    def abort(self):
        self.aborts += 1

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def names(self):
        return [name.name for name, _, _ in self.pres]


def holder_of(obj, act=lambda *_: None):
    """A function that refers to obj and does something else."""

    def hold(*args):
        act(*args)
        return obj

    return hold


class Oops(Exception):
    pass


def raises(*_):
    raise Oops("from a hook")


# Operations ---------------------------------------------------------------------------


def tensors(count, value=1.0):
    return [torch.full((2,), value) for _ in range(count)]


def peer_of(comm):
    return (comm.get_rank() + 1) % comm.get_size()


def rooted(comm):
    return {"root": comm.get_rank()}


# For each operation: its arguments by name, and what the pre-hook is shown of them.
def one_tensor(comm):
    t = torch.ones(2)
    return {"tensor": t}, {"tensor": t}


def list_out(comm):
    outs, t = tensors(comm.get_size()), torch.ones(2)
    return {"tensor_list": outs, "tensor": t}, {"input": t, "output": outs}


def list_in(comm):
    ins, t = tensors(comm.get_size()), torch.ones(2)
    return {"output": t, "input_list": ins, "op": SUM}, {
        "input": ins,
        "output": t,
        "op": SUM,
    }


def whole_out(comm):
    given = {"output": torch.ones(2 * comm.get_size()), "input": torch.ones(2)}
    return given, given


def whole_in(comm):
    given = {"output": torch.ones(2), "input": torch.ones(2 * comm.get_size())}
    return {**given, "op": SUM}, {**given, "op": SUM}


def wholes(comm):
    n = comm.get_size()
    given = {"output": torch.ones(n), "input": torch.ones(n)}
    return given, given


def splits(comm):
    n = comm.get_size()
    given = {
        "output": torch.ones(n),
        "input": torch.ones(n),
        "output_split_sizes": [1] * n,
        "input_split_sizes": [1] * n,
    }
    return given, given


def lists(comm):
    outs, ins = tensors(comm.get_size()), tensors(comm.get_size())
    return {"output_tensor_list": outs, "input_tensor_list": ins}, {
        "input": ins,
        "output": outs,
    }


def scattered(comm):
    ins, t = tensors(comm.get_size()), torch.ones(2)
    return {"output_tensor": t, "input_tensor_list": ins, **rooted(comm)}, {
        "input": ins,
        "output": t,
        **rooted(comm),
    }


def gathered(comm):
    outs, t = tensors(comm.get_size()), torch.ones(2)
    return {"output_tensor_list": outs, "input_tensor": t, **rooted(comm)}, {
        "input": t,
        "output": outs,
        **rooted(comm),
    }


def with_more(build, **more):
    def both(comm):
        given, shown = build(comm)
        extra = {key: value(comm) for key, value in more.items()}
        return {**given, **extra}, {**shown, **extra}

    return both


OPERATIONS = {
    "broadcast": ("Broadcast", with_more(one_tensor, root=RANK)),
    "all_reduce": ("AllReduce", with_more(one_tensor, op=lambda _: SUM)),
    "reduce": ("Reduce", with_more(one_tensor, root=RANK, op=lambda _: SUM)),
    "all_gather": ("AllGather", list_out),
    "all_gather_v": ("AllGatherV", list_out),
    "all_gather_single": ("AllGatherSingle", whole_out),
    "reduce_scatter": ("ReduceScatter", list_in),
    "reduce_scatter_v": ("ReduceScatterV", list_in),
    "reduce_scatter_single": ("ReduceScatterSingle", whole_in),
    "all_to_all_single": ("AllToAllSingle", wholes),
    "all_to_all_v_single": ("AllToAllVSingle", splits),
    "all_to_all": ("AllToAll", lists),
    "barrier": ("Barrier", lambda _: ({}, {})),
    "scatter": ("Scatter", scattered),
    "gather": ("Gather", gathered),
    "gather_single": ("GatherSingle", with_more(whole_out, root=RANK)),
}


def check_shown(args, expected):
    shown = {name for name in dir(args) if not name.startswith("_")}
    assert shown == set(expected)
    for name, value in expected.items():
        got = getattr(args, name)
        if isinstance(value, list):
            assert type(got) is list
            assert len(got) == len(value)
            assert all(a is b or a == b for a, b in zip(got, value, strict=True))
        else:
            assert got is value or got == value
        with pytest.raises(AttributeError):
            setattr(args, name, None)


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arguments(comm, name, async_op):
    stem, build = OPERATIONS[name]
    given, shown = build(comm)
    journal = Journal(comm)
    work = getattr(comm, name)(**given, async_op=async_op)
    [(told, op_id, args)], [(again, after, of)] = journal.pres, journal.posts
    work.wait()
    assert told is getattr(torchcomms.OpName, name)
    assert type(args) is getattr(_comms, f"{stem}PreHookArgs")
    check_shown(args, {**shown, "async_op": async_op})
    assert again == op_id
    assert type(after) is getattr(_comms, f"{stem}PostHookArgs")
    assert isinstance(after, _comms.CollectivePostHookArgs)
    assert of is work


def test_send_and_recv(fake):
    journal = Journal(fake)
    t = torch.ones(2)
    fake.send(t, 2, False)
    fake.recv(t, 0, True)
    send, recv = journal.pres
    assert [send[0], recv[0]] == [torchcomms.OpName.send, torchcomms.OpName.recv]
    check_shown(send[2], {"tensor": t, "peer": 2, "async_op": False})
    check_shown(recv[2], {"tensor": t, "peer": 0, "async_op": True})
    assert [type(args) for _, args, _ in journal.posts] == [
        _comms.SendPostHookArgs,
        _comms.RecvPostHookArgs,
    ]


def test_batch(fake):
    journal = Journal(fake)
    batch = fake.batch_op_create()
    batch.send(torch.ones(2), 2)
    batch.recv(torch.ones(2), 2)
    assert journal.pres == []
    work = batch.issue(True)
    [(name, op_id, args)], [(again, after, of)] = journal.pres, journal.posts
    assert name is torchcomms.OpName.batch_op_issue
    check_shown(args, {"num_ops": 2, "async_op": True})
    assert (again, type(after), of) == (op_id, _comms.BatchOpIssuePostHookArgs, work)


def test_a_batch_goes_with_the_memory_that_hooks_leave(pair):
    sent, received = torch.ones(2), torch.zeros(4096)
    pair[0].register_pre_hook(lambda *_: sent.set_(torch.full((4096,), 2.0)))
    batch = pair[0].batch_op_create()
    batch.send(sent, 1)
    work = batch.issue(True)
    pair[1].recv(received, 0, False)
    work.wait()
    assert received.tolist() == [2.0] * 4096


def test_split(comm):
    journal = Journal(comm)
    rank = comm.get_rank()
    child = comm.split([rank], "child")
    [(name, op_id, args)], [(again, after, work)] = journal.pres, journal.posts
    assert name is torchcomms.OpName.split
    check_shown(args, {"ranks": [rank], "name": "child"})
    assert (again, type(after), work) == (op_id, _comms.SplitPostHookArgs, None)
    assert after._child is child
    child.barrier()
    assert len(journal.pres) == 1, "children have no hooks"
    child.finalize()
    assert comm.split([], "nobody") is None
    assert journal.names() == ["split", "split"]
    assert len(journal.posts) == 1


def test_finalize(comm):
    journal = Journal(comm)
    comm.barrier()
    before = journal.pres[0][1]
    comm.finalize()
    name, op_id, args = journal.pres[1]
    assert (name, op_id) == (torchcomms.OpName.finalize, LAST_ID)
    assert type(args) is _comms.FinalizePreHookArgs
    check_shown(args, {})
    again, after, work = journal.posts[1]
    assert (again, type(after), work) == (LAST_ID, _comms.FinalizePostHookArgs, None)
    with pytest.raises(RuntimeError, match="already finalized"):
        comm.finalize()
    with pytest.raises(RuntimeError, match="already finalized"):
        comm.barrier()
    assert len(journal.pres) == len(journal.posts) == 2
    assert before != LAST_ID


def test_hooks_before_the_first_reconfigure(world):
    """They are registered, and finalize fires them, where there are no ranks yet."""
    world(0, 1)
    comm = torchcomms.new_comm(
        "ncclx", torch.device("cpu"), name="later", enable_reconfigure=True
    )
    journal = Journal(comm)
    with pytest.raises(RuntimeError, match="not initialized"):
        comm.barrier(False)
    assert journal.pres == []
    comm.finalize()
    assert [entry[:2] for entry in journal.pres] == [
        (torchcomms.OpName.finalize, LAST_ID)
    ]
    assert len(journal.posts) == 1


def test_every_class_has_its_place():
    for name in _comms.__all__:
        if name.endswith("HookArgs"):
            assert getattr(torchcomms, name) is getattr(_comms, name)
            with pytest.raises(TypeError):
                getattr(_comms, name)()
    for stem in ("Split", "NewWindow", "Finalize", "BatchOpIssue"):
        post = getattr(_comms, f"{stem}PostHookArgs")
        assert not issubclass(post, _comms.CollectivePostHookArgs)
        assert hasattr(_comms, f"{stem}PreHookArgs")
    with pytest.raises(TypeError):
        torchcomms.RemovableHandle()


# Ids ----------------------------------------------------------------------------------


def test_ids_rise_and_refused_calls_take_none(alone):
    journal = Journal(alone)
    t = torch.ones(2)
    refused = [
        lambda: alone.broadcast(t, 1, False),
        lambda: alone.send(t, 0, False),
        lambda: alone.all_reduce(t, torchcomms.ReduceOp.BAND, False),
        lambda: alone.all_reduce(t[::2].expand(2), SUM, False),
        lambda: alone.all_gather([], t, False),
        lambda: alone.batch_op_create().issue(False),
        lambda: alone.split([0, 0], "twice"),
        lambda: alone.split([7], "nobody"),
    ]
    alone.barrier()
    for call in refused:
        with pytest.raises(RuntimeError):
            call()
    alone.all_reduce(t, SUM, False)
    assert journal.names() == ["barrier", "all_reduce"]
    assert journal.pres[1][1] == journal.pres[0][1] + 1
    assert journal.aborts == 0


def test_one_counter_for_all_communicators(fake, alone):
    first, second = Journal(fake), Journal(alone)
    for _ in range(3):
        fake.barrier()
        alone.barrier()
    ids = [
        op_id for pair in zip(first.pres, second.pres, strict=True) for op_id in pair
    ]
    ids = [entry[1] for entry in ids]
    assert ids == list(range(ids[0], ids[0] + 6))


# Lists of hooks -----------------------------------------------------------------------


def test_order_and_removal(comm):
    calls = []
    handles = [
        comm.register_pre_hook(lambda *_, i=i: calls.append(i)) for i in range(4)
    ]
    comm.barrier()
    handles[1].remove()
    handles[1].remove()
    comm.barrier()
    del handles[3]
    gc.collect()
    comm.barrier()
    assert calls == [0, 1, 2, 3, 0, 2, 3, 0, 2, 3]


def test_a_hook_removes_itself_and_others(comm):
    calls, handles = [], {}

    def remover(*_):
        calls.append("remover")
        handles["self"].remove()
        handles["next"].remove()
        handles["late"] = comm.register_pre_hook(lambda *_: calls.append("late"))

    handles["self"] = comm.register_pre_hook(remover)
    handles["next"] = comm.register_pre_hook(lambda *_: calls.append("next"))
    comm.register_pre_hook(lambda *_: calls.append("last"))
    comm.barrier()
    assert calls == ["remover", "last"]
    comm.barrier()
    assert calls == ["remover", "last", "last", "late"]


def test_a_handle_outlives_its_communicator(world):
    world(0, 1)
    comm = torchcomms.new_comm("fake", torch.device("cpu"), name="short")
    handle = comm.register_post_hook(raises)
    handle_kept = comm.register_pre_hook(lambda *_: None)
    comm_gone = weakref.ref(comm)
    handle.remove()
    comm.finalize()
    del comm
    gc.collect()
    assert comm_gone() is None
    handle_kept.remove()
    handle_kept.remove()


def test_registration_refuses(comm):
    for name in ("register_pre_hook", "register_post_hook", "register_abort_hook"):
        with pytest.raises(TypeError, match="callback must be callable, but got"):
            getattr(comm, name)(3)
        with pytest.raises(TypeError):
            getattr(comm, name)()
        getattr(comm, name)(callback=print).remove()


# Exceptions ---------------------------------------------------------------------------


def test_a_pre_hook_that_raises(alone):
    journal = Journal(alone)
    error = Oops("mine")

    def refuse(*_):
        raise error

    handle = alone.register_pre_hook(refuse)
    tensor = torch.ones(2)
    refs = sys.getrefcount(tensor)
    for call in (
        lambda: alone.all_reduce(tensor, torchcomms.ReduceOp.PREMUL_SUM(3), False),
        lambda: alone.all_reduce(tensor, SUM, True),
        lambda: alone.split([0], "child"),
        alone.finalize,
    ):
        with pytest.raises(Oops) as caught:
            call()
        assert caught.value is error
        assert traceback.extract_tb(error.__traceback__)[-1].name == "refuse"
        error.__traceback__ = None
        del caught
    journal.pres.clear()
    gc.collect()
    assert sys.getrefcount(tensor) == refs
    assert tensor.tolist() == [1.0, 1.0], "the backend was not called"
    assert journal.posts == []
    assert journal.aborts == 0
    handle.remove()
    alone.all_reduce(tensor, torchcomms.ReduceOp.PREMUL_SUM(3), False)
    assert tensor.tolist() == [3.0, 3.0]


def test_a_pre_hook_that_gives_a_tensor_other_memory(alone):
    """What is communicated is the tensor as the hooks leave it."""
    tensor, bad = torch.ones(2), torch.ones(2)
    alone.register_pre_hook(lambda *_: tensor.set_(torch.full((4096,), 2.0)))
    handle = alone.register_pre_hook(lambda *_: bad.set_(torch.ones(4, 4).t()))
    alone.all_reduce(tensor, torchcomms.ReduceOp.PREMUL_SUM(3), False)
    assert tensor.tolist() == [6.0] * 4096
    with pytest.raises(RuntimeError, match="contiguous"):
        alone.all_reduce(bad, SUM, False)
    handle.remove()


def test_a_post_hook_that_raises(alone):
    calls = []
    handle = alone.register_post_hook(raises)
    alone.register_post_hook(lambda *_: calls.append(1))
    tensor = torch.ones(2)
    for async_op in (False, True):
        with pytest.raises(Oops, match="from a hook"):
            alone.all_reduce(tensor, torchcomms.ReduceOp.PREMUL_SUM(3), async_op)
    assert tensor.tolist() == [9.0, 9.0], "the operation was done all the same"
    assert calls == []
    handle.remove()
    alone.barrier()
    assert calls == [1]


def test_no_reference_is_lost_or_kept(alone):
    """Arguments, works and exceptions of many calls leave nothing behind."""

    def rounds(count):
        tensor = torch.ones(2)
        for _ in range(count):
            journal = Journal(alone)
            alone.all_reduce(tensor, SUM, True).wait()
            alone.all_gather([torch.ones(2)], tensor, False)
            handle = alone.register_pre_hook(raises)
            with pytest.raises(Oops):
                alone.barrier()
            handle.remove()
            journal.remove()
        gc.collect()
        return len(gc.get_objects())

    rounds(20)
    before = rounds(20)
    assert rounds(200) - before < 20


# Abort hooks --------------------------------------------------------------------------


def test_abort_hook_of_a_synchronous_call(pair, monkeypatch):
    calls = []
    comm = pair[0]
    comm.register_abort_hook(lambda: calls.append("first"))
    comm.register_abort_hook(raises)
    comm.register_abort_hook(lambda: calls.append("last"))
    posts = []
    comm.register_post_hook(lambda *_: posts.append(1))
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_value))
    with pytest.raises(RuntimeError, match="recv"):
        comm.recv(torch.ones(2), 1, False, timeout=timedelta(milliseconds=20))
    assert calls == ["first", "last"]
    assert [type(error) for error in unraisable] == [Oops]
    assert posts == []


def test_abort_hook_of_an_asynchronous_call(pair):
    calls = []
    comm = pair[0]
    comm.register_abort_hook(lambda: calls.append(1))
    work = comm.recv(torch.ones(2), 1, True, timeout=timedelta(milliseconds=20))
    for _ in range(3):
        with pytest.raises(RuntimeError):
            work.wait()
    assert not work.is_completed()
    assert calls == [1]


def test_abort_hooks_are_for_failures(comm):
    journal = Journal(comm)
    with pytest.raises(RuntimeError):
        comm.broadcast(torch.ones(2), 99, False)
    comm.barrier()
    assert journal.aborts == 0


# Observers ----------------------------------------------------------------------------


def test_observe_a_completed_work(comm):
    """api.md 6: what has happened is told at once."""
    events = []
    handle = comm.register_post_hook(
        lambda _, args: args._work._observe(lambda e, ns: events.append((e, ns)))
    )
    work = comm.barrier(False)
    handle.remove()
    assert [e for e, _ in events] == ["start", "end"]
    assert 0 < events[0][1] <= events[1][1]
    work.wait()
    assert [e for e, _ in events] == ["start", "end", "wait"]


def test_observe_without_hooks(comm):
    events = []
    comm.barrier(False)._observe(lambda e, ns: events.append(e))
    assert events == ["start", "end"]
    with pytest.raises(TypeError, match="fn must be callable"):
        comm.barrier(False)._observe(None)


def check_events(events):
    """The operation may end before the wait begins."""
    assert events[0] == "start"
    assert sorted(events) == ["end", "start", "wait"]


def test_observe_a_pending_work(pair):
    """api.md 6: each observer hears of everything once, in order."""
    events = []
    work = pair[0].recv(torch.ones(2), 1, True)

    def observe(tag):
        work._observe(lambda e, ns: events.append((tag, e, ns)))

    observe("a")
    observe("b")
    assert [(tag, e) for tag, e, _ in events] == [("a", "start"), ("b", "start")]
    pair[1].send(torch.ones(2), 0, False)
    work.wait()
    observe("late")
    seen = {tag: [e for t, e, _ in events if t == tag] for tag in ("a", "b", "late")}
    assert seen["a"] == seen["b"]
    check_events(seen["a"])
    assert seen["late"] == ["start", "end"]
    ends = {ns for _, e, ns in events if e == "end"}
    starts = {ns for _, e, ns in events if e == "start"}
    assert len(ends) == 1
    assert max(starts) <= min(ends)


def test_observe_a_work_that_fails(pair):
    """api.md 6: a failure is an end, too."""
    events = []
    work = pair[0].recv(torch.ones(2), 1, True, timeout=timedelta(milliseconds=20))
    work._observe(lambda e, ns: events.append(e))
    with pytest.raises(RuntimeError):
        work.wait()
    check_events(events)


def test_an_observer_that_raises(pair, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: unraisable.append(u.exc_value))
    work = pair[0].recv(torch.ones(2), 1, True)
    work._observe(raises)
    pair[1].send(torch.ones(2), 0, False)
    work.wait()
    assert [type(error) for error in unraisable] == [Oops, Oops, Oops]


def test_an_observed_work_that_is_dropped(pair):
    """The end is told though nobody has the work or waits."""
    events = []
    tensor = torch.zeros(2)
    pair[0].recv(tensor, 1, True)._observe(lambda e, ns: events.append(e))
    pair[1].send(torch.ones(2), 0, False)
    on_all(pair, lambda comm: comm.barrier(False))
    assert events == ["start", "end"]


# References ---------------------------------------------------------------------------


def test_cycles_through_hooks_are_collected(world):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="cycle")

    hook = holder_of(comm)
    comm.register_pre_hook(hook)
    comm.register_abort_hook(hook)
    comm.barrier()
    gone = weakref.ref(comm), weakref.ref(hook)
    comm.finalize()
    del comm, hook
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_removed_hook_is_let_go(comm):
    def hook(*_):
        pass

    handle = comm.register_pre_hook(hook)
    comm.barrier()
    gone = weakref.ref(hook)
    del hook
    assert gone() is not None
    handle.remove()
    assert gone() is None


def test_a_cycle_of_an_observer_is_collected(pair):
    work = pair[0].recv(torch.ones(2), 1, True)

    observer = holder_of(work)
    work._observe(observer)
    pair[1].send(torch.ones(2), 0, False)
    work.wait()
    gone = weakref.ref(work), weakref.ref(observer)
    del work, observer
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_post_arguments_keep_no_work(comm):
    kept = []
    comm.register_post_hook(lambda _, args: kept.append((args, args._work is None)))
    comm.barrier(False)
    [(args, was_none)] = kept
    assert not was_none
    assert args._work is None


# c10d ---------------------------------------------------------------------------------


@pytest.fixture
def wrapper(fake):
    return _comms._BackendWrapper(fake)


def test_calls_through_c10d(fake, wrapper):
    journal = Journal(fake)
    t = torch.ones(2)
    wrapper.allreduce([t]).wait()
    wrapper.broadcast([t]).wait()
    wrapper.barrier().wait()
    assert journal.names() == ["all_reduce", "broadcast", "barrier"]
    (_, _, reduce), (_, _, broadcast), (_, _, barrier) = journal.pres
    check_shown(reduce, {"tensor": t, "op": SUM, "async_op": True})
    check_shown(broadcast, {"tensor": t, "root": 0, "async_op": True})
    check_shown(barrier, {"async_op": True})
    assert [p[1] for p in journal.pres] == [p[0] for p in journal.posts]
    assert all(type(work) is torchcomms.TorchWork for _, _, work in journal.posts)


def test_what_a_hook_raises_goes_through_c10d(fake, wrapper):
    error = Oops("mine")

    def refuse(*_):
        raise error

    handle = fake.register_pre_hook(refuse)
    options = AllreduceOptions()
    options.asyncOp = False
    for call in (lambda: wrapper.allreduce([torch.ones(2)], options), wrapper.barrier):
        with pytest.raises(Oops) as caught:
            call()
        assert caught.value is error
        assert traceback.extract_tb(error.__traceback__)[-1].name == "refuse"
    handle.remove()
    wrapper.barrier().wait()


def test_hooks_live_as_long_as_c10d_has_the_communicator(world):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="held")
    calls = []

    hook = holder_of(comm, lambda name, *_: calls.append(name.name))
    comm.register_pre_hook(hook)
    wrapper = _comms._BackendWrapper(comm)
    gone = weakref.ref(hook)
    del comm, hook
    gc.collect()
    wrapper.barrier().wait()
    assert calls == ["barrier"]
    assert gone() is not None
    wrapper.get_comm().finalize()
    assert calls == ["barrier", "finalize"]
    del wrapper
    gc.collect()
    assert gone() is None


# Threads ------------------------------------------------------------------------------


def test_threads_with_communicators_of_their_own():
    pairs = [make_ranks(2, name=f"threads{i}") for i in range(3)]
    comms = [comm for made in pairs for comm in made]
    journals = [Journal(comm) for comm in comms]

    def work(comm):
        for i in range(30):
            extra = comm.register_pre_hook(lambda *_: None)
            comm.all_reduce(torch.ones(2), SUM, i % 2 == 0).wait()
            extra.remove()

    on_all(comms, work)
    ids = [entry[1] for journal in journals for entry in journal.pres]
    assert len(ids) == len(set(ids)) == 6 * 30
    for journal in journals:
        own = [entry[1] for entry in journal.pres]
        assert own == sorted(own) == [entry[0] for entry in journal.posts]
    leave(comms)


def test_hooks_of_a_forked_child_are_refused(alone):
    """The lock of the hooks may be another thread's there."""
    handle = alone.register_pre_hook(lambda *_: None)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for call in (
                lambda: alone.register_pre_hook(print),
                handle.remove,
                alone.barrier,
            ):
                try:
                    call()
                except RuntimeError:
                    continue
                break
            else:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    alone.barrier()
