# SPDX-License-Identifier: BSD-3-Clause
"""docs/contract.md is current, and its generator finds what is missing."""

import pytest

from lint.tree import load_generator

CONTRACT = load_generator("generate_contract")

TEXT = """\
# a comment
[5] TorchComm
- sums
    tests/a.py::test_sum
- goes on
    in a second line
    tests/a.py::test_sum
    tests/b.py::test_marked
"""
MODULES = {
    "tests/a.py": '"""api.md 4, 5: both."""\ndef test_sum():\n    pass\n',
    "tests/b.py": (
        '"""No mark."""\ndef test_marked():\n    """api.md 5: one."""\n'
        'def test_none():\n    """Not api.md 5: at its beginning."""\n'
    ),
}


def read(text):
    return CONTRACT.read_demands(text)


def test_page_is_current():
    sections = read(CONTRACT.DEMANDS.read_text())
    marks = CONTRACT.read_marks(CONTRACT.files_with_tests())
    found = CONTRACT.problems(sections, marks)
    assert not found, "\n" + "\n".join(found)
    assert CONTRACT.PAGE.read_text() == CONTRACT.page(sections, marks), (
        "run `make docs`"
    )


def test_marks():
    assert CONTRACT.read_marks(MODULES) == {
        "tests/a.py::test_sum": {4, 5},
        "tests/b.py::test_marked": {5},
        "tests/b.py::test_none": set(),
    }


def test_demands():
    (section,) = read(TEXT)
    assert (section.number, section.title) == (5, "TorchComm")
    assert [demand.text for demand in section.demands] == [
        "sums",
        "goes on in a second line",
    ]
    assert CONTRACT.problems([section], CONTRACT.read_marks(MODULES)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[5] T\n", "section 5: no demand"),
        ("[5] T\n- sums\n", "section 5, 'sums': no test"),
        ("[5] T\n- sums\n  tests/a.py::test_gone\n", "test_gone does not exist"),
        ("[6] T\n- sums\n  tests/a.py::test_sum\n", "has no mark of this section"),
        ("[5] T\n- sums\n  tests/b.py::test_none\n", "has no mark of this section"),
        (
            "[5] T\n- a\n  tests/a.py::test_sum\n[4] T\n- a\n  tests/a.py::test_sum\n",
            "sections are not in order",
        ),
    ],
)
def test_what_is_missing_is_found(text, problem):
    (found,) = CONTRACT.problems(read(text), CONTRACT.read_marks(MODULES))
    assert problem in found


@pytest.mark.parametrize("text", ["- no section\n", "[5] T\n  too early\n", "words\n"])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="cannot be read"):
        read(text)
