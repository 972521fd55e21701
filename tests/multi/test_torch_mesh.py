# SPDX-License-Identifier: BSD-3-Clause
"""torch's own init_device_mesh over both doors: by name, and by the switch."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from multi.support.c10d import switched_world, world
from multi.support.mesh_training import (
    check_ddp,
    check_dtensor,
    check_fsdp,
    check_fsdp_of_tensor_parallel,
    check_tensor_parallel,
)
from multi.support.meshes import (
    check_functional,
    check_group,
    check_mesh,
    names_of,
    row_with,
    rows_of,
)

DOORS = {"by name": world, "by the switch": switched_world}
SHAPES = [(2,), (3,), (4,), (1, 2), (3, 1), (2, 2), (2, 1, 2)]


@contextlib.contextmanager
def torch_mesh(me, door, shape):
    with DOORS[door](me):
        yield init_device_mesh("cpu", shape, mesh_dim_names=names_of(shape))


def everyday(me, door, shape):
    with torch_mesh(me, door, shape) as mesh:
        check_mesh(mesh, shape, me)
        for dim, name in enumerate(mesh.mesh_dim_names):
            backend = mesh.get_group(name)._get_backend(torch.device("cpu"))
            assert backend.name() == dist.get_backend()
            ranks = row_with(rows_of(shape, dim), me.rank)
            one = mesh[name]
            assert one.mesh.tolist() == ranks
            check_group(one.get_group(), ranks, me)
            check_functional((one, 0), ranks, me)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mesh_and_slices(ranks, door, shape):
    ranks(torch.Size(shape).numel()).run(everyday, door, shape)


def flatten(me, door):
    shape = (2, 1, 2)
    with torch_mesh(me, door, shape) as mesh:
        every = mesh._flatten("every")
        assert every.mesh.tolist() == list(range(me.size))
        check_group(every.get_group(), list(range(me.size)), me)
        inner = mesh["dp", "tp"]._flatten("inner")
        ranks = row_with(rows_of(shape, 2), me.rank)
        assert inner.mesh.tolist() == ranks
        check_group(inner.get_group(), ranks, me)
        check_functional((inner, 0), ranks, me)


@pytest.mark.parametrize("door", DOORS)
def test_flatten(ranks, door):
    ranks(4).run(flatten, door)


def build_upon(me, door, shape, checks):
    with torch_mesh(me, door, shape) as mesh:
        for check in checks:
            check(mesh, me)


# New processes: DTensor keeps equal meshes, with the names of their groups, for good.
@pytest.mark.parametrize("door", DOORS)
def test_dtensor_and_training_on_one_dimension(fresh, door):
    checks = [check_dtensor, check_tensor_parallel, check_fsdp, check_ddp]
    fresh(3).run(build_upon, door, (3,), checks)


@pytest.mark.parametrize("door", DOORS)
def test_dtensor_and_training_on_two_dimensions(fresh, door):
    checks = [check_dtensor, check_fsdp, check_fsdp_of_tensor_parallel]
    fresh(4).run(build_upon, door, (2, 2), checks)
