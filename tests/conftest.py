# SPDX-License-Identifier: BSD-3-Clause
"""Collects the C tests, so that pytest runs everything there is.

A file test_*.c of tests/c, tests/sim, tests/conformance or tests/model is one test: it
is built by csrc/build.mk and run; `--variant asan` or `tsan` takes another build.
"""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
C_DIRECTORIES = ("c", "sim", "conformance", "model")


def pytest_addoption(parser):
    parser.addoption(
        "--variant",
        choices=("release", "asan", "tsan"),
        default="release",
        help="how the C tests are compiled",
    )


def pytest_collect_file(file_path, parent):
    if (
        file_path.suffix == ".c"
        and file_path.name.startswith("test_")
        and file_path.parent.parent == ROOT / "tests"
        and file_path.parent.name in C_DIRECTORIES
    ):
        return CTestFile.from_parent(parent, path=file_path)
    return None


class CTestFailure(Exception):
    """A C test program that did not build or did not return 0."""


class CTestFile(pytest.File):
    def collect(self):
        yield CTestItem.from_parent(self, name=self.path.stem)


class CTestItem(pytest.Item):
    def runtest(self):
        model = self.path.parent.name == "model"
        variant = "model" if model else self.config.getoption("variant")
        program = self.path.relative_to(ROOT / "tests").with_suffix("")
        command = ["make", "-f", "csrc/build.mk", f"-j{os.cpu_count()}", "check"]
        done = subprocess.run(
            [*command, f"VARIANT={variant}", f"ONLY={program}"],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k != "MAKEFLAGS"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise CTestFailure(done.stdout[-20000:])

    def repr_failure(self, excinfo):
        if isinstance(excinfo.value, CTestFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, 0, f"{self.path.parent.name}/{self.name}"
