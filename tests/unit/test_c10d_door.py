# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1: How torch.distributed comes to know us: autoload, its absence, and shims
that do not fit. Each in a process of its own, since `import torch` happens once."""

import json
import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import torchcomms

ROOT = Path(torchcomms.__file__).parents[1]
SHIM = f"_backend_wrapper{sysconfig.get_config_var('EXT_SUFFIX')}"
MARK = b"torchcomms-shim-built-for:"
OUR_AUTOLOAD = "_torchcomms_autoload"
ENTRY = "[torch.backends]\ntorchcomms = _torchcomms_autoload:register\n"


@pytest.fixture
def site(tmp_path):
    """A folder of links to the package, which a test may change, with metadata."""
    package = tmp_path / "torchcomms"
    package.mkdir()
    for path in (ROOT / "torchcomms").iterdir():
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)
    autoload = "_torchcomms_autoload.py"
    (tmp_path / autoload).symlink_to(ROOT / autoload)
    metadata = tmp_path / "torchcomms-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchcomms\nVersion: 0.1.0\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY)
    # An editable install would find there what is missing here.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [\n"
        "    finder for finder in sys.meta_path\n"
        "    if not getattr(finder, '__module__', '').startswith('__editable__')\n"
        "]\n"
    )
    return tmp_path


def run(site, *parts, **env):
    """Runs the parts as one program, in which a warning is an error."""
    program = "".join(textwrap.dedent(part) for part in parts)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


USE = """
    import torch.distributed as dist
    dist.init_process_group(
        "torchcomms", rank=0, world_size=1, store=dist.HashStore()
    )
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    print(type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__)
    dist.destroy_process_group()
"""


def test_by_name_without_an_import(site):
    done = run(site, "import torch", USE)
    assert (done.stdout, done.stderr) == ("_BackendWrapper\n", "")


@pytest.mark.parametrize(
    "imports",
    ["torch", "torchcomms", "torch, torchcomms", "torchcomms, torch",
     "torchcomms._comms", "torchcomms.hooks, torch"],
)  # fmt: skip
def test_every_order_of_imports(site, imports):
    run(
        site,
        f"""
        import {imports}
        import torch
        import torch.distributed.distributed_c10d as c10d
        assert c10d._TORCHCOMM_AVAILABLE
        assert issubclass(c10d._BackendWrapper, torch._C._distributed_c10d.Backend)
        """,
        USE,
    )


def test_without_autoload_the_name_is_unknown_until_it_is_registered(site):
    run(
        site,
        """
        import torch
        import torch.distributed as dist
        import torchcomms
        known = dist.Backend.backend_list
        assert not {"torchcomms", "ncclx"} & set(known), known
        torchcomms.register_c10d()
        torchcomms.register_c10d()
        assert known.count("torchcomms") == known.count("ncclx") == 1
        """,
        USE,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


REFUSED = """
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    import torchcomms
    assert c10d._TORCHCOMM_AVAILABLE
    comm = torchcomms._core._new_comm(
        "ncclx", "x", "cpu", None, 0, 1, torchcomms.Timeout(seconds=9), False, None, {}
    )
    comm.barrier()
    try:
        c10d._BackendWrapper(comm)
    except RuntimeError as error:
        print(error)
    comm.finalize()
    try:
        dist.init_process_group(
            "torchcomms", rank=0, world_size=1, store=dist.HashStore()
        )
    except RuntimeError as error:
        print(error)
"""


def test_a_missing_shim_is_told_at_first_use(site):
    (site / "torchcomms" / SHIM).unlink()
    done = run(site, REFUSED)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "the c10d part of torchcomms is missing" in line


def test_a_shim_for_another_torch_is_told_at_first_use(site):
    shim = site / "torchcomms" / SHIM
    data = shim.read_bytes()
    at = data.index(MARK) + len(MARK)
    end = data.index(b"\0", at)
    other = b"9" * (end - at)
    shim.unlink()
    shim.write_bytes(data[:at] + other + data[end:])
    done = run(site, REFUSED)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert f"was built for torch {other.decode()}, found " in line


def test_a_shim_that_does_not_load_is_told_at_first_use(site):
    shim = site / "torchcomms" / SHIM
    data = shim.read_bytes()
    shim.unlink()
    shim.write_bytes(b"not a library " + data[data.index(MARK) :][:100])
    done = run(site, REFUSED)
    assert "the c10d part of torchcomms does not load" in done.stdout


def test_autoload_never_raises(site):
    done = run(
        site,
        """
        import sys, types, warnings
        import torch
        broken = types.ModuleType("torchcomms._c10d")
        sys.modules["torchcomms._c10d"] = broken
        import _torchcomms_autoload
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _torchcomms_autoload.register()
        print(caught[0].message)
        """,
    )
    assert "torchcomms is not available as a backend" in done.stdout


def test_the_package_offers_both_entry_points():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'torchcomms = "_torchcomms_autoload:register"' in text
    assert '[project.entry-points."torch.backends"]' in text


IMPORTED = """
    import builtins, importlib.metadata, json, sys
    scans = []
    real = importlib.metadata.entry_points

    def counted(**parameters):
        scans.append(parameters)
        return real(**parameters)

    importlib.metadata.entry_points = counted
    import torch
    print(json.dumps([[n for n, m in sys.modules.items() if m], scans]))
"""


def test_what_import_torch_has_to_import_of_ours(site):
    """Time is not asserted; what it is spent on is."""
    with_us = json.loads(run(site, IMPORTED).stdout)
    without = json.loads(
        run(site, "import sys; sys.modules['torchcomms'] = None\n", IMPORTED,
            TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    )  # fmt: skip
    added = set(with_us[0]) - set(without[0])
    ours = {n for n in added if n.partition(".")[0] in ("torchcomms", OUR_AUTOLOAD)}
    assert ours == {OUR_AUTOLOAD, "torchcomms"} | {
        f"torchcomms.{name}"
        for name in (
            "_backend_wrapper", "_backends", "_bootstrap", "_c10d", "_comms", "_core",
            "_comms.hooks", "_comms.hooks.clog", "_comms.hooks.fr", "_enums",
            "_hook_args", "_metaclass", "_opaque_meta", "_options", "_python_backend",
            "_window", "hooks", "hooks.clog", "hooks.fr",
        )
    }  # fmt: skip
    # Of others only what reads for which torch the shim was built.
    assert added - ours <= {"mmap"}, added
    assert with_us[1] == [{"group": "torch.backends"}]
