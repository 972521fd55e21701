# SPDX-License-Identifier: BSD-3-Clause
"""Each rule of form refuses what it is there to refuse, and passes what is right."""

import pytest

from lint import c_text, rules
from lint.tree import GENERATOR

HEAD = "/* SPDX-License-Identifier: BSD-3-Clause */\n/* Does one thing. */\n"


def includes(*names):
    return "".join(
        f"#include {name}\n" if name[0] == "<" else f'#include "{name}"\n'
        for name in names
    )


GOOD_EDGES = [
    ("csrc/base/a.c", "torchcomms/types.h"),
    ("csrc/base/a.c", "base/b.h"),
    ("csrc/loop/a.c", "base/b.h"),
    ("csrc/coll/a.c", "reduce/b.h"),
    ("csrc/transport/shm/a.c", "loop/b.h"),
    ("csrc/transport/shm/a.c", "transport/lane.h"),
    ("csrc/transport/shm/a.c", "transport/shm/b.h"),
    ("csrc/core/a.c", "base/b.h"),
    ("csrc/core/a.c", "torchcomms/backend.h"),
    ("csrc/backend/native/a.c", "transport/shm/b.h"),
    ("csrc/backend/native/a.c", "coll/b.h"),
    ("csrc/backend/fake/a.c", "base/b.h"),
    ("csrc/record/a.c", "core/b.h"),
    ("csrc/python/a.c", "backend/native/b.h"),
    ("csrc/torch/a.c", "python/capi.h"),
    ("csrc/python/py.h", "<Python.h>"),
    ("csrc/include/torchcomms/backend.h", "torchcomms/types.h"),
]

BAD_EDGES = [
    ("csrc/base/a.c", "wire/b.h"),
    ("csrc/loop/a.c", "reduce/b.h"),
    ("csrc/loop/a.c", "coll/b.h"),
    ("csrc/transport/shm/a.c", "transport/tcp/b.h"),
    ("csrc/transport/shm/a.c", "coll/b.h"),
    ("csrc/coll/a.c", "transport/shm/b.h"),
    ("csrc/core/a.c", "loop/b.h"),
    ("csrc/core/a.c", "backend/native/b.h"),
    ("csrc/backend/native/a.c", "backend/fake/b.h"),
    ("csrc/backend/native/a.c", "core/b.h"),
    ("csrc/backend/fake/a.c", "reduce/b.h"),
    ("csrc/backend/fake/a.c", "python/b.h"),
    ("csrc/python/a.c", "torch/b.h"),
    ("csrc/torch/a.c", "python/other.h"),
    ("csrc/base/a.c", "elsewhere/b.h"),
    ("csrc/elsewhere/a.c", "base/b.h"),
    ("csrc/python/a.c", "<Python.h>"),
    ("csrc/core/a.c", "<Python.h>"),
    ("csrc/python/a.c", "<torch/csrc/autograd/function.h>"),
    ("csrc/include/torchcomms/backend.h", "base/b.h"),
]


@pytest.mark.parametrize(("path", "name"), GOOD_EDGES)
def test_edge_is_right(path, name):
    assert rules.layers({path: HEAD + includes(name)}) == []


@pytest.mark.parametrize(("path", "name"), BAD_EDGES)
def test_edge_is_refused(path, name):
    assert len(rules.layers({path: HEAD + includes(name)})) == 1


def test_include_in_a_comment_is_none():
    text = '/* #include "coll/b.h" */\n// #include "coll/b.h"\n#include "base/b.h"\n'
    assert [i.name for i in c_text.includes(text)] == ["base/b.h"]


def test_include_order():
    def problems(*names):
        files = {"csrc/base/a.c": includes(*names), "csrc/base/a.h": ""}
        return len(rules.include_order(files))

    assert problems("base/a.h", "<stdio.h>", "base/b.h") == 0
    assert problems("<stdio.h>", "base/a.h") == 1
    assert problems("base/a.h", "base/b.h", "<stdio.h>") == 1
    assert problems("base/b.h") == 1
    alone = {"csrc/python/a.c": includes("python/py.h", "<stdio.h>", "python/b.h")}
    assert rules.include_order(alone) == []


