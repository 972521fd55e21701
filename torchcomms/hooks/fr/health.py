# SPDX-License-Identifier: BSD-3-Clause
"""Whether this process has seen an operation fail, as its debug server tells it."""

from __future__ import annotations

import time

from torchcomms import _core

_WAIT_BEFORE_ABORT_MS = 15000

_healthy = True


def is_healthy() -> bool:
    return _healthy


def mark_unhealthy() -> None:
    global _healthy
    _healthy = False


def wait_for_a_dump(aborts_process: bool, on_cpu: bool) -> None:
    """Leaves time to fetch a dump before the process is aborted.

    An error on a CPU device aborts no process, so that it waits only where somebody
    asked for that.
    """
    wait_ms = _core._option("TORCHCOMM_HEALTH_CHECK_WAIT_MS")
    if wait_ms < 0:
        wait_ms = 0 if on_cpu else _WAIT_BEFORE_ABORT_MS
    if aborts_process and wait_ms > 0:
        time.sleep(wait_ms / 1000)
