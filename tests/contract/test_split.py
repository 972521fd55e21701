# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5: split, on every backend."""

import pytest
import torch

import torchcomms
from contract.support import SIZE, raises

GROUPS = {
    "contiguous": [[0, 1], [2, 3]],
    "strided": [[0, 2], [1, 3]],
    "reversed": [[3, 2, 1, 0]],
    "uneven": [[1, 3, 0], [2]],
    "single": [[2]],
    "none": [],
    "each alone": [[0], [1], [2], [3]],
}


def use(comm, members, parent_rank):
    assert comm.get_size() == len(members)
    assert comm.get_rank() == members.index(parent_rank)
    got = torch.empty(len(members))
    comm.all_gather_single(got, torch.tensor([float(parent_rank)]), False)
    assert got.tolist() == [float(r) for r in members]


def name_of_child(backend, name, members):
    """What the contract keeps for exact compatibility of logs."""
    return f"{name}_{min(members)}" if backend == "gloo" else name


def splits(me, backend, groups):
    parent = me.comm(backend=backend)
    mine = next((g for g in groups if me.rank in g), [])
    child = parent.split(mine, "child")
    if not mine:
        assert child is None
    else:
        me.keep(child)
        assert child.get_name() == name_of_child(backend, "child", mine)
        assert child.get_backend() == backend
        assert child.get_device() == parent.get_device()
        use(child, mine, me.rank)
        inner = [*range(len(mine))][::-1]
        grandchild = me.keep(child.split(inner, "child"))
        use(grandchild, inner, child.get_rank())
    use(parent, [*range(SIZE)], me.rank)
    again = parent.split(mine, "child")
    parent.finalize()
    if again is not None:
        use(me.keep(again), mine, me.rank)
        use(child, mine, me.rank)


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)
def test_split(ranks, backend, groups):
    ranks(SIZE).run(splits, backend, groups)


def refused(me, backend):
    comm = me.comm(backend=backend)
    with raises("are both 1"):
        comm.split([1, 1], "child")
    with raises("rank must be in range [0, 4), but got 4"):
        comm.split([me.rank, 4], "child")
    other = (me.rank + 1) % SIZE
    with raises("is not included in the provided ranks list"):
        comm.split([other], "child")
    use(comm, [*range(SIZE)], me.rank)


def test_refused_lists(ranks, backend):
    ranks(SIZE).run(refused, backend)


def disagree(me, backend):
    comm = me.comm(backend=backend)
    with raises("another list"):
        comm.split([0, 1, 2, 3] if me.rank < 2 else [3, 2, 1, 0], "child")
    use(comm, [*range(SIZE)], me.rank)


def test_lists_that_differ_are_an_error_on_every_rank(ranks, backend):
    ranks(SIZE).run(disagree, backend)


def options(me, backend):
    from datetime import timedelta

    comm = me.comm(backend=backend, hints={"a": "b"})
    child = me.keep(comm.split([*range(SIZE)], "child"))
    assert child.get_options().hints == {"a": "b"}
    assert child.get_options().timeout == comm.get_options().timeout
    given = {"hints": {"c": "d"}, "timeout": timedelta(seconds=17)}
    child = me.keep(comm.split([*range(SIZE)], "child", **given))
    assert child.get_options().hints == {"c": "d"}
    assert child.get_options().timeout == timedelta(seconds=17)
    child.all_reduce(torch.ones(1), torchcomms.ReduceOp.SUM, False)


def test_options_of_a_child(ranks, backend):
    ranks(SIZE).run(options, backend)
