# SPDX-License-Identifier: BSD-3-Clause
"""Options of communicators and batches, and the timeout type."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torchcomms import _core


class Timeout(timedelta):
    """A duration; every `timeout` parameter takes it or a plain timedelta."""

    __slots__ = ()


class CommOptions:
    """Options of a communicator; the environment, as it is now, gives the defaults."""

    abort_process_on_timeout_or_error: bool
    timeout: timedelta
    store: Any
    enable_reconfigure: bool
    hints: dict[str, str]

    def __init__(self) -> None:
        self.abort_process_on_timeout_or_error = _core._option(
            "TORCHCOMM_ABORT_ON_ERROR"
        )
        self.timeout = timedelta(seconds=_core._option("TORCHCOMM_TIMEOUT_SECONDS"))
        self.store = None
        self.enable_reconfigure = False
        self.hints = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommOptions):
            return NotImplemented
        return (
            self.abort_process_on_timeout_or_error
            == other.abort_process_on_timeout_or_error
            and self.timeout == other.timeout
            and self.hints == other.hints
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"CommOptions({fields})"


class BatchP2POptions:
    """Options of `BatchSendRecv.issue`; a timeout of zero is the communicator's."""

    hints: dict[str, str]
    timeout: timedelta

    def __init__(self) -> None:
        self.hints = {}
        self.timeout = timedelta(0)

    def __repr__(self) -> str:
        return f"BatchP2POptions(hints={self.hints!r}, timeout={self.timeout!r})"


def _effective(abort_process, timeout, hints, enable_reconfigure=False):
    """What TorchComm.get_options returns."""
    options = CommOptions.__new__(CommOptions)
    options.abort_process_on_timeout_or_error = abort_process
    options.timeout = timeout
    options.store = None
    options.enable_reconfigure = enable_reconfigure
    options.hints = hints
    return options
