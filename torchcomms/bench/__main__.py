# SPDX-License-Identifier: BSD-3-Clause
"""Command line of the benchmark; starts the ranks itself where no launcher did."""

import argparse
import sys
from datetime import timedelta

import torch

import torchcomms
from torchcomms._bootstrap import _rank_and_size
from torchcomms._store import open_master_store
from torchcomms.bench import report
from torchcomms.bench.cases import DTYPES, OPERATIONS, Case
from torchcomms.bench.contenders import Agreement, C10d, Ours
from torchcomms.bench.launch import launch
from torchcomms.bench.measure import first_call, measure

_OPS = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,ping_pong,barrier"
_SIZES = "8,64K,1M,16M"
_START_TIMEOUT = timedelta(seconds=60)


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
    return ask, ask.parse_args(arguments)


def _under_a_launcher():
    try:
        return _rank_and_size()
    except RuntimeError as cause:
        if "none of the variables" in str(cause):
            return None
        raise


def _cases(options, rank, ranks):
    """Every case of the run, in the order of the table."""
    for name in options.ops:
        operation = OPERATIONS[name]
        if operation.only_ranks not in (None, ranks):
            continue
        if name == "barrier":
            yield operation, 0, torch.float32
            continue
        for dtype in options.dtypes:
            for nbytes in options.sizes:
                yield operation, nbytes, DTYPES[dtype]


def _measure_case(case, contenders, agreement, options):
    calls, right = {}, {}
    for contender in contenders:
        calls[contender.name], right[contender.name] = first_call(
            contender, case, agreement
        )
    usable = [name for name, call in calls.items() if call is not None]
    timings = measure(
        [calls[name] for name in usable],
        case,
        agreement,
        options.seconds,
        options.iters,
    )
    found = dict(zip(usable, timings, strict=True))
    return report.Row(case, {name: found.get(name) for name in calls}, right)


class _Screen:
    """Progress bar and table on rank 0; other ranks are silent."""

    def __init__(self, table, total, silent):
        self.silent = silent
        self.bar = None
        if silent:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            pass
        else:
            self.bar = tqdm(total=total, unit="row", leave=False, disable=None)
        self.show(table.header())

    def begin(self, title):
        if self.bar is not None:
            self.bar.set_description(title)

    def show(self, line):
        if self.silent:
            return
        if self.bar is None:
            print(line, flush=True)
        else:
            self.bar.write(line, file=sys.stdout)
            sys.stdout.flush()

    def step(self):
        if self.bar is not None:
            self.bar.update()

    def close(self):
        if self.bar is not None:
            self.bar.close()


def run(options):
    """One rank's part; the exit status."""
    torch.set_num_threads(1)
    comm = torchcomms.new_comm(options.backend, torch.device("cpu"), name="bench")
    rank, ranks = comm.get_rank(), comm.get_size()
    contenders = [Ours(comm)]
    for peer in options.against:
        store = open_master_store(rank, _START_TIMEOUT)
        contenders.append(C10d(peer, store, rank, ranks))
    agreement = Agreement(comm)
    table = report.Table(options.against)
    cases = list(_cases(options, rank, ranks))
    screen = _Screen(table, len(cases), silent=rank != 0)
    rows = []
    for operation, nbytes, dtype in cases:
        screen.begin(f"{operation.name} {report.show_size(nbytes)}")
        case = Case(operation, nbytes, dtype, rank, ranks)
        row = _measure_case(case, contenders, agreement, options)
        rows.append(row)
        screen.show(table.line(row))
        screen.step()
    screen.close()
    if options.json and rank == 0:
        report.write_json(options.json, rows, ranks)
    for contender in reversed(contenders):
        contender.close()
    wrong = any(False in row.right.values() for row in rows)
    return 1 if wrong else 0


def main():
    ask, options = parse_arguments()
    placed = _under_a_launcher()
    if placed is None:
        return launch(options.ranks or 2, sys.argv[1:])
    if options.ranks not in (None, placed[1]):
        ask.error(f"--ranks is {options.ranks}, but the launcher started {placed[1]}")
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
