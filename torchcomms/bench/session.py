# SPDX-License-Identifier: BSD-3-Clause
"""One rank's part of a benchmark: every case, by all contenders."""

import sys

import torch

from torchcomms.bench import report
from torchcomms.bench.cases import DTYPES, OPERATIONS, Case
from torchcomms.bench.contenders import Agreement, Ours
from torchcomms.bench.measure import first_call, measure


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


def run(options, comm, peers):
    """Measures `comm` and `peers`; rank 0 shows the table. The exit status.

    Closes the peers and finalizes the communicator.
    """
    torch.set_num_threads(1)
    rank, ranks = comm.get_rank(), comm.get_size()
    contenders = [Ours(comm), *peers]
    agreement = Agreement(comm)
    table = report.Table([peer.name for peer in peers])
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
