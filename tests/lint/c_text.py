# SPDX-License-Identifier: BSD-3-Clause
"""Reading C text: code without comments and strings, and #include lines."""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE
)


class Include(NamedTuple):
    line: int
    name: str
    system: bool


def _blank(match):
    text = match[0]
    if text[0] in "\"'":
        return text[0] + text[0]
    return re.sub(r"[^\n]", " ", text)


def code(text):
    """The text with comments blanked and literals emptied; lines keep their number."""
    return _TOKEN.sub(_blank, text)


def without_comments(text):
    return _TOKEN.sub(lambda m: m[0] if m[0][0] in "\"'" else _blank(m), text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    text = without_comments(text)
    return [
        Include(line_of(text, m.start()), m[1] or m[2], m[1] is None)
        for m in _INCLUDE.finditer(text)
    ]


def find(pattern, text):
    """(line, match) of a pattern in the code of a C text."""
    stripped = code(text)
    return [(line_of(stripped, m.start()), m) for m in re.finditer(pattern, stripped)]
