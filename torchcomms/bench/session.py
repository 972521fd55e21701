# SPDX-License-Identifier: BSD-3-Clause
"""One rank's part of a benchmark: every case, by all contenders.

As a program it is a rank that `launch` started: python -m torchcomms.bench.session
SETTINGS ROWS reads what to measure from one file; rank 0 writes the versions of the
peers, then row by row, as lines of JSON to the other.
"""

import json
import pathlib
import sys
from datetime import timedelta

import torch

import torchcomms
from torchcomms._store import open_master_store
from torchcomms.bench import figures
from torchcomms.bench.cases import DTYPES, OPERATIONS, Case
from torchcomms.bench.contenders import Agreement, C10d, Ours
from torchcomms.bench.line import Line
from torchcomms.bench.measure import first_call, measure
from torchcomms.bench.mpi import Mpi
from torchcomms.bench.mpi_install import WHEELS
from torchcomms.bench.settings import Settings

_START_TIMEOUT = timedelta(seconds=60)


def plan(settings, ranks):
    """Operation, bytes and dtype of every case, in the order of the table."""
    for name in settings.ops:
        operation = OPERATIONS[name]
        if operation.only_ranks not in (None, ranks):
            continue
        if name == "barrier":
            yield operation, 0, torch.float32
            continue
        for dtype in settings.dtypes:
            for nbytes in settings.sizes:
                yield operation, nbytes, DTYPES[dtype]


class Session:
    """The contenders of a group of ranks; closed, their communicators are gone."""

    def __init__(self, comms, peers):
        ours = [Ours(comms[0])]
        ours += [Ours(comm, f"torchcomms:{comm.get_backend()}") for comm in comms[1:]]
        self.contenders = [*ours, *peers]
        self.rank, self.ranks = comms[0].get_rank(), comms[0].get_size()
        self._agreement = Agreement(comms[0])
        self._line = Line(self.rank, self.ranks, self._agreement)

    def versions(self):
        return {each.name: each.version for each in self.contenders if each.version}

    def _row(self, settings, operation, nbytes, dtype):
        case = Case(operation, nbytes, dtype, self.rank, self.ranks, settings.rotate)
        bound, right = [], {}
        for contender in self.contenders:
            calls, right[contender.name] = first_call(contender, case, self._agreement)
            if calls is not None:
                bound.append(calls)
        rounds = measure(
            bound,
            case,
            self._agreement,
            self._line,
            settings.seconds,
            settings.iters,
        )
        return figures.row(case, right, rounds)

    def rows(self, settings):
        torch.set_num_threads(1)
        for operation, nbytes, dtype in plan(settings, self.ranks):
            yield self._row(settings, operation, nbytes, dtype)

    def close(self):
        self._line.close()
        for contender in reversed(self.contenders):
            contender.close()


def _peer(name, rank, ranks):
    if name in WHEELS:
        return Mpi(name, rank, ranks)
    return C10d(name, open_master_store(rank, _START_TIMEOUT), rank, ranks)


def join(settings):
    """The session of this rank, which a launcher placed."""
    comms = [
        torchcomms.new_comm(backend, torch.device("cpu"), name=f"bench{i}")
        for i, backend in enumerate(settings.backends)
    ]
    rank, ranks = comms[0].get_rank(), comms[0].get_size()
    return Session(comms, [_peer(name, rank, ranks) for name in settings.peers])


def main():
    settings_file, rows_file = sys.argv[1:]
    settings = Settings.from_json(pathlib.Path(settings_file).read_text())
    session = join(settings)
    with open(rows_file if session.rank == 0 else "/dev/null", "w") as file:
        print(json.dumps(session.versions()), file=file, flush=True)
        for row in session.rows(settings):
            print(json.dumps(row), file=file, flush=True)
    session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
