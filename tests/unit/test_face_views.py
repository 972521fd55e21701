# SPDX-License-Identifier: BSD-3-Clause
"""Two ways to a tensor's memory, the c10d shim's and DLPack's: one behaviour."""

import json
import os
import subprocess
import sys

import pytest

PROBE = """
import json, os, sys
if sys.argv[1] == "dlpack":
    sys.modules["torchcomms._backend_wrapper"] = None  # as if it had not been built
os.environ.update(RANK="0", WORLD_SIZE="1")
import torch
import torchcomms

comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="views")
assert ("built_for" in dir(sys.modules["torchcomms._backend_wrapper"])) == (
    sys.argv[1] == "shim"
)

class Sub(torch.Tensor):
    pass

def ramp(*shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return torch.arange(1, count + 1, dtype=torch.float32).reshape(shape).to(dtype)

shared = ramp(4)
cases = {
    "float32": lambda: ramp(3),
    "scalar": lambda: ramp(),
    "empty": lambda: ramp(0, 3),
    "parameter": lambda: torch.nn.Parameter(ramp(3), requires_grad=False),
    "needs grad": lambda: torch.nn.Parameter(ramp(3)),
    "of a graph": lambda: torch.nn.Parameter(ramp(3)) * 1,
    "subclass": lambda: ramp(3).as_subclass(Sub),
    "behind an offset": lambda: ramp(5)[2:],
    "odd strides of length one": lambda: torch.as_strided(ramp(4), (1, 3), (7, 1)),
    "inference": lambda: torch.inference_mode()(lambda: ramp(3) * 1)(),
    "bfloat16": lambda: ramp(3, dtype=torch.bfloat16),
    "float64": lambda: ramp(3, dtype=torch.float64),
    "complex64": lambda: ramp(3, dtype=torch.complex64),
    "float8": lambda: ramp(3, dtype=torch.float8_e4m3fn),
    "copied on write": lambda: torch._lazy_clone(shared),
    "resolved": lambda: torch._neg_view(ramp(3)).resolve_neg(),
    "rows": lambda: ramp(2, 3).t(),
    "expanded": lambda: ramp(1).expand(3),
    "negative bit": lambda: torch._neg_view(ramp(3)),
    "conjugate bit": lambda: ramp(3, dtype=torch.complex64).conj(),
    "zero": lambda: torch._efficientzerotensor((3,)),
    "functional": lambda: torch._to_functional_tensor(ramp(3)),
    "meta": lambda: torch.empty(3, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(ramp(3), 1.0, 0, torch.qint8),
    "list": lambda: [1.0],
    "none": lambda: None,
}
double = torchcomms.ReduceOp.PREMUL_SUM(2.0)
for name, make in cases.items():
    tensor = make()
    try:
        comm.all_reduce(tensor, double, async_op=False)
    except Exception as refusal:
        found = f"{type(refusal).__name__}: {str(refusal).splitlines()[0]}"
    else:
        found = str(tensor.detach().tolist())
    print(json.dumps([name, found]))
print(json.dumps(["original of the copy", str(shared.tolist())]))
comm.finalize()
"""

DOUBLED = str([2.0, 4.0, 6.0])
EXPECTED = {
    "float32": DOUBLED,
    "scalar": "2.0",
    "empty": "[]",
    "parameter": DOUBLED,
    "needs grad": DOUBLED,
    "of a graph": DOUBLED,
    "subclass": DOUBLED,
    "behind an offset": str([6.0, 8.0, 10.0]),
    "odd strides of length one": str([[2.0, 4.0, 6.0]]),
    "inference": DOUBLED,
    "bfloat16": DOUBLED,
    "float64": DOUBLED,
    "complex64": str([2 + 0j, 4 + 0j, 6 + 0j]),
    "float8": DOUBLED,
    "copied on write": str([2.0, 4.0, 6.0, 8.0]),
    "original of the copy": str([1.0, 2.0, 3.0, 4.0]),
    "resolved": str([-2.0, -4.0, -6.0]),
    "rows": "RuntimeError: Tensor must be contiguous: tensor has shape",
    "expanded": "RuntimeError: Tensor must be contiguous: tensor has shape",
    "negative bit": "RuntimeError: tensor has its negative bit set",
    "conjugate bit": "RuntimeError: tensor has its conjugate bit set",
    "meta": "RuntimeError: tensor is on meta",
    "sparse": "RuntimeError: tensor has layout torch.sparse_coo",
    "quantized": "RuntimeError: tensor is quantized",
    "list": "TypeError: tensor must be a torch.Tensor, but got list",
    "none": "TypeError: tensor must be a torch.Tensor, but got NoneType",
}


@pytest.fixture(scope="module")
def found():
    results = {}
    for way in ("shim", "dlpack"):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, way],
            env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        results[way] = dict(map(json.loads, done.stdout.splitlines()))
    return results


@pytest.mark.parametrize("case", EXPECTED)
@pytest.mark.parametrize("way", ["shim", "dlpack"])
def test_view(found, way, case):
    assert found[way][case].startswith(EXPECTED[case])


def test_the_ways_agree(found):
    """Also on what no row above names, like functional tensors."""
    assert found["shim"] == found["dlpack"]
