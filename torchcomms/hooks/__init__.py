# SPDX-License-Identifier: BSD-3-Clause
"""Hooks that are attached to communicators."""

from torchcomms import _core

__all__ = ["FlightRecorderHook"]


class FlightRecorderHook:
    """Names the communicators whose operations are to be recorded.

    The core records every operation in a ring of its process anyway; `max_entries`
    and `isolated` do not change that.
    """

    def __init__(self, max_entries: int = 2048, isolated: bool = False) -> None:
        self.max_entries = max_entries
        self.isolated = isolated
        self._names: list[str] = []

    def register_with_comm(self, comm: _core.TorchComm) -> None:
        """May be called for several communicators."""
        if not isinstance(comm, _core.TorchComm):
            raise TypeError(f"comm must be a torchcomms.TorchComm, but got {comm!r}")
        self._names.append(comm.get_name())

    def is_enabled(self) -> bool:
        """Whether a communicator was registered."""
        return bool(self._names)
