# SPDX-License-Identifier: BSD-3-Clause
"""The switch as the environment variable, which torch reads while it is imported: each
rank is a program of its own that imports torch alone."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torchcomms
from multi.support.ranks import environment

LIMIT_S = 120
ROOT = Path(torchcomms.__file__).parents[1]

PROGRAM = textwrap.dedent(
    """
    import json
    import os
    import sys
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    backend, path = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found = {}


    def total(group=None):
        tensor = torch.full((3,), float(rank + 1))
        dist.all_reduce(tensor, group=group)
        return tensor[0].item()


    dist.init_process_group(
        backend,
        rank=rank,
        world_size=size,
        store=dist.FileStore(path, size),
        timeout=timedelta(seconds=60),
    )
    wrapper = dist.group.WORLD._get_backend(torch.device("cpu"))
    found["switched"] = dist.config.use_torchcomms
    found["wrapper"] = f"{type(wrapper).__name__} {wrapper.name()}"
    found["comm"] = wrapper.get_comm().get_backend()
    found["world"] = total()
    pair = dist.new_group([0, 1])
    if rank < 2:
        found["pair"] = total(pair)
    child = dist.split_group(split_ranks=[[0], list(range(1, size))])
    found["child"] = total(child)
    dist.destroy_process_group(child)
    found["after"] = total()
    dist.destroy_process_group()
    found["over"] = not dist.is_initialized()
    print(json.dumps(found))
    """
)


def start(rank, size, backend, path, switch):
    variables = {"RANK": str(rank), "WORLD_SIZE": str(size), "PYTHONPATH": str(ROOT)}
    if switch is not None:
        variables["TORCH_DISTRIBUTED_USE_TORCHCOMMS"] = switch
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, backend, str(path)],
        env=environment("environment") | variables,
        cwd=ROOT,  # what `-c` looks in first
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(programs):
    try:
        return [program.communicate(timeout=LIMIT_S) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.parametrize("backend", ["ncclx", "torchcomms"])
def test_the_variable_alone_is_the_switch(tmp_path, backend):
    programs = [start(r, 3, backend, tmp_path / "store", "1") for r in range(3)]
    outputs = finish(programs)
    assert [p.returncode for p in programs] == [0] * 3, [e for _, e in outputs]
    for rank, (text, _) in enumerate(outputs):
        wanted = {
            "switched": True,
            "wrapper": f"_BackendWrapper {backend}",
            "comm": backend,
            "world": 6,
            "child": 1 if rank == 0 else 5,
            "after": 6,
            "over": True,
        }
        if rank < 2:
            wanted["pair"] = 3
        assert json.loads(text) == wanted


def test_without_the_variable_the_same_name_is_the_registered_backend(tmp_path):
    """split_group is what tells the two doors apart: without the switch it wants a
    device that the group is bound to."""
    assert "TORCH_DISTRIBUTED_USE_TORCHCOMMS" not in os.environ
    programs = [start(r, 2, "ncclx", tmp_path / "store", None) for r in range(2)]
    for program, (_, errors) in zip(programs, finish(programs), strict=True):
        assert program.returncode != 0
        assert "split_group" in errors, errors
