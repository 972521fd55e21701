# SPDX-License-Identifier: BSD-3-Clause
"""What the arguments of a pre-hook say, and what all hooks ask of a communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchcomms import _core

Tensors = tuple[Any, ...]

_OP = _core.OpName
IN_PLACE = frozenset({_OP.send, _OP.broadcast, _OP.all_reduce, _OP.reduce})
POINT_TO_POINT = frozenset({_OP.send, _OP.recv, _OP.batch_op_issue})
WITHOUT_TENSORS = frozenset(
    {_OP.barrier, _OP.split, _OP.batch_op_issue, _OP.new_window, _OP.finalize}
)


def _several(value: Any) -> Tensors:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _in_place(args: Any) -> tuple[Tensors, Tensors]:
    one = (args.tensor,)
    return one, one


def _without(args: Any) -> tuple[Tensors, Tensors]:
    return (), ()


def _received(args: Any) -> tuple[Tensors, Tensors]:
    return (), (args.tensor,)


def _both_sides(args: Any) -> tuple[Tensors, Tensors]:
    return _several(args.input), _several(args.output)


def _find_reader(op: _core.OpName) -> Callable[[Any], tuple[Tensors, Tensors]]:
    if op in IN_PLACE:
        return _in_place
    if op in WITHOUT_TENSORS:
        return _without
    return _received if op is _OP.recv else _both_sides


# By the class of the arguments, which hashes in no time.
_readers: dict[type, Callable[[Any], tuple[Tensors, Tensors]]] = {}


def tensors_of(op: _core.OpName, args: Any) -> tuple[Tensors, Tensors]:
    """Inputs and outputs of a call; what is changed in place is both."""
    reader = _readers.get(type(args))
    if reader is None:
        reader = _readers[type(args)] = _find_reader(op)
    return reader(args)


def require_comm(comm: Any) -> None:
    if not isinstance(comm, _core.TorchComm):
        raise TypeError(f"comm must be a torchcomms.TorchComm, but got {comm!r}")


def size_of(comm: _core.TorchComm) -> int:
    """0 where the communicator has no ranks yet, before its first reconfigure."""
    try:
        return max(comm.get_size(), 0)
    except RuntimeError:
        return 0
