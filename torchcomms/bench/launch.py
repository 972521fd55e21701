# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a benchmark as processes of this machine."""

import os
import subprocess
import sys
import time

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5


def _start(ranks, arguments, port):
    command = [sys.executable, "-m", "torchcomms.bench", *arguments]
    for rank in range(ranks):
        placed = {
            "TORCHCOMM_RANK": str(rank),
            "TORCHCOMM_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            # The store is ours: no rank has to host it, no port can be taken.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        yield subprocess.Popen(command, env={**os.environ, **placed})


def _wait(processes):
    """The first status that is not 0; the others get some time to end by themselves."""
    status, deadline = 0, None
    while any(process.poll() is None for process in processes):
        failed = [p.returncode for p in processes if p.returncode]
        if failed and deadline is None:
            status, deadline = failed[0], time.monotonic() + _GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            return status
        time.sleep(_POLL_SECONDS)
    return next((p.returncode for p in processes if p.returncode), 0)


def launch(ranks, arguments):
    """Runs this benchmark in `ranks` processes; the exit status."""
    from torch.distributed import TCPStore

    if ranks < 1:
        raise SystemExit(f"--ranks is {ranks}: at least 1 is needed")
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    processes = []
    try:
        processes.extend(_start(ranks, arguments, store.port))
        status = _wait(processes)
    except KeyboardInterrupt:
        status = 130
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    return status if status >= 0 else 128 - status
