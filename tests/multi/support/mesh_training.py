# SPDX-License-Identifier: BSD-3-Clause
"""What is built upon a mesh: DTensor, and training compared with one process."""

import itertools

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

# Divided by each number of ranks.
ROWS = 12
STEPS = 3


def check_dtensor(mesh, me):
    """Each layout of a tensor into each other one, and partial sums into each."""
    whole = torch.arange(12.0 * 6).view(12, 6)
    kinds = (Shard(0), Shard(1), Replicate())
    layouts = list(itertools.product(kinds, repeat=mesh.ndim))
    for source, target in itertools.product(layouts, repeat=2):
        tensor = distribute_tensor(whole, mesh, source)
        moved = tensor.redistribute(placements=target)
        assert moved.placements == target
        assert torch.equal(moved.full_tensor(), whole)
    local = whole + me.rank
    wanted = whole * me.size + sum(range(me.size))
    for target in layouts:
        partial = DTensor.from_local(local, mesh, [Partial()] * mesh.ndim)
        moved = partial.redistribute(placements=target)
        assert torch.equal(moved.full_tensor(), wanted)


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12)
    )


def batches():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(ROWS, 8, generator=generator) for _ in range(STEPS)]


def own_part(batch, rank, size):
    return batch.view(size, -1, batch.shape[1])[rank]


def train(model, inputs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for part in inputs:
        loss = model(part).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def whole_of(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def check_trained(model, mean_of_losses):
    """Parameters and losses against those of one process and all the data."""
    alone = make_model()
    losses = train(alone, batches())
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(
        torch.stack(mean_of_losses), torch.stack(losses), **close
    )
    wanted = list(alone.parameters())
    found = [whole_of(parameter.detach()) for parameter in model.parameters()]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.detach(), **close)


def mean_over(losses, mesh):
    means = []
    for loss in losses:
        partial = DTensor.from_local(loss, mesh, [Partial("avg")] * mesh.ndim)
        means.append(partial.full_tensor())
    return means


def data_parallel(model, mesh, me):
    """Every rank of the mesh has its part of each batch."""
    rank, size = 0, mesh.size()
    for place, width in zip(mesh.get_coordinate(), mesh.shape, strict=True):
        rank = rank * width + place
    losses = train(model, [own_part(batch, rank, size) for batch in batches()])
    return mean_over(losses, mesh)


def check_fsdp(mesh, me):
    """One dimension: sharded; two: copies of shards."""
    model = make_model()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    check_trained(model, data_parallel(model, mesh, me))


def check_ddp(mesh, me):
    model = DistributedDataParallel(
        make_model(), process_group=mesh.get_group(), bucket_cap_mb=0.001
    )
    check_trained(model, data_parallel(model, mesh, me))


def tensor_parallel(model, mesh):
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(model, mesh, plan)
    assert model[0].weight.placements == (Shard(0),)
    assert model[2].weight.placements == (Shard(1),)
    return model


def check_tensor_parallel(mesh, me):
    model = tensor_parallel(make_model(), mesh)
    check_trained(model, train(model, batches()))


def check_fsdp_of_tensor_parallel(mesh, me):
    """A mesh of two dimensions: data, and tensors."""
    dp, tp = (mesh[name] for name in mesh.mesh_dim_names)
    model = tensor_parallel(make_model(), tp)
    fully_shard(model, mesh=dp)
    check_trained(model, data_parallel(model, dp, me))
