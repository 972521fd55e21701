# SPDX-License-Identifier: BSD-3-Clause
"""The rules of form. Each takes texts and returns what is wrong, one line a finding."""

import ast
import collections
import posixpath
import re

import lizard

from lint import c_text

# Layers ------------------------------------------------------------------------------

# A file may include its own directory and what has a smaller number; core and all
# backends but native only what is named in NARROW.
LAYERS = {
    "include": 0,
    "base": 1,
    "wire": 2,
    "loop": 2,
    "reduce": 2,
    "transport": 3,
    "coll": 3,
    "core": 4,
    "backend": 4,
    "record": 5,
    "python": 6,
    "torch": 6,
}
NARROW = {"include": set(), "core": {"include", "base"}, "backend": {"include", "base"}}
WIDE_BACKENDS = {"backend/native"}
BOTH_FACES = "python/capi.h"  # the one header of python/ that torch/ includes
TORCH_HEADERS = ("torch/", "c10/", "ATen/", "pybind11/")


def unit_of(name):
    """Layer and unit of a path below csrc: ("transport", "transport/shm")."""
    parts = name.split("/")
    if parts[0] == "torchcomms":
        return "include", "include"
    deep = parts[0] in ("transport", "backend") and len(parts) > 2
    return parts[0], "/".join(parts[:2]) if deep else parts[0]


def edge_problem(source, target):
    """Why the file `source` may not include `target`; both below csrc; else None."""
    layer, unit = unit_of(source.removeprefix("include/"))
    to_layer, to_unit = unit_of(target)
    if to_layer not in LAYERS:
        return f"unknown layer '{to_layer}'"
    if unit == to_unit or to_unit == layer:
        return None
    if layer == "torch" and target == BOTH_FACES:
        return None
    if layer in NARROW and unit not in WIDE_BACKENDS:
        allowed = NARROW[layer]
        return None if to_layer in allowed else f"{unit} may not include {to_unit}"
    if LAYERS[to_layer] < LAYERS[layer]:
        return None
    return f"{unit} may not include {to_unit}"


def system_problem(source, name):
    if name == "Python.h" and source != "python/py.h":
        return "Python.h is included through python/py.h only"
    if name.startswith(TORCH_HEADERS) and source != "torch/torch.h":
        return "libtorch is included through torch/torch.h only"
    return None


def layers(files):
    problems = []
    for path, text in files.items():
        source = path.removeprefix("csrc/")
        if unit_of(source.removeprefix("include/"))[0] not in LAYERS:
            problems.append(f"{path}:1: not in a layer")
            continue
        for include in c_text.includes(text):
            if include.system:
                why = system_problem(source, include.name)
            else:
                why = edge_problem(source, include.name)
            if why:
                problems.append(f"{path}:{include.line}: {why} ({include.name})")
    return problems


def include_order(files):
    """Own header, system, ours; python/py.h may come first, as Python.h wants."""
    problems = []
    for path, text in files.items():
        own = path.removeprefix("csrc/").removesuffix(".c") + ".h"
        own_exists = path.endswith(".c") and f"csrc/{own}" in files
        found = c_text.includes(text)
        first = [i.name for i in found[:1]]
        if own_exists and first != [own]:
            problems.append(f"{path}:1: the first include is not {own}")
        rest = [i for i in found if i.name not in (own, "python/py.h")]
        seen_ours = False
        for include in rest:
            if include.system and seen_ours:
                problems.append(f"{path}:{include.line}: system header after ours")
            seen_ours = seen_ours or not include.system
    return problems


# Sizes -------------------------------------------------------------------------------

FILE_LINES = 800
HEADER_LINES = 300
FUNCTION_LINES = 100
COMPLEXITY = 15
PARAMETERS = 7
COLUMNS = 88


def file_sizes(files):
    problems = []
    for path, text in files.items():
        most = HEADER_LINES if path.endswith(".h") else FILE_LINES
        count = text.count("\n")
        if count > most:
            problems.append(f"{path}: {count} lines, at most {most}")
        for number, line in enumerate(text.splitlines(), 1):
            if path.endswith((".c", ".h")) and len(line) > COLUMNS:
                problems.append(f"{path}:{number}: {len(line)} columns")
    return problems


