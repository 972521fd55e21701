# SPDX-License-Identifier: BSD-3-Clause
"""`python -m torchcomms.bench`; starts the ranks itself where no launcher did."""

import json
import pathlib
import sys

from torchcomms._bootstrap import _rank_and_size
from torchcomms.bench import page, table
from torchcomms.bench.arguments import parse_arguments
from torchcomms.bench.limit import MEASURE, limits
from torchcomms.bench.machine import machine, versions
from torchcomms.bench.mpi_install import WHEELS
from torchcomms.bench.suite import run_placed, run_started


def _under_a_launcher():
    try:
        return _rank_and_size()
    except RuntimeError as cause:
        if "none of the variables" in str(cause):
            return None
        raise


def _check_placed(options, ask, ranks):
    """A launcher has decided how many ranks there are and which MPI they have."""
    if options.ranks not in (None, [ranks]):
        asked = ",".join(map(str, options.ranks))
        ask.error(f"--ranks is {asked}, but the launcher started {ranks}")
    mpis = [peer for peer in options.against if peer in WHEELS]
    if len(mpis) > 1:
        ask.error(
            f"--against is {','.join(mpis)}, but ranks that a launcher started have "
            f"one MPI at most: run it without a launcher"
        )
    if options.limit == MEASURE:
        ask.error("--limit measure: not under a launcher, where other ranks run")


def _content(rows, peer_versions, place):
    return {
        "command": ["python", *sys.orig_argv[1:]],
        "machine": place,
        "versions": {**versions(), **peer_versions},
        "rows": rows,
    }


def _publish(options, content):
    """Files, and the last table where there is more than one session; the status."""
    rows = content["rows"]
    peers = list(dict.fromkeys(peer for row in rows for peer in list(row["right"])[1:]))
    if len(peers) > 1 or options.source:
        print()
        for line in table.side_by_side(rows, peers):
            print(line)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(content, indent=1) + "\n")
    if options.report:
        print(page.write(options.report, content))
    return 1 if any(False in row["right"].values() for row in rows) else 0


def main():
    options, ask = parse_arguments()
    if options.source:
        return _publish(options, options.source)
    placed = _under_a_launcher()
    place = machine()  # its load is the one before us
    if placed is None:
        limit = limits(options.limit, options.sizes)
        rows, peers, status = run_started(options, limit)
        if rows:
            status = max(status, _publish(options, _content(rows, peers, place)))
        return status
    _check_placed(options, ask, placed[1])
    rows, peers, silent = run_placed(options, limits(options.limit, options.sizes))
    if silent:
        return 1 if any(False in row["right"].values() for row in rows) else 0
    return _publish(options, _content(rows, peers, place))


if __name__ == "__main__":
    sys.exit(main())
