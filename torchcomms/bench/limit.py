# SPDX-License-Identifier: BSD-3-Clause
"""What the machine allows for all_reduce of 2 ranks: figures of tests/bench/limit.c."""

import json
import pathlib
import subprocess
import tempfile

import torchcomms
from torchcomms.bench.line import SHARED
from torchcomms.bench.table import OURS

MEASURE = "measure"
_SOURCE = pathlib.Path("tests", "bench", "limit.c")
_LEAST_BYTES = 4 << 10  # below, the hand-over is what costs
_MOST_BYTES = 64 << 20
_DEADLINE_SECONDS = 600


def _read(text):
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {row["bytes"]: row["us_med"] for row in rows if row["op"] == "all_reduce"}


def _measure(sizes):
    source = pathlib.Path(torchcomms.__file__).resolve().parents[1] / _SOURCE
    if not source.exists():
        raise SystemExit(f"--limit measure needs a checkout: there is no {source}")
    wanted = [str(size) for size in sizes if _LEAST_BYTES <= size <= _MOST_BYTES]
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "limit"
        build = ["cc", "-O3", "-march=native", source, "-o", program]
        try:
            subprocess.run(build, check=True)
        except (OSError, subprocess.CalledProcessError) as cause:
            raise SystemExit(f"--limit measure: {cause}") from cause
        done = subprocess.run(
            [program, *wanted],
            check=True,
            timeout=_DEADLINE_SECONDS,
            stdout=subprocess.PIPE,
            text=True,
        )
    return _read(done.stdout)


def limits(option, sizes):
    """Microseconds by bytes; none without --limit."""
    if option is None:
        return {}
    if option == MEASURE:
        return _measure(sizes)
    try:
        found = _read(pathlib.Path(option).read_text())
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise SystemExit(f"--limit {option}: {cause}") from cause
    if not found:
        raise SystemExit(f"--limit {option}: it has no figure of all_reduce")
    return found


def add_limit(row, found):
    """Adds the limit and our ratio to it where there is a figure for this row.

    No message is faster than half a line round trip of the same rounds; for a small one
    that is all there is.
    """
    if row["op"] != "all_reduce" or row["ranks"] != 2 or not found:
        return
    for place, placed in row["placements"].items():
        if place == SHARED:
            continue  # a line then takes as long as two changes of processes
        traffic = found.get(row["bytes"], 0)
        if traffic or row["bytes"] < _LEAST_BYTES:
            us = max(traffic, placed["line_us"] / 2)
            placed["limit_us"] = us
            placed["ours_by_limit"] = placed["times"][OURS]["us_med"] / us
