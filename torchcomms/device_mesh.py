# SPDX-License-Identifier: BSD-3-Clause
"""A torch.distributed.DeviceMesh over communicators that the caller made.

Imports torch.distributed, so `import torchcomms` never imports this module.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed._mesh_layout import _MeshLayout
from torch.distributed.device_mesh import DeviceMesh

from torchcomms._c10d import _creator, shim_class
from torchcomms._core import TorchComm, TorchWork

__all__ = ["init_device_mesh"]

_BACKEND = "torchcomm"
# Moves no data: one process stands for all ranks, and nothing can be agreed upon.
_ALONE = "fake"


def init_device_mesh(
    mesh_dim_comms: Sequence[TorchComm],
    mesh_dim_names: Sequence[str],
    _global_comm: TorchComm | None = None,
) -> DeviceMesh:
    """Makes a DeviceMesh whose dimensions are these communicators; all ranks call it.

    The mesh has the shape of the communicators' sizes, and its ranks are numbered in
    row-major order. Each communicator becomes a process group named like its
    dimension. The default group is that of `_global_comm`, named like it, or that of
    the only dimension. The groups own the communicators: destroying a group finalizes
    its communicator.

    Args:
        mesh_dim_comms: one communicator for each dimension.
        mesh_dim_names: a name for each dimension; no group may have it yet.
        _global_comm: the communicator of all ranks of the mesh; needed for more than
            one dimension.

    Raises:
        TypeError: an argument has a wrong type.
        RuntimeError: the arguments do not fit each other, or the communicators of some
            rank do not form the mesh; the latter is raised on every rank.
    """
    comms, names = tuple(mesh_dim_comms), tuple(mesh_dim_names)
    _check_arguments(comms, names, _global_comm)
    shape, rank = _place(comms)
    wanted = [
        (comm, name, _members(shape, rank, dim))
        for dim, (comm, name) in enumerate(zip(comms, names, strict=True))
    ]
    whole, world = comms[0], None
    if _global_comm is not None:
        whole, name = _global_comm, _global_comm.get_name()
        world = _group_over(whole, name)
        if world is None:
            wanted.append((whole, name, list(range(whole.get_size()))))
    _check_names([name for _comm, name, _ranks in wanted])
    _check_default_group(whole)
    store = _agree(comms, names, whole, world is None)
    for comm, name, ranks in wanted:
        mapping = {global_rank: i for i, global_rank in enumerate(ranks)}
        own = store if comm is whole else dist.HashStore()
        made = _add_group(comm, name, _BACKEND, mapping, own)
    c10d._update_default_pg(made if world is None else world)
    mesh = DeviceMesh(
        whole.get_device().type,
        torch.arange(math.prod(shape), dtype=torch.int).view(shape),
        mesh_dim_names=names,
        _init_backend=False,
        _rank=rank,
    )
    mesh._dim_group_names = list(names)
    for name in names:
        _note_group(mesh, name)
    return mesh


def _flatten_with_comm(
    mesh: DeviceMesh,
    mesh_dim_name: str,
    comm: TorchComm,
    global_ranks: Sequence[int],
    layout: Any,
) -> DeviceMesh:
    """Adds a flattened dimension to the root of `mesh`, over `comm`; returns its mesh.

    Args:
        mesh: the mesh, or a slice of it.
        mesh_dim_name: the name of the dimension and of its process group.
        comm: has the ranks of the flattened dimension.
        global_ranks: those ranks as the mesh numbers them, in the order of `comm`.
        layout: the layout of the dimensions to flatten, such as that of a slice.
    """
    root = mesh._get_root_mesh()
    _check_comm("comm", comm)
    flat = _flat(layout)
    taken = (*(root._mesh_dim_names or ()), *root._flatten_mapping)
    if mesh_dim_name in taken:
        raise RuntimeError(
            f"mesh_dim_name '{mesh_dim_name}' is a dimension of the mesh already: it "
            f"has {', '.join(taken)}"
        )
    _check_names((mesh_dim_name,))
    _check_flattened(root, comm, list(global_ranks), flat)
    flattened = DeviceMesh(
        root.device_type,
        _layout=flat,
        _rank_map=root._rank_map,
        mesh_dim_names=(mesh_dim_name,),
        _root_mesh=root,
        _init_backend=False,
        _rank=root._rank,
    )
    mapping = {rank: i for i, rank in enumerate(global_ranks)}
    _create_torchcomm_process_group(comm, mesh_dim_name, global_ranks_mapping=mapping)
    flattened._dim_group_names = [mesh_dim_name]
    _note_group(root, mesh_dim_name)
    root._flatten_mapping[mesh_dim_name] = flattened
    return flattened


def _create_torchcomm_process_group(
    comm: TorchComm,
    group_name: str,
    backend_str: str = _BACKEND,
    global_ranks_mapping: Mapping[int, int] | None = None,
) -> dist.ProcessGroup:
    """Makes a process group of torch.distributed over `comm`.

    Its store is a dummy: the group can be split, but no group can be made from its
    store.

    Args:
        comm: whose tensors and ranks the group has.
        group_name: no other group may have it.
        backend_str: what torch.distributed.get_backend() says of the group.
        global_ranks_mapping: for each global rank its rank in `comm`; none means that
            they are the same.
    """
    _check_comm("comm", comm)
    _check_names((group_name,))
    size = comm.get_size()
    mapping = dict(global_ranks_mapping or {rank: rank for rank in range(size)})
    if sorted(mapping.values()) != list(range(size)):
        raise RuntimeError(
            f"global_ranks_mapping gives the ranks {sorted(mapping.values())}, but "
            f"communicator '{comm.get_name()}' has the ranks 0 to {size - 1}"
        )
    return _add_group(comm, group_name, backend_str, mapping, dist.HashStore())


# Checks of the arguments --------------------------------------------------------------


def _check_comm(argument, comm):
    if not isinstance(comm, TorchComm):
        raise TypeError(f"{argument} must be a torchcomms.TorchComm, but got {comm!r}")


def _check_arguments(comms, names, global_comm):
    for i, comm in enumerate(comms):
        _check_comm(f"mesh_dim_comms[{i}]", comm)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"mesh_dim_names[{i}] must be a str, but got {name!r}")
    if not comms or len(comms) != len(names):
        raise RuntimeError(
            f"mesh_dim_comms has {len(comms)} communicators, but mesh_dim_names has "
            f"{len(names)} names: each dimension needs one of both"
        )
    if global_comm is None:
        if len(comms) > 1:
            raise RuntimeError(
                f"_global_comm is needed for a mesh of {len(comms)} dimensions: a "
                "communicator of all its ranks"
            )
        return
    _check_comm("_global_comm", global_comm)
    for name, comm in zip(names, comms, strict=True):
        if comm.get_device().type != global_comm.get_device().type:
            raise RuntimeError(
                f"the communicator of dimension '{name}' is on {comm.get_device()}, "
                f"but _global_comm is on {global_comm.get_device()}"
            )


def _check_names(names):
    """Each name is that of one group only, or collectives would go to another one."""
    for i, name in enumerate(names):
        if not name:
            raise RuntimeError("a process group needs a name, but got ''")
        if name in names[:i]:
            raise RuntimeError(
                f"the name '{name}' is given twice, in {', '.join(names)}: each "
                "dimension and _global_comm make a process group of that name"
            )
        if name in c10d._world.pg_names.values():
            raise RuntimeError(
                f"a process group is named '{name}' already: take another name, or "
                "destroy that group first"
            )


def _check_default_group(comm):
    """Meshes and groups made earlier count their ranks by the default group."""
    world = c10d.GroupMember.WORLD
    if world is None:
        return
    had, has = (world.rank(), world.size()), (comm.get_rank(), comm.get_size())
    if had != has:
        raise RuntimeError(
            f"communicator '{comm.get_name()}' would be the default group as rank "
            f"{has[0]} of {has[1]}, but this process is rank {had[0]} of {had[1]} of "
            f"the default group '{world.group_name}': pass a _global_comm of all its "
            "ranks, or destroy it first"
        )


# The mesh -----------------------------------------------------------------------------


def _place(comms):
    """Shape of the mesh, and this rank's number in it."""
    rank = 0
    for comm in comms:
        rank = rank * comm.get_size() + comm.get_rank()
    return tuple(comm.get_size() for comm in comms), rank


