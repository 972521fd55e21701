# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a session as processes of this machine and reads their rows."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from torchcomms.bench import mpi_install

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5
# No row takes longer: a peer hangs.
_STALL_SECONDS = 600


class RanksFailed(Exception):
    """The ranks ended with a status that is not 0; what they said is on stderr."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status if status > 0 else 1


def _store_variables(store):
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        # The store is ours: no rank has to host it, no port can be taken.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
    }


def _start(ranks, arguments, variables):
    for rank in range(ranks):
        placed = {"TORCHCOMM_RANK": str(rank), "TORCHCOMM_SIZE": str(ranks)}
        yield subprocess.Popen(
            [sys.executable, *arguments], env={**os.environ, **variables, **placed}
        )


def _start_under_mpi(mpi, directory, ranks, arguments, variables):
    variables = {**variables, **mpi_install.environment(directory, mpi)}
    command = mpi_install.command(directory, mpi, ranks, arguments)
    # Away from the keyboard: it would be read in place of our parent's.
    yield subprocess.Popen(
        command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL
    )


def _end(processes):
    """All of them: asked first, since an mpiexec then ends its ranks."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _follow(processes, rows):
    """Lines of the file as they come, until every process has ended well."""
    failed_at, last = None, time.monotonic()
    rest = ""
    while True:
        running = any(process.poll() is None for process in processes)
        rest += rows.read()
        *lines, rest = rest.split("\n")
        if lines:
            last = time.monotonic()
        yield from map(json.loads, lines)
        failed = [p.returncode for p in processes if p.returncode]
        now = time.monotonic()
        if failed and failed_at is None:
            failed_at = now  # the others get some time to end by themselves
        if failed and (not running or now > failed_at + _GRACE_SECONDS):
            raise RanksFailed(failed[0], f"a rank ended with status {failed[0]}")
        if not running:
            return
        if now > last + _STALL_SECONDS:
            raise RanksFailed(1, f"no row within {_STALL_SECONDS} s: a rank hangs")
        time.sleep(_POLL_SECONDS)


def run_ranks(settings, ranks, directory):
    """What rank 0 of a session writes: the peers' versions, then row by row.

    Under the mpiexec of the session's MPI, if it has one.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    variables = _store_variables(store)
    mpi = next((peer for peer in settings.peers if peer in mpi_install.WHEELS), None)
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        settings_file, rows_file = (
            pathlib.Path(folder) / name for name in ("settings", "rows")
        )
        settings_file.write_text(settings.to_json())
        rows_file.touch()
        arguments = ["-m", "torchcomms.bench.session", settings_file, rows_file]
        if mpi is None:
            starting = _start(ranks, arguments, variables)
        else:
            starting = _start_under_mpi(mpi, directory, ranks, arguments, variables)
        try:
            processes.extend(starting)
            with open(rows_file) as rows:
                yield from _follow(processes, rows)
        finally:
            _end(processes)
