# SPDX-License-Identifier: BSD-3-Clause
"""What collectives should give, computed with torch and numpy from every rank's input.

Inputs are a function of dtype, length and rank, so every rank knows all of them. The
rules of rounding are in docs/design/reduction.md.
"""

from functools import lru_cache

import numpy as np
import torch

import torchcomms

SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
SMALL_FLOATS = [
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]
FLOATS = [*SMALL_FLOATS, torch.float32, torch.float64]
REAL_OF = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
UNREDUCED = [torch.float8_e8m0fnu, torch.float4_e2m1fn_x2]
REDUCED = [torch.bool, *SIGNED, *UNSIGNED, *FLOATS, *REAL_OF]
MOVED = [*REDUCED, *UNREDUCED]
OPS = "SUM PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM AVG".split()


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def legal_ops(dtype):
    if dtype in UNREDUCED:
        return []
    if dtype == torch.bool:
        return [op for op in OPS if op not in ("AVG", "PREMUL_SUM")]
    if dtype in REAL_OF:
        return ["SUM", "PRODUCT", "PREMUL_SUM", "AVG"]
    if dtype in FLOATS:
        return ["SUM", "PRODUCT", "MIN", "MAX", "PREMUL_SUM", "AVG"]
    return [op for op in OPS if op != "PREMUL_SUM"]


def factor_of(rank):
    """No two alike, none exact in binary."""
    return (rank + 1) / 3 - 0.9


def op_of(name, rank):
    if name == "PREMUL_SUM":
        return torchcomms.ReduceOp.PREMUL_SUM(factor_of(rank))
    return getattr(torchcomms.ReduceOp, name)


@lru_cache(maxsize=256)
def random_bytes(dtype, count, rank):
    """Any bit pattern, NaNs too: what is moved keeps every bit."""
    generator = torch.Generator().manual_seed(1000 * rank + count % 997)
    high = 2 if dtype == torch.bool else 256
    shape = (count * dtype.itemsize,)
    return torch.randint(high, shape, generator=generator, dtype=torch.uint8)


def pattern(dtype, count, rank):
    return random_bytes(dtype, count, rank).view(dtype)


@lru_cache(maxsize=64)
def numbers(dtype, count, rank):
    """Input of reductions: any integer, and floats without NaN."""
    if dtype not in FLOATS and dtype not in REAL_OF:
        return pattern(dtype, count, rank)
    generator = torch.Generator().manual_seed(7 + rank)
    if dtype in REAL_OF:
        real = REAL_OF[dtype]
        return torch.randn(2 * count, generator=generator).to(real).view(dtype)
    values = torch.randn(count, generator=generator).to(dtype)
    # No zeros: of a positive and a negative one torch says nothing in MIN and MAX.
    return torch.where(values.double() == 0, 1.0, values.double()).to(dtype)


def _parts(tensor):
    """The real numbers of a tensor, in the type in which they are accumulated."""
    if tensor.dtype in REAL_OF:
        tensor = tensor.view(REAL_OF[tensor.dtype])
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def _narrow(parts, dtype):
    return parts.to(REAL_OF.get(dtype, dtype)).view(dtype)


def scaled(tensor, factor):
    """PREMUL_SUM's contribution of one rank: rounded to the dtype."""
    return _narrow(_parts(tensor) * factor, tensor.dtype)


def _complex_product(a, b):
    a_re, a_im = a.view(-1, 2).unbind(1)
    b_re, b_im = b.view(-1, 2).unbind(1)
    re = a_re * b_re - a_im * b_im
    return torch.stack([re, a_re * b_im + a_im * b_re], 1).view(-1)


FLOAT_STEPS = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PREMUL_SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}
INTEGER_STEPS = {
    "SUM": np.add,
    "AVG": np.add,
    "PRODUCT": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
BOOL_STEPS = INTEGER_STEPS | {"SUM": np.logical_or, "PRODUCT": np.logical_and}


def _reduce_floats(op, tensors):
    dtype = tensors[0].dtype
    step = FLOAT_STEPS[op]
    if op == "PRODUCT" and dtype in REAL_OF:
        step = _complex_product
    total = _parts(tensors[0])
    for tensor in tensors[1:]:
        total = step(total, _parts(tensor))
    if op == "AVG":
        total = total / len(tensors)
    return _narrow(total, dtype)


def _reduce_integers(op, tensors):
    steps = BOOL_STEPS if tensors[0].dtype == torch.bool else INTEGER_STEPS
    arrays = [t.numpy() for t in tensors]
    total = arrays[0].copy()
    for array in arrays[1:]:
        total = steps[op](total, array)
    if op == "AVG":
        n = total.dtype.type(len(tensors))
        quotient = total // n
        # Toward zero, where numpy goes down.
        total = quotient + ((quotient < 0) & (quotient * n != total))
        total = total.astype(arrays[0].dtype)
    result = torch.empty(total.size, dtype=tensors[0].dtype)
    result.numpy()[:] = total
    return result


def reduction(op, tensors):
    """All ranks' tensors combined from left to right."""
    if op == "PREMUL_SUM":
        tensors = [scaled(t, factor_of(r)) for r, t in enumerate(tensors)]
    dtype = tensors[0].dtype
    if dtype in FLOATS or dtype in REAL_OF:
        return _reduce_floats(op, tensors)
    return _reduce_integers(op, tensors)


@lru_cache(maxsize=16)
def reduced_numbers(op, dtype, count, size):
    return reduction(op, [numbers(dtype, count, r) for r in range(size)])
