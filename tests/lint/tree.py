# SPDX-License-Identifier: BSD-3-Clause
"""The files of the project, for the lint tests."""

import importlib.util
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__"}


def project_files():
    """Paths, relative to the root, of what is or would be committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        names = listed.stdout.split("\0")[:-1]
    else:  # unpacked from an sdist
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if path.is_file() and not NOT_OURS & set(path.relative_to(ROOT).parts)
        ]
        names = [n for n in names if not n.endswith(".so") and ".egg-info" not in n]
    return sorted(name for name in names if (ROOT / name).is_file())


def texts(*prefixes, suffixes):
    """{path: text} of the project's files under `prefixes` with such an ending."""
    return {
        name: (ROOT / name).read_text()
        for name in project_files()
        if name.startswith(prefixes) and name.endswith(suffixes)
    }


def sources(*suffixes):
    """{path: text} of the C files under csrc."""
    found = texts("csrc/", suffixes=suffixes or (".c", ".h"))
    assert found, "no source found: the lint would pass on nothing"
    return found


def load_generator(name):
    """A program of docs/ that makes a page, as a module."""
    path = ROOT / f"docs/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Also reads the option table.
GENERATOR = load_generator("generate_options")