def _members(shape, rank, dim):
    """The ranks that differ from `rank` in one coordinate only."""
    stride = math.prod(shape[dim + 1 :])
    first = rank - rank // stride % shape[dim] * stride
    return [first + i * stride for i in range(shape[dim])]


def _begin_gather(comm, *numbers) -> tuple[TorchWork, torch.Tensor]:
    """Every rank's numbers, one row a rank, as soon as the work is done."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=comm.get_device())
    rows = torch.empty(
        (comm.get_size(), len(numbers)), dtype=torch.int64, device=comm.get_device()
    )
    return comm.all_gather_single(rows, mine, async_op=True), rows


def _misplaced(comms, names, whole):
    """What is wrong with this rank's numbers, or None."""
    shape, rank = _place(comms)
    if math.prod(shape) != whole.get_size():
        return (
            f"the mesh of shape {shape} has {math.prod(shape)} ranks, but communicator "
            f"'{whole.get_name()}' has {whole.get_size()}"
        )
    if rank != whole.get_rank():
        places = ", ".join(
            f"{comm.get_rank()} in '{name}'"
            for comm, name in zip(comms, names, strict=True)
        )
        return (
            f"rank {places} is rank {rank} of the mesh of shape {shape}, but rank "
            f"{whole.get_rank()} of communicator '{whole.get_name()}'"
        )
    return None


