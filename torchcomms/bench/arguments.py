# SPDX-License-Identifier: BSD-3-Clause
"""The options of the benchmark's command line."""

import argparse

from torchcomms.bench import report
from torchcomms.bench.cases import DTYPES, OPERATIONS

_OPS = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,ping_pong,barrier"
_SIZES = "8,64K,1M,16M"


def _list_of(known):
    def parse(text):
        names = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown) or repr(text)}; "
                f"known: {', '.join(known)}"
            )
        return names

    return parse


def _sizes(text):
    try:
        return [report.parse_size(part) for part in text.split(",")]
    except ValueError as cause:
        raise argparse.ArgumentTypeError(str(cause)) from cause


def _iterations(text):
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is neither auto nor a count")
    return int(text)


def parse_arguments(arguments=None):
    """The options, and the parser for errors found later."""
    ask = argparse.ArgumentParser(
        prog="python -m torchcomms.bench",
        description="Times of collectives on this machine. Works under torchrun or "
        "mpiexec, or starts the ranks itself.",
        epilog="bytes: what one rank contributes or gets (for all_gather, "
        "reduce_scatter, all_to_all, gather and scatter one rank's block). us: median "
        "over bursts, at the slowest rank, of the time of a call; p10 and p90: a tenth "
        "of the bursts is below, above. GB/s: what the busiest link carries. ours/it: "
        "median of our time by the peer's in the same round, below 1 we are faster.",
    )
    ask.add_argument("--ops", type=_list_of(OPERATIONS), default=_OPS)
    ask.add_argument("--sizes", type=_sizes, default=_SIZES, help="8,64K,1M")
    ask.add_argument("--dtypes", type=_list_of(DTYPES), default="float32")
    ask.add_argument("--backend", default="ncclx", help="of torchcomms; %(default)s")
    ask.add_argument("--against", type=_list_of(["gloo"]), default=[], metavar="gloo")
    ask.add_argument("--ranks", type=int, help="processes to start; 2")
    ask.add_argument(
        "--iters", type=_iterations, default="auto", help="calls per burst; auto: 1 ms"
    )
    ask.add_argument("--seconds", type=float, default=0.4, help="per row; %(default)s")
    ask.add_argument("--json", metavar="FILE", help="the figures, also as JSON")
    return ask.parse_args(arguments), ask
