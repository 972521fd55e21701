# SPDX-License-Identifier: BSD-3-Clause
"""A log of communication: one line an event, each signature of a call written once."""

from __future__ import annotations

from collections.abc import Sequence

from torchcomms import _core

__all__ = ["clog"]


class clog:
    """Writes what communicators do to a file, one line an event.

    `events`: LIFECYCLE or ALL, which are the same, write the start, end and waits of
    each call; its enqueueing is written anyway. `verbose`: buffers adds addresses.
    """

    __module__ = "torchcomms.hooks"

    def __init__(
        self, output: str, events: Sequence[str], verbose: Sequence[str] = ()
    ) -> None:
        from torchcomms.hooks.clog.log import open_log

        self._log = open_log(output, events, verbose)

    def register_with_comm(self, comm: _core.TorchComm) -> None:
        """Logs a communicator and what is split off it; once for each."""
        from torchcomms.hooks._calls import require_comm

        require_comm(comm)
        self._log.watch(comm)
