# SPDX-License-Identifier: BSD-3-Clause
"""The reduction kernels against torch and numpy, bit for bit, at every ISA level."""

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"baseline": 0, "avx2": 1, "avx512": 2}
SMALL = [
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
COUNT = 1003


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    # Whatever WERROR is outside: it decides where the library lies.
    build = ["make", "-s", "-f", "csrc/build.mk", "lib", "WERROR=1"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=600)
    path = tmp_path_factory.mktemp("probe") / "reduce_probe.so"
    command = [
        *(os.environ.get("CC", "cc"), "-std=c11", "-O1", "-shared", "-fPIC"),
        *("-fvisibility=hidden", "-Icsrc", "-Icsrc/include", "-D_GNU_SOURCE"),
        *(
            "tests/unit/reduce_probe.c",
            "build/release-strict/libtorchcomms.a",
            "-o",
            str(path),
        ),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    library = ctypes.CDLL(str(path))
    library.probe_scale.argtypes = [
        *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
        *(ctypes.c_double, ctypes.c_size_t),
    ]
    for name in ("probe_widen", "probe_narrow"):
        getattr(library, name).argtypes = [
            *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
            ctypes.c_size_t,
        ]
    return library


@pytest.fixture(params=LEVELS)
def level(request, probe):
    number = LEVELS[request.param]
    if not probe.probe_runs(number):
        pytest.skip(f"this CPU has no {request.param}")
    return number


def dtype_number(probe, name):
    number = probe.probe_dtype(str(name).removeprefix("torch.").encode())
    assert number >= 0
    return number


def reduce(probe, level, name, op, arrays):
    """The kernel's result for numpy arrays whose bytes are of the named dtype."""
    out = np.empty_like(arrays[0])
    pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
    status = probe.probe_reduce(
        *(level, dtype_number(probe, name), probe.probe_redop(op.encode())),
        *(ctypes.c_void_p(out.ctypes.data), pointers, len(arrays)),
        ctypes.c_size_t(len(out)),
    )
    assert status == 0
    return out


def code_type(dtype):
    return np.uint8 if dtype.itemsize == 1 else np.uint16


def to_torch(codes, dtype):
    return torch.from_numpy(codes).view(dtype)


def to_codes(tensor):
    unsigned = torch.uint8 if tensor.element_size() == 1 else torch.uint16
    return tensor.view(unsigned).numpy()


def assert_same_floats(actual, expected):
    """Same bits, except that any NaN equals any other."""
    assert actual.dtype == expected.dtype
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), nan)
    unsigned = np.dtype(f"u{actual.dtype.itemsize}")
    same = actual.view(unsigned) == expected.view(unsigned)
    assert (same | nan).all()


def assert_same_codes(actual, expected, dtype):
    nan = to_torch(expected, dtype).float().isnan().numpy()
    assert np.array_equal(to_torch(actual, dtype).float().isnan().numpy(), nan)
    different = np.flatnonzero((actual != expected) & ~nan)
    assert different.size == 0, [
        (hex(actual[i]), hex(expected[i])) for i in different[:5]
    ]


def float32_samples(dtype):
    """Every value of the format, every midpoint of two, both neighbours of each, and
    random bits with every exponent."""
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=code_type(dtype))
    values = to_torch(codes, dtype).float().numpy()
    values = np.unique(values[np.isfinite(values)]).astype(np.float64)
    step = values[-1] - values[-2]
    values = np.concatenate([[values[0] - step], values, [values[-1] + step]])
    with np.errstate(over="ignore"):
        marks = np.concatenate([values, (values[1:] + values[:-1]) / 2])
        marks = marks.astype(np.float32)
    bits = np.random.default_rng(1).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    return np.concatenate(
        [
            *(marks, np.nextafter(marks, np.float32(np.inf))),
            np.nextafter(marks, np.float32(-np.inf)),
            bits.view(np.float32),
            np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32),
        ]
    )


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_widening_is_torchs_for_every_code(probe, level, dtype):
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=code_type(dtype))
    wide = np.empty(len(codes), np.float32)
    number = dtype_number(probe, dtype)
    probe.probe_widen(level, number, wide.ctypes.data, codes.ctypes.data, len(codes))
    assert_same_floats(wide, to_torch(codes, dtype).float().numpy())


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_narrowing_is_torchs(probe, level, dtype):
    wide = float32_samples(dtype)
    codes = np.empty(len(wide), code_type(dtype))
    number = dtype_number(probe, dtype)
    probe.probe_narrow(level, number, codes.ctypes.data, wide.ctypes.data, len(wide))
    expected = to_codes(torch.from_numpy(wide).to(dtype))
    assert_same_codes(codes, expected, dtype)
    if dtype.itemsize == 1:
        assert np.array_equal(codes, expected)  # the NaN codes too


