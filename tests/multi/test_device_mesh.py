# SPDX-License-Identifier: BSD-3-Clause
"""api.md 15: torchcomms.device_mesh: a DeviceMesh over communicators that the user
made."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed.config as config
import torch.distributed.distributed_c10d as c10d

import torchcomms
from multi.support.meshes import (
    check_functional,
    check_group,
    check_mesh,
    groups_end,
    mesh_of,
    names_of,
    row_with,
    rows_of,
    split_dims,
)
from torchcomms import device_mesh
from torchcomms.device_mesh import (
    _create_torchcomm_process_group,
    _flatten_with_comm,
    init_device_mesh,
)
from unit.thread_ranks import make_fake

CPU = torch.device("cpu")


def backend_of(group):
    return group._get_backend(CPU)


def untouched():
    """Nothing of a refused mesh stays in the tables of torch.distributed."""
    return not (c10d._world.pg_map or c10d._world.pg_names or dist.is_initialized())


# Meshes -------------------------------------------------------------------------------


def one_dimension(me):
    with mesh_of(me, (me.size,), ("main",)) as mesh:
        group = mesh.get_group("main")
        assert group.group_name == "main"
        assert group is mesh.get_group()
        assert group is dist.group.WORLD
        assert dist.get_backend(group) == "torchcomm"
        assert dist.get_backend_config(group) == "cpu:torchcomm"
        assert backend_of(group).name() == "ncclx"
        check_mesh(mesh, (me.size,), me)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_one_dimension(ranks, size):
    ranks(size).run(one_dimension)


def many_dimensions(me, shape):
    names = names_of(shape)
    with mesh_of(me, shape) as mesh:
        assert mesh.mesh_dim_names == names
        for dim, name in enumerate(names):
            assert mesh.get_group(name).group_name == name
            assert mesh.get_group(dim) is mesh.get_group(name)
        world = dist.group.WORLD
        assert world.group_name == "main"
        check_group(world, list(range(me.size)), me)
        check_mesh(mesh, shape, me)


@pytest.mark.parametrize(
    "shape",
    [(2, 1), (1, 2), (3, 1), (1, 3), (2, 2), (4, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2)],
    ids=str,
)
def test_many_dimensions(ranks, shape):
    ranks(torch.Size(shape).numel()).run(many_dimensions, shape)


def slices(me):
    shape = (2, 1, 2)
    with mesh_of(me, shape) as mesh:
        for dim, name in enumerate(names_of(shape)):
            ranks = row_with(rows_of(shape, dim), me.rank)
            one = mesh[name]
            assert one.mesh.tolist() == ranks
            assert one.get_group() is mesh.get_group(name)
            check_functional((one, 0), ranks, me)
        outer = mesh["pp", "dp"]
        assert outer.shape == (2, 1)
        assert outer["pp"].get_group().group_name == "pp"
        check_group(outer.get_group("pp"), row_with(rows_of(shape, 0), me.rank), me)


def test_slices(ranks):
    ranks(4).run(slices)


# Flattened dimensions -----------------------------------------------------------------


def flattened_ranks(shape, dims, rank):
    """The ranks that differ from `rank` in these dimensions only."""
    ranks = torch.arange(torch.Size(shape).numel()).view(shape)
    others = [dim for dim in range(len(shape)) if dim not in dims]
    width = torch.Size(shape[dim] for dim in dims).numel()
    rows = ranks.permute(*others, *dims).reshape(-1, width).tolist()
    return row_with(rows, rank)


def flatten(me, shape, dims):
    names = tuple(names_of(shape)[dim] for dim in dims)
    ranks = flattened_ranks(shape, dims, me.rank)
    with mesh_of(me, shape) as mesh:
        part = mesh[names]
        comm = backend_of(dist.group.WORLD).get_comm().split(ranks, "flat")
        flat = _flatten_with_comm(part, "flat", comm, ranks, part._layout)
        assert flat.mesh.tolist() == ranks
        assert flat.mesh_dim_names == ("flat",)
        assert flat.get_group().group_name == "flat"
        assert mesh.get_group("flat") is flat.get_group()
        assert mesh["flat"].mesh.tolist() == ranks
        # What torch itself would make of it is the same mesh.
        assert part._flatten("flat") is flat
        assert flat.get_local_rank() == ranks.index(me.rank)
        check_group(flat.get_group(), ranks, me)
        check_functional((flat, 0), ranks, me)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2, 1), (0, 1)),
        ((1, 3), (0, 1)),
        ((2, 2), (0, 1)),
        ((2, 1, 2), (1, 2)),
        ((2, 1, 2), (0, 2)),
        ((2, 2, 2), (0, 1)),
        ((2, 2, 2), (0, 2)),
        ((2, 2), (0,)),
    ],
    ids=str,
)
def test_flatten_with_a_communicator(ranks, shape, dims):
    ranks(torch.Size(shape).numel()).run(flatten, shape, dims)


def flatten_by_torch(me):
    shape = (2, 1, 2)
    with mesh_of(me, shape) as mesh:
        every = mesh._flatten("every")
        check_group(every.get_group(), list(range(me.size)), me)
        some = mesh["dp", "tp"]._flatten("some")
        ranks = row_with(rows_of(shape, 2), me.rank)
        check_group(some.get_group(), ranks, me)
        assert backend_of(some.get_group()).name() == "ncclx"
        parts = every._unflatten(0, (2, 2), ("a", "b"))
        check_group(parts.get_group("b"), ranks, me)


def test_flatten_and_unflatten_by_torch(ranks):
    ranks(4).run(flatten_by_torch)


class OlderLayout:
    """As in versions of torch whose layouts have no collapse()."""

    def __init__(self, *axes):
        self.axes = axes

    def __len__(self):
        return len(self.axes)

    def coalesce(self):
        return OlderLayout(*(axis for axis in self.axes if axis != 1))

    def nest(self):
        return OlderLayout(self.axes)


def test_layouts_of_older_torch():
    assert device_mesh._flat(OlderLayout(2, 1)).axes == (2,)
    assert device_mesh._flat(OlderLayout(2, 1, 3)).axes == ((2, 3),)


def flat_layout(me):
    with mesh_of(me, (1, 2)) as mesh:
        comm = me.keep(backend_of(dist.group.WORLD).get_comm().split([0, 1], "flat"))
        layout = mesh["tp"]._layout[0]
        flat = _flatten_with_comm(mesh, "flat", comm, [0, 1], layout)
        check_group(flat.get_group(), [0, 1], me)


def test_flatten_with_the_layout_of_one_dimension(ranks):
    ranks(2).run(flat_layout)


def refuse_flatten(me):
    with mesh_of(me, (2, 2)) as mesh:
        comm = backend_of(dist.group.WORLD).get_comm()
        every, layout = list(range(4)), mesh._layout
        pair = mesh.get_group("tp")
        with pytest.raises(RuntimeError, match="'tp' is a dimension.*dp, tp"):
            _flatten_with_comm(mesh, "tp", comm, every, layout)
        with pytest.raises(RuntimeError, match="group is named 'main' already"):
            _flatten_with_comm(mesh, "main", comm, every, layout)
        with pytest.raises(RuntimeError, match="has 3 ranks, but .* 'main' has 4"):
            _flatten_with_comm(mesh, "flat", comm, every[:3], layout)
        with pytest.raises(RuntimeError, match=r"\[0, 2, 1, 3\], but .*\[0, 1, 2, 3\]"):
            _flatten_with_comm(mesh, "flat", comm, [0, 2, 1, 3], layout)
        with pytest.raises(TypeError, match="comm must be a torchcomms.TorchComm"):
            _flatten_with_comm(mesh, "flat", pair, every, layout)
        backwards = me.keep(comm.split([3, 2, 1, 0], "backwards"))
        with pytest.raises(RuntimeError, match=f"is rank {me.rank} of the mesh, but"):
            _flatten_with_comm(mesh, "flat", backwards, every, layout)
        assert sorted(c10d._world.pg_names.values()) == ["dp", "main", "tp"]
        flat = _flatten_with_comm(mesh, "flat", comm, every, layout)
        check_group(flat.get_group(), every, me)


def test_flatten_refuses_what_does_not_fit(ranks):
    ranks(4).run(refuse_flatten)


# Groups made of its groups ------------------------------------------------------------


def split(me):
    with mesh_of(me, (2, me.size // 2)) as mesh:
        world, dp = dist.group.WORLD, mesh.get_group("dp")
        half = row_with([[0, 1], [2, 3]], me.rank)
        child = world.split_group(half, group_name="half")
        assert backend_of(child).name() == "ncclx"
        assert child.group_name == "half"
        alone = dp.split_group([dp.rank()], group_name="alone")
        assert backend_of(alone).name() == "ncclx"
        tensor = torch.full((3,), me.rank)
        child.allreduce([tensor]).wait()
        assert tensor[0] == sum(half)
        alone.allreduce([tensor]).wait()
        assert tensor[0] == sum(half)
        child.shutdown()
        alone.shutdown()


def test_split_keeps_the_backend_name(ranks):
    ranks(4).run(split)


def new_groups(me):
    with mesh_of(me, (me.size,), ("main",)):
        # First: torch puts the number of groups that a rank has into its name.
        local = dist.new_group([0, me.size - 1], use_local_synchronization=True)
        pair = dist.new_group([0, 1])
        every = dist.new_group()
        check_group(every, list(range(me.size)), me)
        assert backend_of(every).name() == "ncclx"
        if me.rank in (0, 1):
            check_group(pair, [0, 1], me)
            dist.destroy_process_group(pair)
        if me.rank in (0, me.size - 1):
            check_group(local, [0, me.size - 1], me)
        check_group(dist.group.WORLD, list(range(me.size)), me)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_new_group(ranks, size):
    ranks(size).run(new_groups)


def groups_by_the_switch(me):
    rest = list(range(1, me.size))
    with mesh_of(me, (me.size,)), config.patch(use_torchcomms=True):
        pair = dist.new_group([0, 1])
        parts = dist.split_group(split_ranks=[[0], rest])
        if me.rank in (0, 1):
            check_group(pair, [0, 1], me)
        check_group(parts, [0] if me.rank == 0 else rest, me)
        assert backend_of(parts).name() == "ncclx"
        check_group(dist.group.WORLD, list(range(me.size)), me)


@pytest.mark.parametrize("size", [2, 3])
def test_new_group_and_split_group_by_the_switch(ranks, size):
    ranks(size).run(groups_by_the_switch)


def new_group_with_barrier(me):
    # After each new_group torch waits for all ranks by the default group's store.
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
    with mesh_of(me, (me.size,)):
        group = dist.new_group([0, 2])
        if me.rank != 1:
            check_group(group, [0, 2], me)


def test_the_store_is_one_for_all_ranks(ranks):
    ranks(3).run(new_group_with_barrier)


def no_store(me, broken):
    def refuse(*args, **kwargs):
        raise RuntimeError("planted fault\nand more")

    comm, real = me.comm("main"), dist.TCPStore
    if me.rank == broken:
        dist.TCPStore = refuse
    try:
        with pytest.raises(RuntimeError) as caught:
            init_device_mesh((comm,), ("main",))
    finally:
        dist.TCPStore = real
    assert untouched()
    with groups_end(comm):
        check_mesh(init_device_mesh((comm,), ("main",)), (me.size,), me)
    return str(caught.value)


@pytest.mark.parametrize(
    ("broken", "wanted"), [(0, "cannot host a store"), (1, "cannot reach the store")]
)
def test_a_store_that_fails_is_reported_on_every_rank(ranks, broken, wanted):
    texts = ranks(3).run(no_store, broken)
    for rank, text in enumerate(texts):
        assert f"refused by the ranks [{broken}]" in text
        assert (wanted in text and "planted fault (" in text) == (rank == broken)


def own_group(me):
    comm = me.comm("main")
    torchcomms.register_c10d()
    backwards = me.keep(comm.split(list(range(me.size))[::-1], "backwards"))
    mapping = {rank: me.size - 1 - rank for rank in range(me.size)}
    with groups_end(comm):
        init_device_mesh((comm,), ("main",))
        group = _create_torchcomm_process_group(
            backwards, "backwards", "torchcomms", mapping
        )
        assert group.rank() == me.size - 1 - me.rank
        assert dist.get_backend(group) == "torchcomms"
        assert dist.get_backend_config(group) == "cpu:torchcomms"
        assert dist.get_rank(group) == group.rank()
        tensor = torch.full((2,), me.rank)
        dist.broadcast(tensor, src=0, group=group)
        assert tensor.tolist() == [0, 0]
        assert c10d._world.pg_to_tag[group] == "ptd:backwards"
        with pytest.raises(RuntimeError, match="'backwards' already"):
            _create_torchcomm_process_group(backwards, "backwards")
        with pytest.raises(RuntimeError, match=r"ranks \[0\], but .* ranks 0 to"):
            _create_torchcomm_process_group(
                backwards, "x", global_ranks_mapping={me.rank: 0}
            )
        with pytest.raises(TypeError, match="must be a torchcomms.TorchComm"):
            _create_torchcomm_process_group(group, "x")


def test_one_process_group(ranks):
    ranks(3).run(own_group)


def of_fake(me):
    """One process that says it is rank 4 of 6."""
    comm = me.keep(make_fake(4, 6))
    dims = [me.keep(comm.split([1, 4], "dp")), me.keep(comm.split([3, 4, 5], "tp"))]
    with groups_end(comm):
        mesh = init_device_mesh(dims, ("dp", "tp"), comm)
        assert mesh.shape == (2, 3)
        assert mesh.get_coordinate() == (1, 1)
        assert mesh.get_rank() == 4
        assert dist.get_process_group_ranks(mesh.get_group("tp")) == [3, 4, 5]
        dist.all_reduce(torch.ones(2), group=mesh.get_group("dp"))
    comm = me.keep(make_fake(4, 6))
    tp = me.keep(comm.split([3, 4, 5], "tp"))
    with pytest.raises(RuntimeError, match=r"shape \(3,\) has 3 ranks, but .* has 6"):
        init_device_mesh((tp,), ("tp",), comm)


def test_the_backend_that_moves_no_data(ranks):
    ranks(1).run(of_fake)


# Life ---------------------------------------------------------------------------------


def destroy_one_by_one(me):
    with mesh_of(me, (2, 2)) as mesh:
        tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
        comm = backend_of(tp).get_comm()
        dist.destroy_process_group(tp)
        with pytest.raises(RuntimeError, match="already finalized"):
            comm.barrier(async_op=False)
        check_group(dp, row_with(rows_of((2, 2), 0), me.rank), me)
        check_group(dist.group.WORLD, list(range(4)), me)
        # Its name is free again.
        again = me.keep(backend_of(dist.group.WORLD).get_comm().split([me.rank], "tp"))
        _create_torchcomm_process_group(again, "tp", global_ranks_mapping={me.rank: 0})
    assert untouched()


def test_groups_are_destroyed_one_by_one(ranks):
    ranks(4).run(destroy_one_by_one)


def ends(me):
    for i in range(10):
        comm = me.comm(f"main{i}")
        dims = split_dims(me, comm, (1, me.size), ("dp", "tp"))
        init_device_mesh(dims, ("dp", "tp"), comm)
        check_group(dist.group.WORLD, list(range(me.size)), me)
        if i % 2:
            for each in (comm, *dims):
                each.finalize()
        dist.destroy_process_group()
        assert untouched()
        for each in (comm, *dims):
            with pytest.raises(RuntimeError, match="already finalized"):
                each.finalize()


@pytest.mark.parametrize("size", [2, 3])
def test_communicators_end_with_the_groups_or_before(ranks, size):
    ranks(size).run(ends)


def several(me):
    with mesh_of(me, (2, 2)) as first:
        comm = backend_of(dist.group.WORLD).get_comm()
        shape, names = (4, 1), ("x", "y")
        dims = split_dims(me, comm, shape, names)
        world = dist.group.WORLD
        second = init_device_mesh(dims, names, _global_comm=comm)
        assert dist.group.WORLD is world
        copy = me.keep(comm.split(list(range(4)), "copy"))
        third = init_device_mesh((copy,), ("line",))
        assert dist.group.WORLD is third.get_group()
        check_mesh(first, (2, 2), me)
        check_mesh(second, shape, me)
        check_mesh(third, (4,), me)
        group = dist.new_group([1, 3])
        if me.rank in (1, 3):
            check_group(group, [1, 3], me)


def test_several_meshes(ranks):
    ranks(4).run(several)


def leave(me):
    comm = me.comm("main")
    dims = split_dims(me, comm, (1, me.size), ("dp", "tp"))
    mesh = init_device_mesh(dims, ("dp", "tp"), comm)
    check_group(mesh.get_group("tp"), list(range(me.size)), me)
    # The harness shall not end them.
    me._comms.clear()
    return True


def test_exit_without_destroy(fresh):
    assert fresh(2, whole_exit=True).run(leave) == [True, True]


# Refusals -----------------------------------------------------------------------------


def refuse_arguments(me):
    comm = me.comm("main")
    a, b = split_dims(me, comm, (1, me.size), ("a", "b"))

    def refused(text, *args, error=RuntimeError, **kwargs):
        with pytest.raises(error, match=text):
            init_device_mesh(*args, **kwargs)
        assert untouched()

    refused("_global_comm is needed for a mesh of 2 dim", (a, b), ("a", "b"))
    refused("has 2 communicators, but mesh_dim_names has 1", (a, b), ("a",), comm)
    refused("has 0 communicators", (), (), comm)
    refused("the name 'a' is given twice", (a, b), ("a", "a"), comm)
    refused("the name 'main' is given twice", (a, b), ("a", "main"), comm)
    refused("needs a name, but got ''", (b,), ("",))
    refused(
        r"mesh_dim_comms\[1\] must be", (a, None), ("a", "b"), comm, error=TypeError
    )
    refused(
        r"mesh_dim_names\[0\] must be a str", (a, b), (1, "b"), comm, error=TypeError
    )
    refused("_global_comm must be", (a, b), ("a", "b"), me, error=TypeError)
    mesh = init_device_mesh((a, b), ("a", "b"), comm)
    with groups_end(comm):
        check_mesh(mesh, (1, me.size), me)
        with pytest.raises(RuntimeError, match="group is named 'a' already"):
            init_device_mesh((a,), ("a",), comm)
        with pytest.raises(
            RuntimeError, match=f"rank 0 of 1, but .* rank {me.rank} of"
        ):
            init_device_mesh((a,), ("line",))
        check_mesh(mesh, (1, me.size), me)
    assert untouched()


@pytest.mark.parametrize("size", [2, 3])
def test_arguments_that_do_not_fit(ranks, size):
    ranks(size).run(refuse_arguments)


def refuse_mesh(me, case):
    comm = me.comm("main")
    if case == "swapped":
        tp, dp = split_dims(me, comm, (2, 2), ("tp", "dp"))
        dims = (dp, tp)
    elif case == "swapped on one rank":
        dims = split_dims(me, comm, (2, 2), ("dp", "tp"))
        dims = dims[::-1] if me.rank == 1 else dims
    elif case == "sizes":
        uneven = row_with([[0, 1, 2], [3]], me.rank)
        dims = [me.keep(comm.split([me.rank], "dp")), me.keep(comm.split(uneven, "tp"))]
    else:
        # Each rank has the right numbers, but in the groups of others.
        dp = comm.split(row_with([[0, 3], [1, 2]], me.rank), "dp")
        tp = comm.split(row_with([[0, 1], [2, 3]], me.rank), "tp")
        dims = [me.keep(dp), me.keep(tp)]
    with pytest.raises(RuntimeError) as caught:
        init_device_mesh(dims, ("dp", "tp"), comm)
    assert untouched()
    # Nothing is broken by it.
    tensor = torch.ones(1)
    for each in (comm, *dims):
        each.barrier()
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM)
    assert tensor == 4
    return str(caught.value)


def test_communicators_that_form_no_mesh_are_refused_on_every_rank(ranks):
    swapped = ranks(4).run(refuse_mesh, "swapped")
    assert "rank 0 in 'dp', 1 in 'tp' is rank 1" in swapped[2]
    assert "rank 2 of communicator 'main'" in swapped[2]
    assert "its communicator has [0, 1]" in swapped[0]
    on_one = ranks(4).run(refuse_mesh, "swapped on one rank")
    assert "rank 1 of communicator 'main'" in on_one[1]
    # Its row and its column see it; the rank across sees nothing.
    assert "refused by the ranks [1]" in on_one[2]
    assert "this rank sees nothing wrong" in on_one[2]
    for text in ranks(4).run(refuse_mesh, "sizes"):
        assert "has 3 ranks" in text or "has 1 ranks" in text
        assert "'main' has 4" in text
    crossed = ranks(4).run(refuse_mesh, "crossed")
    assert "has the ranks [0, 2] in a mesh of shape (2, 2)" in crossed[0]
    assert "its communicator has [0, 3]" in crossed[0]
    assert all("[0, 1, 2, 3]" in text for text in crossed)


# Imports ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        "import torchcomms, sys; assert 'torchcomms.device_mesh' not in sys.modules",
        "import torch, torchcomms, sys\n"
        "assert 'torchcomms.device_mesh' not in sys.modules",
        "import torchcomms.device_mesh\n"
        "import torch.distributed.distributed_c10d as c10d\n"
        "assert c10d._TORCHCOMM_AVAILABLE",
    ],
)
def test_imports(lines):
    subprocess.run([sys.executable, "-c", lines], check=True, timeout=120)


def test_it_is_documented():
    for name in device_mesh.__all__:
        assert getattr(device_mesh, name).__doc__
