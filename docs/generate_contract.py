# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/contract.md: what the contract demands, and the tests that show it.

docs/contract.txt has the demands in our own words, by section, each with its tests. A
test says which sections it is about in the first line of its docstring, or its module
does for all tests in it: `api.md 5: ...` or `api.md 4, 5: ...`.
"""

import ast
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMANDS = ROOT / "docs/contract.txt"
PAGE = ROOT / "docs/contract.md"

HEAD = """\
# The contract and its tests

What a drop-in `torchcomms` must do, by section of the contract (`api.md`), in our own
words, and the tests that show it. `make docs` makes this page from `docs/contract.txt`
and from the marks in the docstrings of the tests; a demand without a test, or with one
that does not exist or is not marked for its section, is an error. The table of errors
gathers texts of the other sections, whose marks its tests have.
"""

# The table of errors gathers texts of the other sections.
_NEED_NO_MARK = {25}
_SECTION = re.compile(r"\[(\d+)\] (.+)")
_MARK = re.compile(r"api\.md (\d+(?:, \d+)*): ")


class Demand(NamedTuple):
    text: str
    tests: list[str]


class Section(NamedTuple):
    number: int
    title: str
    demands: list[Demand]


def read_demands(text):
    """The sections of docs/contract.txt: `[number] title`, below it `- demand`, below
    that its tests, indented; a demand may go on in indented lines without `::`."""
    sections = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        heading = _SECTION.fullmatch(words)
        if not words or line.startswith("#"):
            continue
        if heading:
            sections.append(Section(int(heading[1]), heading[2], []))
        elif line.startswith("- ") and sections:
            sections[-1].demands.append(Demand(line[2:].strip(), []))
        elif line.startswith(" ") and sections and sections[-1].demands:
            last = sections[-1].demands[-1]
            if "::" in words:
                last.tests.append(words)
            else:
                sections[-1].demands[-1] = Demand(f"{last.text} {words}", last.tests)
        else:
            raise ValueError(f"docs/contract.txt:{number}: cannot be read: {line!r}")
    return sections


def _marks(node):
    """The sections that a docstring names at its beginning."""
    found = _MARK.match(ast.get_docstring(node) or "")
    return {int(word) for word in found[1].split(", ")} if found else set()


def read_marks(files):
    """{test: sections} of {path: text}, with the marks of its module."""
    marks = {}
    for path, text in files.items():
        module = ast.parse(text)
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                marks[f"{path}::{node.name}"] = _marks(module) | _marks(node)
    return marks


def files_with_tests(root=ROOT):
    """{path: text} of the modules with tests."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted((root / "tests").rglob("test_*.py"))
    }


def problems(sections, marks):
    """What is wrong with the demands, one line each."""
    found = []
    numbers = [section.number for section in sections]
    if numbers != sorted(set(numbers)):
        found.append(f"sections are not in order, or twice: {numbers}")
    for section in sections:
        if not section.demands:
            found.append(f"section {section.number}: no demand")
        for demand in section.demands:
            where = f"section {section.number}, {demand.text!r}"
            if not demand.tests:
                found.append(f"{where}: no test")
            for test in demand.tests:
                if test not in marks:
                    found.append(f"{where}: {test} does not exist")
                elif section.number not in marks[test] | _NEED_NO_MARK:
                    found.append(f"{where}: {test} has no mark of this section")
    return found


def _link(test):
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


def page(sections, marks):
    """The text of docs/contract.md."""
    lines = [HEAD]
    for section in sections:
        marked = sum(section.number in of for of in marks.values())
        lines += [
            f"## {section.number}. {section.title}",
            "",
            f"{len(section.demands)} demands; {marked} tests carry its mark.",
            "",
            "| must | shown by |",
            "| --- | --- |",
        ]
        for demand in section.demands:
            tests = ", ".join(_link(test) for test in demand.tests)
            lines.append(f"| {demand.text} | {tests} |")
        lines.append("")
    return "\n".join(lines)


def main():
    sections = read_demands(DEMANDS.read_text())
    marks = read_marks(files_with_tests())
    found = problems(sections, marks)
    if found:
        sys.exit("\n".join(found))
    PAGE.write_text(page(sections, marks))
    print(f"{PAGE.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
