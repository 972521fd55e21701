# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1: Import rules: both orders, no side effects, and what torch probes for."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torchcomms

PACKAGE = Path(torchcomms.__file__).parent


def run(program, *options, path=None):
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        env={
            **os.environ,
            "PYTHONPATH": ":".join(path or filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_import_is_light():
    """No torch, no torch.distributed, no numpy, no thread, no file left open."""
    run(
        """
        import os, sys
        before = set(os.listdir("/proc/self/fd"))
        import torchcomms
        heavy = {"torch", "torch.distributed", "numpy", "importlib.metadata"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert set(os.listdir("/proc/self/fd")) == before
        assert len(os.listdir("/proc/self/task")) == 1
        """
    )


@pytest.mark.parametrize("order", ["torch, torchcomms", "torchcomms, torch"])
def test_both_orders(order):
    done = run(
        f"""
        import {order}
        import torch.distributed as dist
        from torchcomms import new_comm
        import os
        os.environ.update(RANK="0", WORLD_SIZE="1")
        comm = new_comm("ncclx", torch.device("cpu"), name="x")
        tensor = torch.ones(2)
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM)
        comm.finalize()
        """,
        "-W",
        "error",
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_what_torch_probes_for():
    """torch takes ImportError, and nothing else, as absence of the c10d shim."""
    run(
        """
        import torch.distributed.distributed_c10d as c10d
        import torchcomms
        for module, name in (
            ("torchcomms._comms", "_BackendWrapper"),
            ("torchcomms._backend_wrapper", "_BackendWrapper"),
            ("torchcomms.hooks", "FlightRecorderHook"),
        ):
            try:
                found = getattr(__import__(module, fromlist=[name]), name)
            except (ImportError, AttributeError):
                found = None
            assert (found is not None) == c10d._TORCHCOMM_AVAILABLE, (module, name)
        """
    )


def test_torch_distributed_is_not_imported_by_us():
    """Also not by a communicator: torch itself imports it, so it is forbidden first."""
    run(
        """
        import builtins, os, sys, torch
        real = builtins.__import__

        def watched(name, globals=None, *args, **kwargs):
            who = (globals or {}).get("__name__", "")
            if who.startswith("torchcomms"):
                assert not name.startswith("torch.distributed"), who
            return real(name, globals, *args, **kwargs)

        builtins.__import__ = watched
        import torchcomms, torchcomms._comms, torchcomms._store
        os.environ.update(RANK="0", WORLD_SIZE="1")
        comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="x")
        comm.barrier()
        comm.get_options()
        comm.finalize()
        """
    )


def test_without_torch(tmp_path):
    (tmp_path / "torchcomms").symlink_to(PACKAGE)
    done = run(
        """
        try:
            import torchcomms
        except ImportError as error:
            print(error)
        """,
        "-S",
        path=[str(tmp_path)],
    )
    assert done.stdout == "torchcomms needs torch, which is not installed\n"


def test_no_thread_before_the_first_communicator():
    run(
        """
        import os, torch
        before = len(os.listdir("/proc/self/task"))
        import torchcomms
        os.environ.update(RANK="0", WORLD_SIZE="1")
        assert len(os.listdir("/proc/self/task")) == before
        comm = torchcomms.new_comm("fake", torch.device("cpu"), name="x")
        comm.barrier()
        assert len(os.listdir("/proc/self/task")) <= before + 1
        """
    )