def _misfit(comms, names, whole):
    """Why this rank's communicators do not form the mesh, or None."""
    # All begun before one is waited for: ranks may have them in different orders.
    begun = [_begin_gather(comm, whole.get_rank()) for comm in comms]
    for work, _rows in begun:
        work.wait()
    misplaced = _misplaced(comms, names, whole)
    if misplaced is not None:
        return misplaced
    shape, rank = _place(comms)
    for dim, (_work, rows) in enumerate(begun):
        found, wanted = rows.flatten().tolist(), _members(shape, rank, dim)
        if found != wanted:
            return (
                f"dimension '{names[dim]}' of rank {rank} has the ranks {wanted} in a "
                f"mesh of shape {shape}, but its communicator has {found}"
            )
    return None


def _agree(comms, names, whole, new_store):
    """Checks on all ranks that they form one mesh.

    With `new_store` the result is a store that all ranks share: new_group() makes its
    communicators by the store of the default group.
    """
    if whole.get_backend() == _ALONE or whole.get_size() == 1:
        problem = _misplaced(comms, names, whole)
        if problem is not None:
            raise RuntimeError(problem)
        return dist.HashStore()
    problem, store, port = _misfit(comms, names, whole), None, 0
    if new_store and problem is None and whole.get_rank() == 0:
        store, problem = _tcp_store(whole, 0)
        port = 0 if store is None else store.port
    port = _exchange(whole, problem, port)
    if not new_store:
        return dist.HashStore()
    if store is None:
        store, problem = _tcp_store(whole, port)
    # Also keeps rank 0, which hosts it, until everybody is there.
    _exchange(whole, problem, 0)
    return store


def _exchange(comm, problem, number):
    """Raises on every rank if one has a problem; returns rank 0's number."""
    work, rows = _begin_gather(comm, problem is not None, number)
    work.wait()
    bad = rows[:, 0].nonzero().flatten().tolist()
    if problem is not None:
        raise RuntimeError(f"{problem} (the mesh is refused by the ranks {bad})")
    if bad:
        raise RuntimeError(
            f"the mesh is refused by the ranks {bad}, whose errors say why; this rank "
            "sees nothing wrong"
        )
    return int(rows[0, 1])


def _address():
    return os.environ.get("MASTER_ADDR") or "127.0.0.1"


