# SPDX-License-Identifier: BSD-3-Clause
"""The options of the benchmark's command line."""

import argparse
import json
import math
import pathlib

from torchcomms.bench.cases import DTYPES, OPERATIONS
from torchcomms.bench.mpi_install import WHEELS
from torchcomms.bench.settings import AUTO, ROTATIONS
from torchcomms.bench.units import parse_size

GLOO = "gloo"
PEERS = (GLOO, *WHEELS)
_OPS = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,ping_pong,barrier"
_SIZES = "8,64K,1M,16M"
_EPILOG = """
line: microseconds of a bare cache line to the other rank and back, which tells where
the CPUs are; figures of different places stand on lines of their own. bytes: what one
rank contributes or gets (for all_gather, reduce_scatter, all_to_all, gather and scatter
one rank's block). us: median over bursts, at the slowest rank, of the time of a call;
p10 and p90: a tenth of the bursts is below, above. GB/s: 1e9 bytes a second on the
busiest link, by the convention of nccl-tests. ours/it: our median by the peer's in the
same rounds, below 1 we are faster; /mpi: the largest of these over the MPIs.
"""


def _list_of(known=None):
    def parse(text):
        names = [name.strip() for name in text.split(",") if name.strip()]
        names = list(dict.fromkeys(names))
        unknown = [name for name in names if known and name not in known]
        if unknown or not names:
            known_text = f"; known: {', '.join(known)}" if known else ""
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown) or repr(text)}{known_text}"
            )
        return names

    return parse


def _sizes(text):
    try:
        return list(dict.fromkeys(parse_size(part) for part in text.split(",")))
    except ValueError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause


def _counts(text):
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of counts: 2,4 is")
    return list(dict.fromkeys(int(part) for part in parts))


def _seconds(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds")
    return seconds


def _writable_file(text):
    """Told before the minutes of measuring, not after them."""
    try:
        with open(text, "a"):
            return text
    except OSError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause


def _directory(text):
    path = pathlib.Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause
    return path


def _result(text):
    try:
        content = json.loads(pathlib.Path(text).read_text())
        content["rows"], content["machine"]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise argparse.ArgumentTypeError(
            f"{text} is no result of --json: {cause}"
        ) from cause
    return content


def _iterations(text):
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is neither auto nor a count")
    return int(text)


def _parser():
    ask = argparse.ArgumentParser(
        prog="python -m torchcomms.bench",
        description="Times of collectives on this machine, ours beside others'. Starts "
        "the ranks itself, or works under torchrun or mpiexec.",
        epilog=_EPILOG,
    )
    add = ask.add_argument
    add("--ops", type=_list_of(OPERATIONS), default=_OPS, help="%(default)s")
    add("--sizes", type=_sizes, default=_SIZES, help="bytes; %(default)s")
    add("--dtypes", type=_list_of(DTYPES), default="float32", help="%(default)s")
    add("--ranks", type=_counts, help="processes to start, one count or more; 2")
    add(
        "--backends",
        type=_list_of(),
        default="ncclx",
        metavar="NAMES",
        help="of torchcomms, the first is compared with the others; %(default)s",
    )
    add(
        "--against",
        type=_list_of(PEERS),
        default=[],
        metavar="PEERS",
        help=f"any of {','.join(PEERS)}; of those, what is installed",
    )
    add(
        "--mpi-dir",
        default="build/bench",
        metavar="DIR",
        help="has a virtual environment for each MPI; %(default)s",
    )
    add(
        "--rotate",
        choices=ROTATIONS,
        default=AUTO,
        help="go round in buffers larger than the caches: auto does from 16K on",
    )
    add(
        "--limit",
        metavar="FILE|measure",
        help="what tests/bench/limit.c printed, or to build and run it",
    )
    add("--iters", type=_iterations, default="auto", help="calls a burst; auto: 1 ms")
    add("--seconds", type=_seconds, default=0.4, help="for a row; %(default)s")
    add(
        "--json",
        type=_writable_file,
        metavar="FILE",
        help="the figures, also as JSON",
    )
    add(
        "--report",
        type=_directory,
        metavar="DIR",
        help="the figures, also as DIR/index.html",
    )
    add(
        "--from",
        dest="source",
        type=_result,
        metavar="FILE",
        help="measure nothing: the table and page of an earlier --json",
    )
    return ask


def parse_arguments(arguments=None):
    """The options, and the parser for errors found later."""
    ask = _parser()
    return ask.parse_args(arguments), ask
