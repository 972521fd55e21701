# SPDX-License-Identifier: BSD-3-Clause
"""What torch.profiler shows of the c10d door: an event `<backend name>:<op>` for each
call, and record_param_comms with what is communicated, as for torch's own backends."""

import json
import os

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import DOORS, world

N = 6
FIELDS = (
    "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size",
    "Process Group Name", "Process Group Ranks",
)  # fmt: skip


def trace(me, function):
    """The events of one call: names with a backend's, and record_param_comms."""
    with torch.profiler.profile(record_shapes=True) as profiler:
        function()
    path = os.path.join(me.folder, f"trace{me.rank}.json")
    profiler.export_chrome_trace(path)
    with open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    comms = [e["args"] for e in events if e["name"] == "record_param_comms"]
    named = [
        e["name"] for e in events if e["name"].startswith(("torchcomms:", "ncclx:"))
    ]
    return named, comms


def one(me, function):
    """The one event of each kind that a call makes."""
    (name,), (comms,) = trace(me, function)
    assert set(FIELDS) <= set(comms), comms
    shown = (comms[f] for f in ("Collective name", "In msg nelems", "Out msg nelems"))
    return name, *shown, comms["dtype"]


def rows(me):
    """Call, and the event that is wanted of it."""
    size, peer = me.size, 1 - me.rank
    t, whole = torch.ones(N), torch.ones(N * size)
    parts = list(whole.chunk(size))
    at_root = parts if me.rank == 0 else None
    uneven = [2, 4] if me.rank == 0 else [4, 2]
    p2p = dist.send if me.rank == 0 else dist.recv
    all_to_all = lambda *splits: dist.all_to_all_single(t.clone(), t, *splits)  # noqa: E731
    return {
        "all_reduce": (lambda: dist.all_reduce(t), "allreduce", N, N),
        "broadcast": (lambda: dist.broadcast(t, 1), "broadcast", N, N),
        "reduce": (lambda: dist.reduce(t, 0), "reduce", N, N),
        "all_gather": (lambda: dist.all_gather(parts, t), "all_gather", N, 2 * N),
        "all_gather_into_tensor": (
            lambda: dist.all_gather_into_tensor(whole, t), "_allgather_base", N, 2 * N,
        ),
        "reduce_scatter": (
            lambda: dist.reduce_scatter(t, parts), "reduce_scatter", 2 * N, N,
        ),
        "reduce_scatter_tensor": (
            lambda: dist.reduce_scatter_tensor(t, whole),
            "_reduce_scatter_base", 2 * N, N,
        ),
        "gather": (lambda: dist.gather(t, at_root), "gather", N, 2 * N),
        "scatter": (lambda: dist.scatter(t, at_root), "scatter", 2 * N, N),
        "all_to_all": (lambda: all_to_all(), "all_to_all", N, N),
        "all_to_all ": (lambda: all_to_all(uneven, uneven), "all_to_allv", N, N),
        "barrier": (lambda: dist.barrier(), "barrier", 0, 0),
        p2p.__name__: (lambda: p2p(t, peer), p2p.__name__, N, N),
    }  # fmt: skip


def every_call(me, door):
    with DOORS[door](me, backend="ncclx"):
        for op, (call, *wanted) in rows(me).items():
            dtype = "Byte" if op == "barrier" else "Float"
            assert one(me, call) == (f"ncclx:{op.strip()}", *wanted, dtype)


@pytest.mark.parametrize("door", DOORS)
def test_every_call_has_its_events(ranks, door):
    ranks(2).run(every_call, door)


def groups(me):
    with world(me) as group:
        t = torch.ones(N, dtype=torch.bfloat16)
        named, (comms,) = trace(me, lambda: dist.all_reduce(t, async_op=True).wait())
        assert named == ["torchcomms:all_reduce"]
        assert comms["dtype"] == "BFloat16"
        assert comms["Group size"] == 3
        assert comms["Process Group Name"] == group.group_name
        assert comms["Process Group Description"] == "default_pg"
        assert comms["Process Group Ranks"] == "[0, 1, 2]"
        outer = dist.new_group([0, 2], group_desc="outer")
        turned = dist.new_group([2, 0, 1], sort_ranks=False)
        if me.rank != 1:
            _, (comms,) = trace(me, lambda: dist.all_reduce(t, group=outer))
            assert comms["Process Group Name"] == outer.group_name
            assert comms["Process Group Description"] == "outer"
            assert comms["Process Group Ranks"] == "[0, 2]"
        _, (comms,) = trace(me, lambda: dist.all_reduce(t, group=turned))
        assert comms["Group size"] == 3


def test_groups_are_told_apart(ranks):
    ranks(3).run(groups)


def splits_and_batches(me):
    with world(me):
        t = torch.ones(N)
        uneven = [2, 4] if me.rank == 0 else [4, 2]
        out = torch.ones(N)
        _, (comms,) = trace(me, lambda: dist.all_to_all_single(out, t, uneven, uneven))
        assert comms["In split size"] == comms["Out split size"] == str(uneven)
        ops = [dist.P2POp(op, t, 1 - me.rank) for op in (dist.isend, dist.irecv)]
        named, comms = trace(
            me, lambda: [w.wait() for w in dist.batch_isend_irecv(ops)]
        )
        assert [c["Collective name"] for c in comms] == ["send", "recv"]
        tensors = [torch.ones(2), torch.ones(3)]
        _, comms = trace(me, lambda: dist.all_reduce_coalesced(tensors))
        assert [c["In msg nelems"] for c in comms] == [2, 3]


def test_splits_batches_and_coalesced_calls(ranks):
    ranks(2).run(splits_and_batches)


def unprofiled(me):
    """Nothing is recorded, and nothing is kept for it, while no profiler runs."""
    with world(me):
        t = torch.ones(N)
        with torch.profiler.profile() as profiler:
            pass
        dist.all_reduce(t)
        names = {e.name for e in profiler.events()}
        assert not any("torchcomms" in n or "param_comms" in n for n in names), names
        # A failing call ends its events, so that the next ones are whole.
        with pytest.raises(ValueError, match="expected"):
            trace(me, lambda: dist.reduce_scatter_tensor(t, torch.ones(N)))
        assert one(me, lambda: dist.all_reduce(t))[0] == "torchcomms:all_reduce"


def test_nothing_without_a_profiler(ranks):
    ranks(2).run(unprofiled)