def _tcp_store(comm, port):
    """The store, hosted by rank 0, which is given no port; or why there is none."""
    hosts = comm.get_rank() == 0
    try:
        store = dist.TCPStore(
            _address(),
            port,
            None,
            hosts,
            comm.get_options().timeout,
            wait_for_workers=False,
        )
    except RuntimeError as cause:
        action = "host a store" if hosts else f"reach the store of rank 0, port {port},"
        first_line = str(cause).partition("\n")[0]
        return None, f"cannot {action} at {_address()}: {first_line}"
    return store, None


def _flat(layout):
    """`layout` as the layout of one dimension."""
    if hasattr(layout, "collapse"):
        return _MeshLayout([layout.collapse()])
    if not hasattr(layout, "coalesce"):
        # One dimension already, of the torch whose layouts have collapse().
        return _MeshLayout([layout])
    flat = layout.coalesce()
    return flat.nest() if len(flat) > 1 else flat


def _check_flattened(root, comm, global_ranks, flat):
    size, rank = comm.get_size(), comm.get_rank()
    if len(global_ranks) != size:
        raise RuntimeError(
            f"global_ranks has {len(global_ranks)} ranks, but communicator "
            f"'{comm.get_name()}' has {size}"
        )
    rows = flat.remap_to_tensor(root._rank_map).tolist()
    wanted = next(row for row in rows if root._rank in row)
    if wanted != global_ranks:
        raise RuntimeError(
            f"global_ranks is {global_ranks}, but flattening to layout {flat} gives "
            f"rank {root._rank} the dimension {wanted}"
        )
    if global_ranks[rank] != root._rank:
        raise RuntimeError(
            f"this process is rank {root._rank} of the mesh, but rank {rank} of "
            f"communicator '{comm.get_name()}' is {global_ranks[rank]} in global_ranks"
        )


# Process groups -----------------------------------------------------------------------


def _wrapper_of(group):
    """The backend that wraps a communicator, or None where it is another's."""
    for device in group._device_types:
        backend = group._get_backend(device)
        if isinstance(backend, shim_class("_BackendWrapper")):
            return backend
    return None


def _group_over(comm, name):
    """The group of this name if it is over `comm`: that of an earlier mesh."""
    for group, known in c10d._world.pg_names.items():
        if known == name:
            wrapper = _wrapper_of(group)
            if wrapper is not None and wrapper.get_comm() is comm:
                return group
    return None


def _create_subgroup(options, backend_options=None):
    """What new_group() runs: a communicator of the default group's backend."""
    world = c10d.GroupMember.WORLD
    wrapper = None if world is None else _wrapper_of(world)
    name = "torchcomms" if wrapper is None else wrapper.name()
    return _creator(name)(options, backend_options)


def _register_backend(name):
    if not hasattr(dist.Backend, name.upper()):
        dist.Backend.register_backend(
            name, _create_subgroup, extended_api=True, devices=["cpu"]
        )


def _add_group(comm, name, backend_str, mapping, store):
    """A process group over `comm`, in the tables of torch.distributed."""
    _register_backend(backend_str)
    device = comm.get_device()
    custom = dist.ProcessGroup.BackendType.CUSTOM
    group = dist.ProcessGroup(store, comm.get_rank(), comm.get_size())
    group._set_default_backend(custom)
    group._register_backend(device, custom, shim_class("_BackendWrapper")(comm))
    group._set_group_name(name)
    group._set_group_desc(f"mesh_{name}")
    world, tag = c10d._world, f"ptd:{name}"
    world.pg_map[group] = (backend_str, store)
    world.pg_names[group] = name
    world.pg_backend_config[group] = f"{device.type}:{backend_str}"
    world.pg_group_ranks[group] = dict(mapping)
    world.pg_to_tag[group] = tag
    for key in ("", tag):
        world.tags_to_pg.setdefault(key, []).append(group)
    c10d._register_process_group(name, group)
    return group


def _note_group(mesh, name):
    """Compiled code takes the groups from the mesh."""
    registry = getattr(mesh, "_pg_registry", None)
    if registry is not None:
        registry[name] = c10d._resolve_process_group(name)