def function_sizes(files):
    problems = []
    for path, text in files.items():
        found = lizard.analyze_file.analyze_source_code(path, text)
        for function in found.function_list:
            limits = (
                ("lines", function.end_line - function.start_line + 1, FUNCTION_LINES),
                ("complexity", function.cyclomatic_complexity, COMPLEXITY),
                ("parameters", function.parameter_count, PARAMETERS),
            )
            for what, value, most in limits:
                if value > most:
                    problems.append(
                        f"{path}:{function.start_line}: {function.name}: "
                        f"{what} {value}, at most {most}"
                    )
    return problems


# Form --------------------------------------------------------------------------------

SPDX = "SPDX-License-Identifier: BSD-3-Clause"


def c_heads(files):
    """The sentence may go on in further lines of its comment."""
    problems = []
    for path, text in files.items():
        first, _, rest = text.partition("\n")
        if first != f"/* {SPDX} */":
            problems.append(f"{path}:1: not the SPDX line")
        purpose = re.match(r"/\* \S.*?\*/", rest, re.DOTALL)
        if not purpose or not purpose[0].removesuffix("*/").rstrip().endswith("."):
            problems.append(f"{path}:2: not a sentence of purpose")
    return problems


def python_heads(files):
    problems = []
    for path, text in files.items():
        if text.split("\n")[0] != f"# {SPDX}":
            problems.append(f"{path}:1: not the SPDX line")
        if path.endswith(".py") and not ast.get_docstring(ast.parse(text)):
            problems.append(f"{path}:1: no docstring of the module")
    return problems


def script_heads(files):
    return [
        f"{path}:1: no SPDX line"
        for path, text in files.items()
        if f"# {SPDX}" not in text.split("\n")[:2]
    ]


def guard_of(path):
    directory = posixpath.basename(posixpath.dirname(path))
    name = f"{directory}_{posixpath.basename(path)}"
    return "TC_" + re.sub(r"\W", "_", name).upper()


def header_guards(files):
    problems = []
    for path, text in files.items():
        guard = guard_of(path)
        lines = [line for line in c_text.code(text).split("\n") if line.strip()]
        opened = lines[:2] == [f"#ifndef {guard}", f"#define {guard}"]
        if not opened or lines[-1].strip() != "#endif":
            problems.append(f"{path}: not guarded by {guard}")
    return problems


def unique_basenames(paths):
    found = collections.defaultdict(list)
    for path in paths:
        found[posixpath.basename(path)].append(path)
    return [
        f"{name}: {' and '.join(where)}"
        for name, where in found.items()
        if len(where) > 1
    ]


# Text, pattern in code, files where it is right
FORBIDDEN = (
    (
        "atomics go through base/atomic.h",
        r"\b(__atomic_|__sync_|_Atomic\b|atomic_\w+\s*\(|memory_order_)",
        {"csrc/base/atomic.h"},
    ),
    (
        "printf is never used; base/log.h is",
        r"\b(printf|puts|putchar|fprintf|perror)\s*\(",
        set(),
    ),
    ("no constructors: registration is a list", r"\(\(\s*constructor", set()),
    (
        "getenv is called by base/options.c only",
        r"\b(secure_)?getenv\s*\(",
        {"csrc/base/options.c"},
    ),
    ("goto leads to a label", r"\bgoto\s*\*", set()),
)


def forbidden(files):
    problems = []
    for path, text in files.items():
        for why, pattern, right in FORBIDDEN:
            if path not in right:
                for line, _ in c_text.find(pattern, text):
                    problems.append(f"{path}:{line}: {why}")
        for include in c_text.includes(text):
            if include.name == "stdatomic.h":
                problems.append(f"{path}:{include.line}: stdatomic.h is not used")
    return problems