def test_file_sizes():
    assert rules.file_sizes({"a.c": "x\n" * 800, "a.h": "x\n" * 300}) == []
    assert len(rules.file_sizes({"a.c": "x\n" * 801, "a.h": "x\n" * 301})) == 2
    assert rules.file_sizes({"a.c": "x" * 88}) == []
    assert len(rules.file_sizes({"a.c": "x" * 89})) == 1


def function(lines=3, branches=0, parameters=1):
    """A C function with exactly that much of each."""
    names = ", ".join(f"int p{i}" for i in range(parameters))
    body = "".join(f"    p0 = p0 > {i} ? 0 : p0;\n" for i in range(branches))
    body += "    p0++;\n" * (lines - 3 - branches)
    return f"static void\nf({names})\n{{\n{body}}}\n"


def test_function_sizes():
    def problems(**sizes):
        return [
            text.split(": ")[2].split()[0]
            for text in rules.function_sizes({"a.c": function(**sizes)})
        ]

    assert problems(lines=90, branches=14, parameters=7) == []
    assert problems(lines=110) == ["lines"]
    assert problems(lines=30, branches=15) == ["complexity"]
    assert problems(parameters=8) == ["parameters"]


def test_c_heads():
    assert rules.c_heads({"a.c": HEAD}) == []
    assert len(rules.c_heads({"a.c": "/* Does one thing. */\n"})) == 2
    assert len(rules.c_heads({"a.c": HEAD.replace("thing.", "thing")})) == 1


def test_python_heads():
    good = "# SPDX-License-Identifier: BSD-3-Clause\n"
    assert rules.python_heads({"a.py": good + '"""Does."""\n', "b.pyi": good}) == []
    assert len(rules.python_heads({"a.py": good + "x = 1\n"})) == 1
    assert len(rules.python_heads({"a.py": '"""Does."""\n'})) == 1


def test_script_heads():
    good = "#!/bin/sh\n# SPDX-License-Identifier: BSD-3-Clause\n"
    assert rules.script_heads({"run": good}) == []
    assert len(rules.script_heads({"run": "#!/bin/sh\nexit\n"})) == 1


def test_header_guards():
    def guarded(name):
        return HEAD + f"#ifndef {name}\n#define {name}\n\nint x;\n\n#endif\n"

    path = "csrc/transport/shm/shm_ring.h"
    assert rules.header_guards({path: guarded("TC_SHM_SHM_RING_H")}) == []
    assert len(rules.header_guards({path: guarded("TC_SHM_RING_H")})) == 1
    assert len(rules.header_guards({path: HEAD + "int x;\n"})) == 1
    late = guarded("TC_SHM_SHM_RING_H") + "int y;\n"
    assert len(rules.header_guards({path: late})) == 1


def test_unique_basenames():
    assert rules.unique_basenames(["csrc/a/x.c", "csrc/a/x.h", "csrc/b/y.c"]) == []
    assert len(rules.unique_basenames(["csrc/a/x.c", "csrc/b/x.c"])) == 1


@pytest.mark.parametrize(
    "line",
    [
        "__atomic_load_n(p, 0);",
        "static _Atomic int x;",
        "#include <stdatomic.h>",
        'printf("x");',
        'fprintf(stderr, "x");',
        'getenv("HOME");',
        "__attribute__((constructor)) static void f(void);",
        "goto *target;",
    ],
)
def test_forbidden(line):
    assert len(rules.forbidden({"csrc/core/a.c": line})) == 1
    assert rules.forbidden({"csrc/core/a.c": f"/* {line} */"}) == []


def test_what_only_looks_forbidden():
    text = '__attribute__((format(printf, 1, 2)));\nsnprintf(a);\nx = "getenv()";\n'
    assert rules.forbidden({"csrc/core/a.c": text}) == []
    assert rules.forbidden({"csrc/base/atomic.h": "__atomic_load_n(p, 0);"}) == []
    assert rules.forbidden({"csrc/base/options.c": "getenv(name);"}) == []


