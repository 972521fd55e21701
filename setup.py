# SPDX-License-Identifier: BSD-3-Clause
"""Builds the C extension by csrc/build.mk; everything else is in pyproject.toml."""

import importlib.util
import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent

# Extension module to target of csrc/build.mk.
TARGETS = {"torchcomms._core": "extension", "torchcomms._backend_wrapper": "shim"}


def modules():
    """The c10d shim is for the torch of the building environment; without one the
    package has the object API, and says what is missing when c10d asks for it."""
    torch = importlib.util.find_spec("torch")
    header = "include/torch/csrc/distributed/c10d/Backend.hpp"
    if torch and (pathlib.Path(torch.origin).parent / header).exists():
        return list(TARGETS)
    print("torchcomms: no torch with headers here, built without the c10d shim")
    return ["torchcomms._core"]


class MakeExtension(build_ext):
    """Leaves what to compile, and with which flags, to csrc/build.mk.

    Objects stay in `build/`, also for an editable install, so that a second build
    compiles only what changed.
    """

    def build_extension(self, ext):
        out = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        subprocess.run(
            [
                os.environ.get("MAKE", "make"),
                "-f",
                "csrc/build.mk",
                f"-j{self.parallel or min(os.cpu_count() or 1, 8)}",
                TARGETS[ext.name],
                f"PYTHON={sys.executable}",
                f"OUT={out}",
            ],
            cwd=ROOT,
            check=True,
        )


setup(
    ext_modules=[Extension(name, sources=[]) for name in modules()],
    cmdclass={"build_ext": MakeExtension},
)
