# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects, over the tensors of a communicator.

All of them block and return None. Objects travel as `torch.save` writes them, and are
read with `weights_only=True` unless the caller says otherwise: that refuses classes
which torch does not know. TORCHCOMMS_SERIALIZATION=pickle sends plain pickles, which
can run any code of the sender at the receiver.

    everyone = [None] * comm.get_size()
    torchcomms.objcol.all_gather_object(comm, everyone, {"rank": comm.get_rank()})
"""

from __future__ import annotations

import functools
import io
import pickle
from datetime import timedelta
from typing import Any

import torch
from torch.monitor import _WaitCounter

from torchcomms import _core
from torchcomms._core import TorchComm

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]

_COUNTER = "pytorch.wait_counter.torchcomms."


@functools.cache
def _plain_pickle():
    """Whether objects travel as plain pickles; the environment is read once."""
    word = _core._option("TORCHCOMMS_SERIALIZATION")
    if word not in ("", "pickle"):
        raise RuntimeError(
            f"TORCHCOMMS_SERIALIZATION must be 'pickle' or not set, but is '{word}'"
        )
    return word == "pickle"


def _object_to_tensor(obj: Any, device: torch.device) -> torch.Tensor:
    """The bytes of an object."""
    with _WaitCounter(f"{_COUNTER}_object_to_tensor").guard():
        buffer = io.BytesIO()
        if _plain_pickle():
            pickle.dump(obj, buffer)
        else:
            torch.save(obj, buffer)
        data = bytearray(buffer.getbuffer())
        return torch.frombuffer(data, dtype=torch.uint8).to(device)


def _tensor_to_object(tensor: torch.Tensor, weights_only: bool) -> Any:
    """The object of those bytes."""
    with _WaitCounter(f"{_COUNTER}_tensor_to_object").guard():
        # Into memory of Python's own: torch may be without numpy.
        data = bytearray(tensor.numel())
        torch.frombuffer(data, dtype=torch.uint8).copy_(tensor)
        buffer = io.BytesIO(data)
        if _plain_pickle():
            return pickle.load(buffer)
        return torch.load(buffer, weights_only=weights_only)


def _pack(objects, device):
    """Sizes, in bytes, and one tensor of the objects behind each other."""
    parts = [_object_to_tensor(obj, device) for obj in objects]
    sizes = torch.tensor([part.numel() for part in parts], dtype=torch.int64)
    return sizes.to(device), torch.cat(parts)


def _unpack(objects, sizes, data, weights_only):
    """Fills the list in place."""
    parts = torch.split(data, sizes.tolist())
    objects[:] = [_tensor_to_object(part, weights_only) for part in parts]


def _padded(tensor, length):
    """A copy with zeros up to that length, for calls that want equal sizes."""
    out = torch.zeros(length, dtype=torch.uint8, device=tensor.device)
    out[: tensor.numel()] = tensor
    return out


def _check_list(name, value):
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list, but got {type(value).__name__}")


def _check_filled(name, value):
    _check_list(name, value)
    if not value:
        raise ValueError(f"{name} must not be empty")


def _check_length(name, value, wanted):
    _check_list(name, value)
    if len(value) != wanted:
        raise ValueError(f"{name} must have {wanted} elements, but has {len(value)}")


def _check_rank(comm, name, rank):
    size = comm.get_size()
    if not 0 <= rank < size:
        raise RuntimeError(f"{name} must be in range [0, {size}), but got {rank}")


def _gather_sizes(comm, mine, timeout):
    """Every rank's number of bytes, on every rank."""
    device = comm.get_device()
    size = torch.tensor([mine.numel()], dtype=torch.int64, device=device)
    sizes = torch.zeros(comm.get_size(), dtype=torch.int64, device=device)
    comm.all_gather_single(output=sizes, input=size, async_op=False, timeout=timeout)
    return sizes.tolist()


