# SPDX-License-Identifier: BSD-3-Clause
"""The tree keeps the rules of form; test_rules.py shows that each rule can fail."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

from lint import rules
from lint.tree import GENERATOR, ROOT, project_files, sources, texts

PYTHON_CODE = ("torchcomms/", "tests/", "docs/", "examples/", "setup.py")
C_TESTS = ("tests/",)
BASE_FLAGS = ["-D_GNU_SOURCE", "-Icsrc", "-Icsrc/include", "-fsyntax-only", "-Werror"]
WARNINGS = ["-Wall", "-Wextra", "-Wshadow"]


OPTIONS = GENERATOR.read_table(GENERATOR.TABLE.read_text())


def expect_none(problems):
    assert not problems, "\n" + "\n".join(problems)


def all_c():
    return sources() | texts(*C_TESTS, suffixes=(".c", ".h"))


def run(*command, **more):
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, **more
    )


def tool(name):
    """A program of this environment, else of the machine."""
    beside = pathlib.Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed: see tests/requirements.txt"
    return found


def test_layers():
    expect_none(rules.layers(sources()))


def test_include_order():
    expect_none(rules.include_order(sources()))


def test_file_sizes():
    expect_none(rules.file_sizes(all_c()))
    expect_none(rules.file_sizes(texts(*PYTHON_CODE, suffixes=(".py", ".pyi"))))


def test_function_sizes():
    expect_none(rules.function_sizes(all_c()))


def test_heads():
    expect_none(rules.c_heads(all_c()))
    expect_none(rules.python_heads(texts(*PYTHON_CODE, suffixes=(".py", ".pyi"))))
    scripts = ("Makefile", "csrc/build.mk", ".ci/run", ".clang-format", ".gitignore")
    expect_none(rules.script_heads({n: (ROOT / n).read_text() for n in scripts}))


def test_header_guards():
    expect_none(rules.header_guards(sources(".h")))


def test_unique_basenames():
    expect_none(rules.unique_basenames(sources(".c", ".h", ".cpp", ".hpp")))


def test_forbidden():
    expect_none(rules.forbidden(sources()))


def test_gotos_lead_forward():
    expect_none(rules.backward_gotos(sources()))


def test_option_names():
    known = {option.variable for option in OPTIONS}
    c_files = sources()
    python_files = texts("torchcomms/", suffixes=(".py", ".pyi"))
    expect_none(rules.unknown_variables(c_files | python_files, known))
    expect_none(rules.python_environment(python_files, known))
    expect_none(rules.unused_options(OPTIONS, c_files, python_files))


def test_option_page_is_current():
    assert GENERATOR.PAGE.read_text() == GENERATOR.page(OPTIONS), "run `make docs`"


def test_no_machine_names():
    binary = (".png", ".bin", ".ico")
    names = [name for name in project_files() if not name.endswith(binary)]
    expect_none(
        rules.machine_names({name: (ROOT / name).read_text() for name in names})
    )


def headers(prefix):
    return [
        name
        for name in project_files()
        if name.startswith(prefix) and name.endswith(".h")
    ]


def is_shim(name):
    return name.startswith("csrc/torch/")


# The shim's headers take torch's along, half a minute each: there the build shows it,
# since every one of them is the first thing that a source includes.
@pytest.mark.parametrize(
    "header", [name for name in headers("csrc/") if not is_shim(name)]
)
def test_header_compiles_alone(header):
    python = f"-isystem{sysconfig.get_paths()['include']}"
    done = run(
        "gcc", "-std=c11", *BASE_FLAGS, *WARNINGS, "-Wno-unused-function", python,
        "-include", header, "-xc", "/dev/null",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "header", [name for name in headers("csrc/torch/") if "torch/torch.h" not in name]
)
def test_shim_header_is_first_somewhere(header):
    sources = [
        (ROOT / name).read_text()
        for name in project_files()
        if is_shim(name) and name.endswith(".cpp")
    ]
    firsts = [text[text.index("#include") :].split("\n", 1)[0] for text in sources]
    assert f'#include "{header.removeprefix("csrc/")}"' in firsts


@pytest.mark.parametrize("header", headers("csrc/include/"))
def test_public_header_is_cxx(header):
    done = run(
        "g++", "-std=c++17", *BASE_FLAGS, *WARNINGS, "-include", header, "-xc++",
        "/dev/null",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def extension_facts(path):
    """Names a shared object defines for others, and the libraries it needs."""
    symbols = run(tool("nm"), "-D", "--defined-only", path, check=True).stdout
    dynamic = run(tool("readelf"), "-d", path, check=True).stdout
    needed = [
        line.split("[")[1].rstrip("]")
        for line in dynamic.split("\n")
        if "(NEEDED)" in line
    ]
    return [line.split()[-1] for line in symbols.splitlines()], needed


def test_extension_exports():
    path = ROOT / f"torchcomms/_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    assert path.exists(), "run `make build` first"
    expect_none(rules.export_problems(*extension_facts(path)))


def test_extension_facts_are_read(tmp_path):
    source = tmp_path / "more.c"
    source.write_text("void PyInit__core(void) {}\nvoid tc_leaked(void) {}\n")
    shared = tmp_path / "more.so"
    run("gcc", "-shared", "-fPIC", source, "-o", shared, check=True)
    defined, _ = extension_facts(shared)
    assert rules.export_problems(defined, ["libmpi.so.12", "libc.so.6"]) == [
        "exports tc_leaked",
        "needs libmpi.so.12",
    ]


def test_clang_format():
    files = sorted(all_c())
    done = run(tool("clang-format"), "--dry-run", "-Werror", *files)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("check", [("check",), ("format", "--check")], ids="-".join)
def test_ruff(check):
    done = run(sys.executable, "-m", "ruff", *check, ".")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
