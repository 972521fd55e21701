# SPDX-License-Identifier: BSD-3-Clause
"""Meshes over communicators that a test makes, and what every mesh should do."""

import contextlib

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from torchcomms.device_mesh import init_device_mesh

NAMES = ("pp", "dp", "tp")


def names_of(shape):
    return NAMES[len(NAMES) - len(shape) :]


def rows_of(shape, dim):
    """The ranks of each group of one dimension."""
    ranks = torch.arange(torch.Size(shape).numel()).view(shape)
    return ranks.movedim(dim, -1).reshape(-1, shape[dim]).tolist()


def row_with(rows, rank):
    return next(row for row in rows if rank in row)


def split_dims(me, comm, shape, names):
    """A communicator for each dimension; ended with the function of the test."""
    return [
        me.keep(comm.split(row_with(rows_of(shape, dim), me.rank), name))
        for dim, name in enumerate(names)
    ]


@contextlib.contextmanager
def groups_end(*comms):
    """Destroys all groups at the end; nobody waits for a rank that failed."""
    try:
        yield
    except BaseException:
        for comm in comms:
            comm.abort()
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def mesh_of(me, shape, names=None):
    """A mesh over communicators of our own; its global one is called `main`."""
    names = names or names_of(shape)
    comm = me.comm("main")
    if len(shape) == 1:
        dims, whole = [comm], None
    else:
        dims, whole = split_dims(me, comm, shape, names), comm
    with groups_end(comm, *dims):
        yield init_device_mesh(tuple(dims), tuple(names), _global_comm=whole)
        # Rank 0 hosts the store by which the others may still be making groups.
        dist.barrier()


def check_group(group, ranks, me):
    """Collectives over a group that should have these ranks."""
    assert dist.get_process_group_ranks(group) == ranks
    assert dist.get_rank(group) == ranks.index(me.rank)
    assert dist.get_world_size(group) == len(ranks)
    tensor = torch.full((3,), float(me.rank))
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [float(sum(ranks))] * 3
    tensor = torch.full((3,), me.rank)
    dist.broadcast(tensor, src=ranks[-1], group=group)
    assert tensor.tolist() == [ranks[-1]] * 3
    found = [None] * len(ranks)
    dist.all_gather_object(found, me.rank, group=group)
    assert found == ranks


def check_functional(where, ranks, me):
    """Functional collectives; `where` is a group, or a mesh and its dimension."""
    size, tensor = len(ranks), torch.full((2,), me.rank)
    assert funcol.all_reduce(tensor, "sum", where).tolist() == [sum(ranks)] * 2
    gathered = funcol.all_gather_tensor(tensor, 0, where)
    assert gathered.tolist() == [rank for rank in ranks for _ in range(2)]
    whole = torch.arange(2 * size) + me.rank
    part = funcol.reduce_scatter_tensor(whole, "sum", 0, where)
    first = 2 * ranks.index(me.rank)
    assert part.tolist() == [size * i + sum(ranks) for i in (first, first + 1)]
    sent = torch.full((size,), me.rank)
    assert funcol.all_to_all_single(sent, None, None, where).tolist() == ranks
    shared = funcol.broadcast(tensor, size - 1, where)
    assert shared.tolist() == [ranks[-1]] * 2


def check_mesh(mesh, shape, me):
    """A mesh of all ranks in row-major order."""
    assert mesh.shape == tuple(shape)
    assert mesh.mesh.tolist() == torch.arange(me.size).view(shape).tolist()
    assert mesh.get_rank() == me.rank
    place = torch.unravel_index(torch.tensor(me.rank), tuple(shape))
    assert mesh.get_coordinate() == tuple(int(i) for i in place)
    for dim, name in enumerate(mesh.mesh_dim_names):
        ranks = row_with(rows_of(shape, dim), me.rank)
        assert mesh.get_local_rank(name) == ranks.index(me.rank)
        check_group(mesh.get_group(name), ranks, me)
        check_functional((mesh, dim), ranks, me)
        check_functional(mesh.get_group(dim), ranks, me)
