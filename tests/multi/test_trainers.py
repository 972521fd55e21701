# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2 and DDP train over torchcomms as over gloo, and as one process does."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from multi.support.c10d import switched_world, world

STEPS = 4
# Of all ranks; the same share for each of 2, 3 and 4, also in two halves.
BATCH = 24
INPUTS, OUTPUTS = 13, 5
EXACT = 1e-5
HALF = 3e-2


@dataclass
class Result:
    """The loss of each step over the whole batch, and the parameters at the end."""

    losses: torch.Tensor
    parameters: torch.Tensor


@dataclass
class Trainer:
    """How a model is trained by the ranks, and how near it comes to one process."""

    make: Callable
    # A context in which gradients stay on the rank: half a batch at a time.
    held: Callable | None = None
    tolerance: float = EXACT
    sizes: tuple = (2, 3, 4)


def make_model():
    torch.manual_seed(7)
    # No row count here divides by 2, 3 or 4: FSDP2 pads, and rank 3 has no row of five.
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, 29),
        torch.nn.Tanh(),
        torch.nn.Linear(29, 29),
        torch.nn.Tanh(),
        torch.nn.Linear(29, OUTPUTS),
    )


def batches(rank=0, size=1):
    generator = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, INPUTS, generator=generator)
        targets = torch.randn(BATCH, OUTPUTS, generator=generator)
        yield inputs[rank::size], targets[rank::size]


def whole_parameters(model):
    """All parameters in one line."""
    whole = (
        p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()
    )
    return torch.cat([p.detach().flatten() for p in whole])


def backward(model, inputs, targets, part=1.0):
    loss = part * mse_loss(model(inputs).float(), targets)
    loss.backward()
    return loss.detach()


def backward_in_halves(model, inputs, targets, held):
    half = len(inputs) // 2
    with held(model):
        loss = backward(model, inputs[:half], targets[:half], 0.5)
    return loss + backward(model, inputs[half:], targets[half:], 0.5)


def train(model, data, held=None, mean=lambda loss: loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for inputs, targets in data:
        if held:
            loss = backward_in_halves(model, inputs, targets, held)
        else:
            loss = backward(model, inputs, targets)
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return Result(torch.stack(losses), whole_parameters(model))


def mean_of_ranks(loss):
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def train_share(me, model, held=None):
    return train(model, batches(me.rank, me.size), held, mean_of_ranks)


def check_close(result, other, tolerance):
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(result.losses, other.losses, **close)
    way = (other.parameters - whole_parameters(make_model())).norm()
    assert (result.parameters - other.parameters).norm() < tolerance * way


def heap_bytes():
    """Memory of this process's heap that is present."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(
        512 * os.stat(link).st_blocks
        for link in links
        if os.path.lexists(link) and "torchcomms-heap" in os.readlink(link)
    )


# FSDP2 --------------------------------------------------------------------------------


def sharded(mesh, policy=None):
    model = make_model()
    options = {"mesh": mesh, "mp_policy": policy or MixedPrecisionPolicy()}
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, **options)
    return fully_shard(model, **options)


def fsdp2(me, policy=None):
    mesh = init_device_mesh("cpu", (me.size,), mesh_dim_names=("all",))
    return sharded(mesh, policy)


def hsdp(me):
    shape = (me.size // 2, 2)
    return sharded(init_device_mesh("cpu", shape, mesh_dim_names=("copy", "shard")))


def fsdp2_from_the_group(me):
    """Buffers of collectives are the backend's."""
    model = fsdp2(me)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_allocate_memory_from_process_group_for_comm(True)
    return model


@contextlib.contextmanager
def no_gradient_sync(model):
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


# DDP ----------------------------------------------------------------------------------


def ddp(me, **options):
    # A bucket for about each parameter, so that several are under way at once.
    return DistributedDataParallel(make_model(), bucket_cap_mb=0.001, **options)


def ddp_with_a_hook(me):
    model = ddp(me)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return model


# Both ---------------------------------------------------------------------------------

BF16_REDUCE = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
BF16_ALL = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)
TRAINERS = {
    "fsdp2": Trainer(fsdp2),
    "fsdp2 in halves": Trainer(fsdp2, no_gradient_sync),
    "fsdp2 bf16 reduce": Trainer(partial(fsdp2, policy=BF16_REDUCE), tolerance=HALF),
    "fsdp2 bf16": Trainer(partial(fsdp2, policy=BF16_ALL), tolerance=HALF),
    "hsdp": Trainer(hsdp, sizes=(4,)),
    "ddp": Trainer(ddp),
    "ddp in halves": Trainer(ddp, DistributedDataParallel.no_sync),
    "ddp static": Trainer(
        partial(ddp, static_graph=True, gradient_as_bucket_view=True)
    ),
    "ddp unused": Trainer(partial(ddp, find_unused_parameters=True)),
    "ddp fp16 hook": Trainer(ddp_with_a_hook, tolerance=HALF),
}


