# SPDX-License-Identifier: BSD-3-Clause
"""The signature of a call: what it does, apart from when."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchcomms import _core
from torchcomms.hooks._calls import IN_PLACE, Tensors, tensors_of

_FIELDS = {
    "all_reduce": "in_count out_count dtype red_op async_op",
    "broadcast": "in_count out_count dtype root async_op",
    "reduce": "in_count out_count dtype red_op root async_op",
    "send": "in_count out_count dtype peer async_op",
    "recv": "in_count out_count dtype peer async_op",
    "all_gather_single": "in_count out_count dtype async_op",
    "all_to_all_single": "in_count out_count dtype async_op",
    "reduce_scatter_single": "in_count out_count dtype red_op async_op",
    "all_to_all_v_single": "in_splits out_splits dtype async_op",
    "all_gather": "in_count out_counts dtype async_op",
    "all_gather_v": "in_count out_counts dtype async_op",
    "reduce_scatter": "in_counts out_count dtype red_op async_op",
    "reduce_scatter_v": "in_counts out_count dtype red_op async_op",
    "all_to_all": "in_counts out_counts dtype async_op",
    "scatter": "in_counts out_count dtype root async_op",
    "gather": "in_count out_counts dtype root async_op",
    "gather_single": "in_count out_count dtype root async_op",
    "barrier": "async_op",
    "batch_op_issue": "num_ops async_op",
}
_DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "float8_e4m3fn": "fp8e4m3",
    "float8_e5m2": "fp8e5m2",
}
_REDUCTIONS = {
    "SUM": "sum",
    "PRODUCT": "prod",
    "MIN": "min",
    "MAX": "max",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
    "PREMUL_SUM": "premul_sum",
    "AVG": "avg",
}


class _Call:
    def __init__(self, op: _core.OpName, args: Any) -> None:
        self.args = args
        self.inputs, self.outputs = tensors_of(op, args)
        if op is _core.OpName.send:
            self.outputs = ()


def _numbers(values: Iterable[int]) -> str:
    return ",".join(str(value) for value in values)


def _count(tensors: Tensors) -> str:
    return str(sum(tensor.numel() for tensor in tensors))


def _counts(tensors: Tensors) -> str:
    return _numbers(tensor.numel() for tensor in tensors)


def _dtype(call: _Call) -> str:
    tensors = call.inputs or call.outputs
    name = str(tensors[0].dtype).rpartition(".")[2] if tensors else ""
    return _DTYPES.get(name, "other")


def _reduction(call: _Call) -> str:
    op = getattr(call.args, "op", None)
    name = "" if op is None else str(op.type).rpartition(".")[2]
    return _REDUCTIONS.get(name, "unknown")


_VALUES: dict[str, Callable[[_Call], str]] = {
    "in_count": lambda call: _count(call.inputs),
    "out_count": lambda call: _count(call.outputs),
    "in_counts": lambda call: _counts(call.inputs),
    "out_counts": lambda call: _counts(call.outputs),
    "in_splits": lambda call: _numbers(call.args.input_split_sizes),
    "out_splits": lambda call: _numbers(call.args.output_split_sizes),
    "dtype": _dtype,
    "red_op": _reduction,
    "root": lambda call: str(call.args.root),
    "peer": lambda call: str(call.args.peer),
    "num_ops": lambda call: str(call.args.num_ops),
    "async_op": lambda call: "t" if call.args.async_op else "f",
}


def _addresses(tensors: Tensors) -> str:
    return ",".join(hex(tensor.data_ptr()) for tensor in tensors)


def _buffers(op: _core.OpName, call: _Call) -> list[str]:
    if op in IN_PLACE or op is _core.OpName.recv:
        return [f"buf={_addresses(call.inputs or call.outputs)}"]
    sides = {"in": call.inputs, "out": call.outputs}
    return [f"{side}={_addresses(ts)}" for side, ts in sides.items() if ts]


def signature(op: _core.OpName, args: Any, buffers: bool) -> str | None:
    """`all_reduce|in_count=4|...`; None for what is not logged as a call."""
    name = str(op).rpartition(".")[2]
    fields = _FIELDS.get(name)
    if fields is None:
        return None
    call = _Call(op, args)
    parts = [name] + [f"{field}={_VALUES[field](call)}" for field in fields.split()]
    if buffers:
        parts += _buffers(op, call)
    return "|".join(parts)
