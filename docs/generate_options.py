# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/options.md from the table in csrc/base/options.h."""

import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "csrc/base/options.h"
PAGE = ROOT / "docs/options.md"

HEAD = """\
# Options

torchcomms reads these environment variables, each when a communicator is made or it is
first needed, never at import. Blanks around a value are ignored and an empty value
means the default. A yes or no is `1 true yes y` or `0 false no n`, in any case. A value
that cannot be read is an error that names the variable and the value.

This page is made by `make docs` from the table in `csrc/base/options.h`.

| variable | type | default | meaning |
| --- | --- | --- | --- |
"""

TYPES = {"BOOL": "yes or no", "INT": "whole number", "STRING": "text"}
LIMITS = {"INT32_MIN", "INT32_MAX"}


class Option(NamedTuple):
    id: str
    variable: str
    type: str
    default: str
    least: str
    most: str
    help: str


def read_table(text):
    """The rows of TC_OPTIONS in a C header."""
    head = re.search(r"#define TC_OPTIONS\(X\)((?:.*\\\n)+.*\n)", text)
    if head is None:
        raise ValueError("no table TC_OPTIONS")
    body = head[1].replace("\\\n", "\n")
    string = r'"(?:[^"\\]|\\.)*"'
    row = re.compile(
        rf"X\((\w+),\s*({string}),\s*(\w+),\s*({string}),\s*(-?\w+),\s*(-?\w+),"
        rf"\s*((?:{string}\s*)+)\)"
    )
    rows = [
        Option(
            m[1],
            m[2][1:-1],
            m[3],
            m[4][1:-1],
            m[5],
            m[6],
            re.sub(r'^"|"\s*"|"\s*$', "", m[7]),
        )
        for m in row.finditer(body)
    ]
    rest = row.sub("", body).strip()
    if rest:
        raise ValueError(f"cannot read this part of TC_OPTIONS: {rest}")
    return rows


def type_text(option):
    text = TYPES[option.type]
    if option.type == "INT" and not {option.least, option.most} & LIMITS:
        return f"{text}, {option.least} to {option.most}"
    if option.type == "INT" and option.least not in LIMITS:
        return f"{text}, at least {option.least}"
    if option.type == "STRING":
        return f"{text}, up to {option.most} characters"
    return text


def page(options):
    lines = []
    for option in options:
        default = f"`{option.default}`" if option.default else ""
        meaning = option.help.replace("|", "\\|")
        lines.append(
            f"| `{option.variable}` | {type_text(option)} | {default} | {meaning} |\n"
        )
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(read_table(TABLE.read_text())))
    print(f"{PAGE.relative_to(ROOT)} written", file=sys.stderr)