def by_name(me, name):
    trainer = TRAINERS[name]
    with world(me):
        ours = train_share(me, trainer.make(me), trainer.held)
    with world(me, "gloo", "gloo"):
        theirs = train_share(me, trainer.make(me), trainer.held)
    alone = train(make_model(), batches())
    check_close(ours, theirs, trainer.tolerance)
    check_close(ours, alone, trainer.tolerance)


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name, trainer in TRAINERS.items() for size in trainer.sizes],
)
def test_trains_as_over_gloo_and_alone(ranks, name, size):
    ranks(size).run(by_name, name)


def by_switch(me, name):
    trainer = TRAINERS[name]
    with switched_world(me):
        ours = train_share(me, trainer.make(me), trainer.held)
    check_close(ours, train(make_model(), batches()), trainer.tolerance)


@pytest.mark.parametrize(
    ("name", "size"), [("fsdp2", 3), ("hsdp", 4), ("ddp in halves", 2), ("ddp", 4)]
)
def test_trains_by_the_switch(fresh, name, size):
    # New processes: DTensor keeps the first of equal meshes for ever, and by the switch
    # the groups behind it have other names than by name.
    fresh(size).run(by_switch, name)


def with_memory_of_the_group(me):
    with world(me):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert backend.supports_tensor_alloc(torch.device("cpu"))
        before = heap_bytes()
        ours = train_share(me, fsdp2_from_the_group(me))
        assert heap_bytes() > before
        theirs = train_share(me, fsdp2(me))
    assert torch.equal(ours.losses, theirs.losses)
    assert torch.equal(ours.parameters, theirs.parameters)


@pytest.mark.parametrize("size", [2, 3])
def test_fsdp2_trains_alike_in_memory_of_the_group(fresh, size):
    fresh(size).run(with_memory_of_the_group)


def scale(model, factor):
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: factor * gradient)
    return model


def divided(me):
    with world(me):
        model = fsdp2(me)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(4 * me.size)
        ours = train_share(me, model)
    check_close(ours, train(scale(make_model(), 0.25), batches()), EXACT)


@pytest.mark.parametrize("size", [2, 3])
def test_fsdp2_divides_gradients_by_a_given_factor(ranks, size):
    """By ReduceOp.PREMUL_SUM, which gloo does not have."""
    ranks(size).run(divided)


def checkpointed(me):
    folder = f"{me.folder}/checkpoint"
    with world(me):
        model = fsdp2(me)
        trained = train_share(me, model).parameters
        checkpoint.save(get_model_state_dict(model), checkpoint_id=folder)
        again = fsdp2(me)
        assert not torch.equal(whole_parameters(again), trained)
        state = get_model_state_dict(again)
        checkpoint.load(state, checkpoint_id=folder)
        set_model_state_dict(again, state)
        assert torch.equal(whole_parameters(again), trained)


@pytest.mark.parametrize("size", [2, 3])
def test_fsdp2_saves_and_loads_a_checkpoint(ranks, size):
    ranks(size).run(checkpointed)
