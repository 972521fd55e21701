# SPDX-License-Identifier: BSD-3-Clause
"""The flight recorder: the last operations of a process, for torch's own tools."""

from __future__ import annotations

import operator

from torchcomms import _core

__all__ = ["FlightRecorderHook"]


class FlightRecorderHook:
    """Records the operations of communicators in a ring.

    All hooks share the ring of their process, of TORCHCOMM_FR_BUFFER_SIZE entries,
    and `max_entries` is ignored; an `isolated` one has a ring of its own.
    """

    __module__ = "torchcomms.hooks"

    def __init__(self, max_entries: int = 2048, isolated: bool = False) -> None:
        from torchcomms.hooks.fr import recorder

        capacity = operator.index(max_entries)
        if isolated and capacity < 1:
            raise ValueError(
                f"max_entries of an isolated recorder must be at least 1, but got "
                f"{capacity}"
            )
        self._recorder = recorder.Recorder(capacity) if isolated else recorder.shared()
        self._enabled = False

    def register_with_comm(self, comm: _core.TorchComm) -> None:
        """Records a communicator, and what is split off it; any number of them."""
        from torchcomms.hooks._calls import require_comm

        require_comm(comm)
        self._recorder.attach(comm)
        self._enabled = True

    def is_enabled(self) -> bool:
        """Whether a communicator was registered."""
        return self._enabled

    def reset(self) -> None:
        """Forgets the entries, and keeps recording."""
        self._recorder.reset()

    def size(self) -> int:
        """The number of entries since the last reset, at most those of the ring."""
        return self._recorder.size()

    def __len__(self) -> int:
        return self._recorder.size()

    def __bool__(self) -> bool:
        return True

    def dump_json(self, include_completed: bool = True) -> str:
        """The record as JSON; without `include_completed`, what has not yet ended."""
        import json

        return json.dumps(self._recorder.document(include_completed))

    def dump_file(self, rank: int, include_completed: bool = True) -> None:
        """The same as a pickle, in the file that torch's analyser expects of `rank`."""
        from torchcomms.hooks.fr.dump import write_file

        write_file(self._recorder, operator.index(rank), include_completed)