def all_gather_object(
    comm: TorchComm,
    object_list: list[Any],
    obj: Any,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Puts the object of rank r into `object_list[r]`, on every rank."""
    _check_length("object_list", object_list, comm.get_size())
    mine = _object_to_tensor(obj, comm.get_device())
    sizes = _gather_sizes(comm, mine, timeout)
    longest = max(sizes)
    mine = _padded(mine, longest)
    out = torch.empty(longest * len(sizes), dtype=torch.uint8, device=mine.device)
    comm.all_gather_single(output=out, input=mine, async_op=False, timeout=timeout)
    rows = out.view(len(sizes), longest)
    for rank, size in enumerate(sizes):
        object_list[rank] = _tensor_to_object(rows[rank, :size], weights_only)


def gather_object(
    comm: TorchComm,
    obj: Any,
    root: int,
    object_gather_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Puts the object of rank r into `object_gather_list[r]`, on `root` only."""
    _check_rank(comm, "root", root)
    is_root = comm.get_rank() == root
    if is_root:
        assert object_gather_list is not None, "root needs object_gather_list"
        _check_length("object_gather_list", object_gather_list, comm.get_size())
    mine = _object_to_tensor(obj, comm.get_device())
    sizes = _gather_sizes(comm, mine, timeout)
    longest = max(sizes)
    mine = _padded(mine, longest)
    rows = [torch.empty_like(mine) for _ in sizes] if is_root else []
    comm.gather(
        output_tensor_list=rows,
        input_tensor=mine,
        root=root,
        async_op=False,
        timeout=timeout,
    )
    if object_gather_list is not None and is_root:
        for rank, size in enumerate(sizes):
            part = rows[rank][:size]
            object_gather_list[rank] = _tensor_to_object(part, weights_only)


def send_object_list(
    comm: TorchComm,
    object_list: list[Any],
    dst: int,
    timeout: timedelta | None = None,
) -> None:
    """Sends the objects to rank `dst`, which calls `recv_object_list`."""
    _check_filled("object_list", object_list)
    sizes, data = _pack(object_list, comm.get_device())
    comm.send(tensor=sizes, dst=dst, async_op=False, timeout=timeout)
    comm.send(tensor=data, dst=dst, async_op=False, timeout=timeout)


def recv_object_list(
    comm: TorchComm,
    object_list: list[Any],
    src: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Fills the list, which is as long as the sender's, with objects of rank `src`."""
    _check_filled("object_list", object_list)
    device = comm.get_device()
    sizes = torch.zeros(len(object_list), dtype=torch.int64, device=device)
    comm.recv(tensor=sizes, src=src, async_op=False, timeout=timeout)
    data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device=device)
    comm.recv(tensor=data, src=src, async_op=False, timeout=timeout)
    _unpack(object_list, sizes, data, weights_only)


def broadcast_object_list(
    comm: TorchComm,
    object_list: list[Any],
    root: int,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Overwrites the list with the root's, which is as long; the root keeps its own."""
    _check_filled("object_list", object_list)
    device = comm.get_device()
    is_root = comm.get_rank() == root
    if is_root:
        sizes, data = _pack(object_list, device)
    else:
        sizes = torch.zeros(len(object_list), dtype=torch.int64, device=device)
    comm.broadcast(tensor=sizes, root=root, async_op=False, timeout=timeout)
    if not is_root:
        data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device=device)
    comm.broadcast(tensor=data, root=root, async_op=False, timeout=timeout)
    if not is_root:
        _unpack(object_list, sizes, data, weights_only)


def scatter_object_list(
    comm: TorchComm,
    root: int,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Puts the root's `scatter_object_input_list[r]` into rank r's element 0."""
    if (
        not isinstance(scatter_object_output_list, list)
        or not scatter_object_output_list
    ):
        raise ValueError("scatter_object_output_list must be a list that is not empty")
    _check_rank(comm, "root", root)
    device = comm.get_device()
    rows = []
    # What the others need to know first: the longest, then each its own.
    sizes = torch.zeros(comm.get_size(), dtype=torch.int64, device=device)
    if comm.get_rank() == root:
        if scatter_object_input_list is None:
            raise ValueError("root needs scatter_object_input_list")
        _check_length(
            "scatter_object_input_list", scatter_object_input_list, comm.get_size()
        )
        rows = [_object_to_tensor(obj, device) for obj in scatter_object_input_list]
        sizes = torch.tensor([row.numel() for row in rows], dtype=torch.int64)
        sizes = sizes.to(device)
    comm.broadcast(tensor=sizes, root=root, async_op=False, timeout=timeout)
    longest = int(sizes.max())
    mine = torch.empty(longest, dtype=torch.uint8, device=device)
    comm.scatter(
        output_tensor=mine,
        input_tensor_list=[_padded(row, longest) for row in rows],
        root=root,
        async_op=False,
        timeout=timeout,
    )
    mine = mine[: int(sizes[comm.get_rank()])]
    scatter_object_output_list[0] = _tensor_to_object(mine, weights_only)