def test_gotos_lead_forward():
    forward = "int\nf(void)\n{\n    goto out;\nout:\n    return 0;\n}\n"
    backward = "int\nf(void)\n{\nagain:\n    goto again;\n}\n"
    other = (
        "int\nf(void)\n{\n    goto out;\n}\nint\ng(void)\n{\nout:\n    return 0;\n}\n"
    )
    assert rules.backward_gotos({"a.c": forward}) == []
    assert len(rules.backward_gotos({"a.c": backward})) == 1
    assert len(rules.backward_gotos({"a.c": other})) == 1


def test_unknown_variables():
    known = {"TORCHCOMM_LOG"}
    right = {"a.c": '"TORCHCOMM_LOG" TC_TORCHCOMMS_TYPES_H TORCHCOMM_*'}
    assert rules.unknown_variables(right, known) == []
    wrong = {"a.c": '"TORCHCOMM_LOGS"', "b.py": "TORCHCOMMS_PATCH"}
    assert len(rules.unknown_variables(wrong, known)) == 2


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['{}']",
        "os.environ.get('{}', 0)",
        "os.getenv('{}')",
        "environ.get('{}')",
        "'{}' in os.environ",
    ],
)
def test_python_environment(line):
    known = {"RANK"}
    assert rules.python_environment({"a.py": line.format("RANK")}, known) == []
    assert len(rules.python_environment({"a.py": line.format("RANKS")}, known)) == 1


def test_python_environment_by_a_variable():
    known = {"RANK", "PMI_RANK"}
    read = "os.getenv(name)"
    right = f"names = ('RANK', 'PMI_RANK', 'Rank')\n{read}"
    assert rules.python_environment({"a.py": right}, known) == []
    wrong = f"names = ('RANK', 'PMI_RANKS')\n{read}"
    assert len(rules.python_environment({"a.py": wrong}, known)) == 1
    assert len(rules.python_environment({"a.py": read}, known)) == 1


def test_unused_options():
    table = (
        '#define TC_OPTIONS(X) \\\n    X(LOG, "TC_LOG", STRING, "warn", 0, 255, \\\n'
        '      "One " \\\n      "two.") \\\n'
        '    X(RANK, "RANK", INT, "-1", -1, 5, "R.")\n'
    )
    log, rank = GENERATOR.read_table(table)
    assert (log.variable, log.default, log.help) == ("TC_LOG", "warn", "One two.")
    assert (rank.type, rank.least, rank.most) == ("INT", "-1", "5")
    used = {"csrc/base/log.c": "read(TC_OPT_LOG);"}
    assert rules.unused_options([log], used, {}) == []
    assert rules.unused_options([rank], {}, {"a.py": "os.environ['RANK']"}) == []
    unread = {"csrc/base/options.c": "TC_OPT_LOG", "csrc/a.c": "/* TC_OPT_LOG */"}
    assert rules.unused_options([log], unread, {}) == ["TC_LOG: nothing reads it"]
    with pytest.raises(ValueError, match="cannot read"):
        GENERATOR.read_table(table.replace("X(RANK,", "Y(RANK,"))


@pytest.mark.parametrize(
    "text", ["see /{}/x", '"/{}"', "cd /{} &&", "path=/{}/lib", "-I/{}/include"]
)
@pytest.mark.parametrize("name", ["work", "root", "opt"])
def test_machine_paths(text, name):
    assert len(rules.machine_names({"a": text.format(name)})) == 1


def test_machine_hosts():
    for host in ("pypi" + ".org", "download.pytorch" + ".org"):
        assert len(rules.machine_names({"a": f"https://{host}/simple"})) == 1
    right = "a/work, his/root, /optional, example.org, tests/work/x, build/opt"
    assert rules.machine_names({"a": right}) == []


def test_exports():
    assert rules.export_problems(["PyInit__core"], ["libc.so.6", "libm.so.6"]) == []
    assert rules.export_problems([], []) == ["does not export PyInit__core"]
