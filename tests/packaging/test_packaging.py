# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1: Source distribution, wheel, plain and editable installs, and incremental
builds.

Every install goes to an environment of its own that sees this one's packages, has no
index, and so can get neither another torch nor anything else.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

from lint.tree import ROOT, project_files

pytestmark = pytest.mark.timeout(900)

PIP = ("-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--no-build-isolation", "--no-index")
LOOK = """
import importlib.metadata as metadata
import torch, torchcomms, torchcomms._core
assert "torchcomms" in torch.distributed.Backend.backend_list
assert torchcomms._comms._BackendWrapper.__module__ == "torchcomms._backend_wrapper"
print(torchcomms._core.__file__)
for entry in metadata.entry_points(group="torchcomms.backends"):
    if entry.dist.name == "torchcomms":
        print(entry.name, entry.load().__name__)
"""


def run(*command, cwd):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def copy_tree(where):
    for name in project_files():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, where / name)
    return where


def make_environment(where):
    """A virtual environment on top of this one's packages; returns its Python."""
    venv.create(where, with_pip=False, symlinks=True)
    inner = sysconfig.get_path("purelib", vars={"base": str(where)})
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (pathlib.Path(inner) / "outer.pth").write_text("\n".join(sorted(packages)))
    return str(where / "bin/python")


def check_installed(python, cwd, below):
    place, *entries = run(python, "-c", LOOK, cwd=cwd).splitlines()
    assert pathlib.Path(place).is_relative_to(below), place
    assert sorted(set(entries)) == [
        "fake torchcomms._core",
        "gloo torchcomms._comms_gloo",
        "ncclx torchcomms._core",
        "torchcomms torchcomms._core",
    ]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source distribution of a clean tree, unpacked."""
    tree = copy_tree(tmp_path_factory.mktemp("tree"))
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "-n", "-o", str(out), ".", cwd=tree)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(out)
    return out / archive.name.removesuffix(".tar.gz")


def test_sdist_is_whole(unpacked):
    left_out = (".gitignore",)
    missing = [
        name
        for name in project_files()
        if not (unpacked / name).is_file() and name not in left_out
    ]
    assert missing == []


def test_install_from_sdist(unpacked, tmp_path):
    python = make_environment(tmp_path / "venv")
    output = run(python, *PIP, "install", *OFFLINE, ".", cwd=unpacked)
    assert "Requirement already satisfied: torch>=" in output
    assert "Successfully installed torchcomms-" in output
    assert "Collecting" not in output
    check_installed(python, tmp_path, tmp_path / "venv")


def test_wheel_contents(unpacked, tmp_path):
    run(
        *(sys.executable, *PIP, "wheel", *OFFLINE, "--no-deps"),
        *("-w", str(tmp_path), "."),
        cwd=unpacked,
    )
    (wheel,) = tmp_path.glob("torchcomms-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    extensions = [f"torchcomms/{m}{suffix}" for m in ("_backend_wrapper", "_core")]
    assert {*extensions, "torchcomms/__init__.py", "torchcomms/py.typed"} <= set(names)
    ours = ("torchcomms/", "_torchcomms_autoload.py")
    packaged = [n for n in project_files() if n.startswith(ours)]
    assert sorted(set(packaged) - set(names)) == []
    metadata = [name for name in names if ".dist-info/" in name]
    assert any(name.endswith("LICENSE") for name in metadata)
    assert sorted(set(names) - set(metadata) - set(packaged)) == extensions


def compiled(tree):
    return {path: path.stat().st_mtime_ns for path in tree.glob("build/**/*.o")}


def test_editable_install_compiles_what_changed(tmp_path):
    tree = copy_tree(tmp_path / "tree")
    if (ROOT / "build").exists():  # what is compiled already need not be again
        other = shutil.ignore_patterns("tests", "asan*", "tsan*", "model*")
        shutil.copytree(ROOT / "build", tree / "build", ignore=other)
    python = make_environment(tmp_path / "venv")
    install = (python, *PIP, "install", *OFFLINE, "--no-deps", "-e", ".")
    run(*install, cwd=tree)
    check_installed(python, tmp_path, tree)

    first = compiled(tree)
    run(*install, cwd=tree)
    assert compiled(tree) == first
    with (tree / "csrc/base/log.c").open("a") as file:
        file.write("\n/* changed */\n")
    run(*install, cwd=tree)
    second = compiled(tree)
    changed = [path.name for path in first if second[path] != first[path]]
    assert changed == ["log.o"]
    check_installed(python, tmp_path, tree)