FLOAT_STEPS = {
    "SUM": torch.add,
    "PREMUL_SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def float_reference(tensors, op, wide):
    total = tensors[0].to(wide)
    for tensor in tensors[1:]:
        total = FLOAT_STEPS[op](total, tensor.to(wide))
    if op == "AVG":
        total = total / len(tensors)
    return total.to(tensors[0].dtype)


def without_minus_zero(tensor):
    return torch.where(tensor == 0, torch.zeros_like(tensor), tensor)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("op", FLOAT_STEPS)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_small_floats(probe, level, dtype, op, n):
    rng = np.random.default_rng(n)
    high = 1 << (8 * dtype.itemsize)
    arrays = [rng.integers(0, high, 20011, code_type(dtype)) for _ in range(n)]
    if op in ("MIN", "MAX"):  # which of two zeros wins is ours to say
        tensors = [to_torch(a, dtype) for a in arrays]
        plus = [without_minus_zero(t.float()).to(dtype) for t in tensors]
        arrays = [to_codes(t) for t in plus]
    expected = float_reference([to_torch(a, dtype) for a in arrays], op, torch.float32)
    actual = reduce(probe, level, dtype, op, arrays)
    assert_same_codes(actual, to_codes(expected), dtype)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("op", FLOAT_STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floats(probe, level, dtype, op, n):
    rng = np.random.default_rng(n)
    arrays = [rng.standard_normal(20011) for _ in range(n)]
    for array in arrays:
        array[rng.integers(0, len(array), 20)] = np.nan
        array[rng.integers(0, len(array), 20)] = np.inf
        array[rng.integers(0, len(array), 20)] = 5e-324
    arrays = [a.astype(str(dtype).removeprefix("torch.")) for a in arrays]
    tensors = [torch.from_numpy(a) for a in arrays]
    expected = float_reference(tensors, op, dtype)
    actual = reduce(probe, level, dtype, op, arrays)
    assert_same_floats(actual, expected.numpy())


def integer_reference(arrays, op):
    steps = {
        "SUM": np.add,
        "AVG": np.add,
        "PRODUCT": np.multiply,
        "MIN": np.minimum,
        "MAX": np.maximum,
        "BAND": np.bitwise_and,
        "BOR": np.bitwise_or,
        "BXOR": np.bitwise_xor,
    }
    total = arrays[0]
    for array in arrays[1:]:
        total = steps[op](total, array)
    if op != "AVG":
        return total
    n = len(arrays)
    quotients = [abs(int(v)) // n * (-1 if v < 0 else 1) for v in total]
    return np.array(quotients, dtype=total.dtype)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize(
    "op", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(probe, level, name, op, n):
    rng = np.random.default_rng(n)
    info = np.iinfo(name)
    arrays = [
        rng.integers(info.min, info.max, 5003, np.dtype(name), endpoint=True)
        for _ in range(n)
    ]
    arrays[0][:3] = info.min, info.max, 0
    actual = reduce(probe, level, name, op, arrays)
    assert np.array_equal(actual, integer_reference(arrays, op))


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("op", ["SUM", "PREMUL_SUM", "AVG", "PRODUCT"])
@pytest.mark.parametrize("name", ["complex32", "complex64", "complex128"])
def test_complex(probe, level, name, op, n):
    real = {"complex32": "f2", "complex64": "f4", "complex128": "f8"}[name]
    wide = np.float64 if name == "complex128" else np.float32
    rng = np.random.default_rng(n)
    arrays = [rng.standard_normal((COUNT, 2)).astype(real) for _ in range(n)]
    re, im = arrays[0].astype(wide).T
    for array in arrays[1:]:
        other_re, other_im = array.astype(wide).T
        if op == "PRODUCT":
            re, im = re * other_re - im * other_im, re * other_im + im * other_re
        else:
            re, im = re + other_re, im + other_im
    if op == "AVG":
        re, im = re / wide(n), im / wide(n)
    expected = np.stack([re, im], axis=1).astype(real)
    actual = reduce(probe, level, name, op, arrays)
    assert_same_floats(actual.ravel(), expected.ravel())


@pytest.mark.parametrize(
    "dtype", [*SMALL, torch.float32, torch.float64, torch.complex64], ids=str
)
def test_scaling(probe, level, dtype):
    factor = 1.0 / 3
    source = torch.randn(COUNT, generator=torch.Generator().manual_seed(1))
    if dtype.is_complex:
        source = torch.view_as_complex(source[:-1].view(-1, 2))
        expected = torch.view_as_complex(torch.view_as_real(source) * factor)
    else:
        source = source.to(dtype)
        wide = source if dtype.itemsize >= 4 else source.float()
        expected = (wide * factor).to(dtype)
    actual = torch.empty_like(source)
    probe.probe_scale(
        *(level, dtype_number(probe, dtype), actual.data_ptr(), source.data_ptr()),
        *(factor, source.numel()),
    )
    assert torch.equal(actual.view(torch.uint8), expected.view(torch.uint8))
