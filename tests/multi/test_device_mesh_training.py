# SPDX-License-Identifier: BSD-3-Clause
"""api.md 15: DTensor, tensor parallel modules, FSDP2 and DDP on meshes of
torchcomms."""

import pytest
import torch

from multi.support.mesh_training import (
    check_ddp,
    check_dtensor,
    check_fsdp,
    check_fsdp_of_tensor_parallel,
    check_tensor_parallel,
)
from multi.support.meshes import mesh_of

ON_A_LINE = [check_dtensor, check_tensor_parallel, check_fsdp, check_ddp]
ON_A_GRID = [check_dtensor, check_fsdp, check_fsdp_of_tensor_parallel]


def on_mesh(me, shape, check):
    with mesh_of(me, shape) as mesh:
        check(mesh, me)


@pytest.mark.parametrize("check", ON_A_LINE)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_on_one_dimension(ranks, size, check):
    ranks(size).run(on_mesh, (size,), check)


@pytest.mark.parametrize("check", ON_A_GRID)
@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (2, 1)], ids=str)
def test_on_two_dimensions(ranks, shape, check):
    ranks(torch.Size(shape).numel()).run(on_mesh, shape, check)


def on_slice(me):
    with mesh_of(me, (2, 2)) as mesh:
        for name in mesh.mesh_dim_names:
            check_tensor_parallel(mesh[name], me)


def test_tensor_parallel_on_slices(ranks):
    ranks(4).run(on_slice)
