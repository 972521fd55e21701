# SPDX-License-Identifier: BSD-3-Clause
"""Builds the C extension by csrc/build.mk; everything else is in pyproject.toml."""

import os
import pathlib
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


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
                "extension",
                f"PYTHON={sys.executable}",
                f"OUT={out}",
            ],
            cwd=ROOT,
            check=True,
        )


setup(
    ext_modules=[Extension("torchcomms._core", sources=[])],
    cmdclass={"build_ext": MakeExtension},
)
