# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1: The stubs agree with the extension, and the code in docs/api runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchcomms

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
PACKAGE_PARENT = Path(torchcomms.__file__).resolve().parents[1]


def test_stubs_agree_with_the_extension():
    paths = os.pathsep.join([str(PACKAGE_PARENT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "torchcomms._core"],
        env={**os.environ, "PYTHONPATH": paths, "MYPYPATH": str(PACKAGE_PARENT)},
        cwd=PACKAGE_PARENT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_object_has_a_docstring():
    for name in torchcomms.__all__:
        thing = getattr(torchcomms, name)
        assert thing.__doc__, name
        for member in vars(thing) if isinstance(thing, type) else ():
            if not member.startswith("__") and callable(getattr(thing, member)):
                assert getattr(thing, member).__doc__, f"{name}.{member}"


def test_every_public_object_has_its_place_in_the_pages():
    text = "\n".join(page.read_text() for page in PAGES)
    for name in torchcomms.__all__:
        assert name in text
    for name, member in vars(torchcomms.TorchComm).items():
        if not name.startswith("_"):
            shown = rf"`{name}\(" if callable(member) else f"`{name}`"
            assert re.search(shown, text), name


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_code_of_a_page_runs(page, world):
    world(0, 1)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), {})
