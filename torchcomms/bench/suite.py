# SPDX-License-Identifier: BSD-3-Clause
"""All sessions of a run: for each count of ranks one with gloo, one for each MPI."""

import sys

from torchcomms.bench import mpi_install
from torchcomms.bench.launch import RanksFailed, run_ranks
from torchcomms.bench.limit import add_limit
from torchcomms.bench.screen import Screen
from torchcomms.bench.session import join, plan
from torchcomms.bench.settings import Settings
from torchcomms.bench.table import OURS, Table
from torchcomms.bench.units import show_size

_INTERRUPTED = 130


def installed_peers(options):
    """Those of --against that can be used; says of the others how to install them."""
    found = []
    for peer in options.against:
        problem = None
        if peer in mpi_install.WHEELS:
            problem = mpi_install.missing(options.mpi_dir, peer)
        if problem is None:
            found.append(peer)
        else:
            print(f"--against {peer}: {problem}", file=sys.stderr, flush=True)
    if options.against and not found:
        raise SystemExit("--against: none of these is installed")
    return found


def _sessions(options, peers):
    """Counts of ranks and settings. An MPI has a session of its own."""
    together = [peer for peer in peers if peer not in mpi_install.WHEELS]
    alone = [[peer] for peer in peers if peer in mpi_install.WHEELS]
    groups = [together, *alone] if together or not alone else alone
    for ranks in options.ranks or [2]:
        for group in groups:
            yield ranks, Settings.of(options, group)


def _title(case):
    operation, nbytes, _ = case
    return f"{operation.name} {show_size(nbytes)}"


class _Collector:
    """Shows rows as they come and keeps them."""

    def __init__(self, screen, limit):
        self.screen, self.limit = screen, limit
        self.rows = []

    def session(self, settings, ranks, rows):
        ours = [f"{OURS}:{name}" for name in settings.backends[1:]]
        table = Table([*ours, *settings.peers])
        titles = [_title(case) for case in plan(settings, ranks)]
        beside = f" beside {', '.join(table.peers)}" if table.peers else ""
        self.screen.show(f"# {ranks} ranks{beside}")
        self.screen.show(table.header())
        self.screen.begin(titles[0] if titles else "")
        for done, row in enumerate(rows, 1):
            add_limit(row, self.limit)
            self.rows.append(row)
            for line in table.lines(row):
                self.screen.show(line)
            self.screen.step()
            self.screen.begin(titles[done] if done < len(titles) else "")


def run_started(options, limit):
    """Starts every session: rows, the peers' versions, and a status that is 0 where
    every session ended well.

    What one session cannot do is no reason to lose the rows of the others.
    """
    sessions = list(_sessions(options, installed_peers(options)))
    total = sum(len(list(plan(settings, ranks))) for ranks, settings in sessions)
    screen = Screen(total)
    collector = _Collector(screen, limit)
    versions, status = {}, 0
    try:
        for ranks, settings in sessions:
            said = run_ranks(settings, ranks, options.mpi_dir)
            try:
                versions.update(next(said, {}))
                collector.session(settings, ranks, said)
            except RanksFailed as cause:
                status = status or cause.status
                print(cause, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    finally:
        screen.close()
    return collector.rows, versions, status


def run_placed(options, limit):
    """This process is one rank: rows, the peers' versions, and whether it is silent,
    as all but rank 0 are."""
    settings = Settings.of(options, options.against)
    session = join(settings)
    silent = session.rank != 0
    screen = Screen(len(list(plan(settings, session.ranks))), silent)
    collector = _Collector(screen, limit)
    try:
        collector.session(settings, session.ranks, session.rows(settings))
    finally:
        screen.close()
    versions = session.versions()
    session.close()
    return collector.rows, versions, silent