def backward_gotos(files):
    """A goto leads to a label below it, in the same function."""
    problems = []
    for path, text in files.items():
        code = c_text.code(text)
        for m in re.finditer(r"\bgoto\s+(\w+)\s*;", code):
            end = code.find("\n}", m.end())
            label = re.compile(rf"^[ \t]*{m[1]}:(?!:)", re.MULTILINE)
            if not label.search(code, m.end(), end if end >= 0 else len(code)):
                line = c_text.line_of(code, m.start())
                problems.append(f"{path}:{line}: goto {m[1]} does not lead forward")
    return problems


# Options -----------------------------------------------------------------------------

_OWN_VARIABLE = re.compile(r"\bTORCHCOMMS?_[A-Z0-9_]*[A-Z0-9]\b")


def unknown_variables(files, known):
    """Names of our variables that have no row, wherever they stand."""
    return [
        f"{path}:{c_text.line_of(text, m.start())}: {m[0]} has no row in TC_OPTIONS"
        for path, text in files.items()
        for m in _OWN_VARIABLE.finditer(text)
        if m[0] not in known
    ]


def _environment_name(node):
    """The name expression of a read of the environment, or None."""
    if isinstance(node, ast.Subscript):
        if ast.unparse(node.value) in ("os.environ", "environ"):
            return node.slice
    elif isinstance(node, ast.Call) and node.args:
        reads = ("os.getenv", "getenv", "os.environ.get", "environ.get")
        if ast.unparse(node.func) in reads:
            return node.args[0]
    elif isinstance(node, ast.Compare):
        if ast.unparse(node.comparators[-1]) in ("os.environ", "environ"):
            return node.left
    return None


def python_environment(files, known):
    """Reads of the environment by a name that has no row.

    Where the name is not written there, all words of the file that could be one count.
    """
    problems = []
    for path, text in files.items():
        tree = ast.parse(text)
        words = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", node.value)
        ]
        for node in ast.walk(tree):
            name = _environment_name(node)
            if name is None:
                continue
            read = [name] if isinstance(name, ast.Constant) else words or [name]
            for word in read:
                if getattr(word, "value", None) not in known:
                    what = f"{path}:{node.lineno}: {ast.unparse(word)}"
                    problems.append(f"{what} has no row in TC_OPTIONS")
    return problems


def unused_options(options, c_files, python_files):
    """Rows that nothing reads."""
    code = "\n".join(
        c_text.code(text)
        for path, text in c_files.items()
        if not path.startswith("csrc/base/options.")
    )
    python = "\n".join(python_files.values())
    return [
        f"{option.variable}: nothing reads it"
        for option in options
        if not re.search(rf"\bTC_OPT_{option.id}\b", code)
        and not re.search(rf"[\"']{option.variable}[\"']", python)
    ]


# What belongs to a machine -----------------------------------------------------------

# Written in pieces, so that this file passes its own rule.
_PATHS = "|".join(("work", "root", "opt", "home", "tmp/w"))
_HOSTS = "|".join(
    rf"{name}\.{domain}"
    for name, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download.pytorch", "org"),
        ("anaconda", "(org|com)"),
        ("npmjs", "(org|com)"),
        ("crates", "io"),
        ("docker", "io"),
        ("proxy.golang", "org"),
    )
)
_MACHINE = re.compile(
    r"(?:(?<![\w.})\-/*])|(?<=-[IL]))/(?:"
    + _PATHS
    + r")(?![\w\-])|\b(?:"
    + _HOSTS
    + r")\b"
)


def machine_names(files):
    return [
        f"{path}:{c_text.line_of(text, m.start())}: {m[0]}"
        for path, text in files.items()
        for m in _MACHINE.finditer(text)
    ]


# The built extension -----------------------------------------------------------------

SYSTEM_LIBRARIES = re.compile(
    r"(linux-vdso|ld-linux.*|libc|libm|libpthread|libdl|librt)\.so\.\d+"
)


def export_problems(defined, needed):
    """`defined` and `needed`: symbols and libraries of the extension module."""
    problems = [f"exports {name}" for name in defined if name != "PyInit__core"]
    if "PyInit__core" not in defined:
        problems.append("does not export PyInit__core")
    problems += [
        f"needs {name}" for name in needed if not SYSTEM_LIBRARIES.fullmatch(name)
    ]
    return problems
