# SPDX-License-Identifier: BSD-3-Clause
"""api.md 14: collectives of Python objects."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
import torch

from torchcomms import objcol

TIMEOUT = timedelta(seconds=60)


def thing(rank):
    """Another size on every rank, from strings to nested tensors."""
    return {"rank": rank, "text": "x" * 1000 * rank, "tensor": torch.arange(rank + 1)}


def same(a, b):
    return (a["rank"], a["text"]) == (b["rank"], b["text"]) and torch.equal(
        a["tensor"], b["tensor"]
    )


class Unknown:
    """What weights_only=True refuses."""

    def __eq__(self, other):
        return isinstance(other, Unknown)


def gathers(me):
    comm = me.comm()
    out = [None] * me.size
    mine = f"object of rank {me.rank}"
    assert (
        objcol.all_gather_object(comm, out, mine, timeout=TIMEOUT, weights_only=True)
        is None
    )
    assert out == [f"object of rank {r}" for r in range(me.size)]
    objcol.all_gather_object(comm, out, thing(me.rank))
    assert all(same(out[r], thing(r)) for r in range(me.size))
    for root in range(me.size):
        got = [None] * me.size if me.rank == root else None
        assert objcol.gather_object(comm, mine, root, got, TIMEOUT) is None
        if me.rank == root:
            assert got == [f"object of rank {r}" for r in range(me.size)]
        # A list of another rank is left alone.
        got = ["kept"] * me.size
        objcol.gather_object(comm, thing(me.rank), root=root, object_gather_list=got)
        if me.rank == root:
            assert all(same(got[r], thing(r)) for r in range(me.size))
        else:
            assert got == ["kept"] * me.size


def ring(me):
    comm = me.comm()
    right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    got = [None, None, None]
    calls = [
        lambda: objcol.send_object_list(
            comm, [f"from {me.rank}", thing(me.rank), None], right, TIMEOUT
        ),
        lambda: objcol.recv_object_list(comm, got, left, TIMEOUT),
    ]
    for call in calls if me.rank % 2 == 0 else reversed(calls):
        assert call() is None
    assert got[0] == f"from {left}"
    assert same(got[1], thing(left))
    assert got[2] is None


def from_a_root(me):
    comm = me.comm()
    for root in range(me.size):
        own = [f"from {root}", thing(root)] if me.rank == root else [None, None]
        before = list(own)
        assert objcol.broadcast_object_list(comm, own, root, TIMEOUT) is None
        if me.rank == root:
            assert own[0] is before[0]
            assert own[1] is before[1]
        assert own[0] == f"from {root}"
        assert same(own[1], thing(root))
        out = [None, "untouched"]
        given = [thing(r) for r in range(me.size)] if me.rank == root else None
        assert objcol.scatter_object_list(comm, root, out, given, TIMEOUT) is None
        assert same(out[0], thing(me.rank))
        assert out[1] == "untouched"


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("function", [gathers, ring, from_a_root])
def test_objects_arrive_in_rank_order(ranks, function, size):
    ranks(size).run(function)


def refusals(me):
    comm = me.comm()
    root = me.rank == 0
    for call, error, text in (
        (
            lambda: objcol.scatter_object_list(comm, 0, []),
            ValueError,
            "must be a list that is not empty",
        ),
        (
            lambda: objcol.scatter_object_list(comm, 0, ()),
            ValueError,
            "must be a list that is not empty",
        ),
        (
            lambda: objcol.all_gather_object(comm, [None], "x"),
            ValueError,
            f"object_list must have {me.size} elements, but has 1",
        ),
        (
            lambda: objcol.all_gather_object(comm, "list", "x"),
            TypeError,
            "object_list must be a list, but got str",
        ),
        (
            lambda: objcol.gather_object(comm, "x", me.size),
            RuntimeError,
            rf"root must be in range \[0, {me.size}\), but got {me.size}",
        ),
        (lambda: objcol.send_object_list(comm, [], 0), ValueError, "not be empty"),
        (lambda: objcol.recv_object_list(comm, [], 0), ValueError, "not be empty"),
        (lambda: objcol.broadcast_object_list(comm, [], 0), ValueError, "be empty"),
    ):
        with pytest.raises(error, match=text):
            call()
    if root:
        with pytest.raises(AssertionError, match="root needs object_gather_list"):
            objcol.gather_object(comm, "x", 0)
        with pytest.raises(ValueError, match="root needs scatter_object_input_list"):
            objcol.scatter_object_list(comm, 0, [None])
        with pytest.raises(ValueError, match="must have .* elements, but has 1"):
            objcol.scatter_object_list(comm, 0, [None], ["x"])
    # Nothing was sent: the right calls work.
    out = [None] * me.size
    objcol.all_gather_object(comm, out, me.rank)
    assert out == list(range(me.size))


def test_bad_arguments_are_refused_before_anything_is_sent(ranks):
    ranks(2).run(refusals)


def weights_only(me):
    comm = me.comm()
    out = [None] * me.size
    with pytest.raises(Exception, match="[Ww]eights"):
        objcol.all_gather_object(comm, out, Unknown())
    objcol.all_gather_object(comm, out, Unknown(), weights_only=False)
    assert out == [Unknown()] * me.size
    lists = [Unknown()] if me.rank == 0 else [None]
    objcol.broadcast_object_list(comm, lists, 0, weights_only=False)
    assert lists == [Unknown()]


def test_arbitrary_classes_are_refused_unless_asked_for(ranks):
    ranks(2).run(weights_only)


def pickled(me):
    assert objcol._plain_pickle()
    comm = me.comm()
    out = [None] * me.size
    # A plain pickle knows no weights_only.
    objcol.all_gather_object(comm, out, Unknown())
    assert out == [Unknown()] * me.size
    os.environ["TORCHCOMMS_SERIALIZATION"] = ""
    assert objcol._plain_pickle()  # read once


def test_serialization_by_plain_pickles(fresh):
    fresh(2, env={"TORCHCOMMS_SERIALIZATION": "pickle"}).run(pickled)


def test_another_serialization_is_refused():
    program = """
from torchcomms import objcol
import torch
try:
    objcol._object_to_tensor(1, torch.device("cpu"))
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCHCOMMS_SERIALIZATION": "json"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    wanted = "TORCHCOMMS_SERIALIZATION must be 'pickle' or not set, but is 'json'\n"
    assert (done.stdout, done.returncode) == (wanted, 0), done.stderr
