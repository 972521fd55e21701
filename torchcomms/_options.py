# SPDX-License-Identifier: BSD-3-Clause
"""Options of communicators and batches, and the timeout type."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torchcomms import _core


def _shown(options):
    """The repr of options; a value whose own repr fails is shown as its type."""
    parts = []
    for name, value in vars(options).items():
        try:
            text = repr(value)
        except Exception:
            text = f"<{type(value).__name__}>"
        parts.append(f"{name}={text}")
    return f"{type(options).__name__}({', '.join(parts)})"


_TRUE = {"1", "true", "yes", "y"}
_FALSE = {"0", "false", "no", "n"}


def hint_bool(hints: dict[str, str], name: str, default: bool) -> bool:
    """A hint read as the environment's booleans are; RuntimeError for other words."""
    text = hints.get(name, "").strip()
    word = text.lower()
    if not word:
        return default
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise RuntimeError(
        f"hint '{name}' must be one of 1, true, yes, y, 0, false, no, n, but got "
        f"'{text}'"
    )


def hint_int(hints: dict[str, str], name: str, default: int) -> int:
    """A hint read as a decimal number; ValueError for anything else."""
    text = hints.get(name, "").strip()
    if not text:
        return default
    if text.lstrip("+-").isdecimal() and text.isascii():
        return int(text)
    raise ValueError(f"hint '{name}' must be a decimal number, but got '{text}'")


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
        return _shown(self)


class _OperationOptions:
    """Hints and timeout of one operation; a timeout of zero is the communicator's."""

    hints: dict[str, str]
    timeout: timedelta

    def __init__(self) -> None:
        self.hints = {}
        self.timeout = timedelta(0)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _shown(self)


class _TaggedOptions(_OperationOptions):
    tag: int

    def __init__(self) -> None:
        super().__init__()
        self.tag = 0


class SendOptions(_TaggedOptions):
    """Options of `send`."""


class RecvOptions(_TaggedOptions):
    """Options of `recv`."""


class BatchP2POptions(_OperationOptions):
    """Options of `BatchSendRecv.issue`; a timeout of zero is the communicator's."""


class BroadcastOptions(_OperationOptions):
    """Options of `broadcast`."""


class AllReduceOptions(_OperationOptions):
    """Options of `all_reduce`."""


class ReduceOptions(_OperationOptions):
    """Options of `reduce`."""


class AllGatherOptions(_OperationOptions):
    """Options of `all_gather` and `all_gather_v`."""


class AllGatherSingleOptions(_OperationOptions):
    """Options of `all_gather_single`."""


class ReduceScatterOptions(_OperationOptions):
    """Options of `reduce_scatter` and `reduce_scatter_v`."""


class ReduceScatterSingleOptions(_OperationOptions):
    """Options of `reduce_scatter_single`."""


class AllToAllOptions(_OperationOptions):
    """Options of `all_to_all`."""


class AllToAllSingleOptions(_OperationOptions):
    """Options of `all_to_all_single`."""


class AllToAllvSingleOptions(_OperationOptions):
    """Options of `all_to_all_v_single`."""


class BarrierOptions(_OperationOptions):
    """Options of `barrier`."""


class ScatterOptions(_OperationOptions):
    """Options of `scatter`."""


class GatherOptions(_OperationOptions):
    """Options of `gather`."""


class GatherSingleOptions(_OperationOptions):
    """Options of `gather_single`."""


class PutOptions(_OperationOptions):
    """Options of `TorchCommWindow.put`."""


class SignalOptions(_OperationOptions):
    """Options of `TorchCommWindow.signal`."""


class WaitSignalOptions(_OperationOptions):
    """Options of `TorchCommWindow.wait_signal`."""


class AllGatherPInitOptions(_OperationOptions):
    """Options of `all_gather_p_init`."""


class AllGatherPExecOptions(_OperationOptions):
    """Options of `all_gather_p_exec`."""


class ReconfigureOptions:
    """The members of `TorchComm.reconfigure` and how long it may take.

    A list of handles fixes the order of the ranks, a set leaves it to the backend.
    """

    uuid: int
    init_handles: list[str] | set[str]
    timeout: timedelta | None
    hints: dict[str, str] | None

    def __init__(
        self,
        uuid: int = 0,
        init_handles: list[str] | set[str] | None = None,
        timeout: timedelta | None = None,
        hints: dict[str, str] | None = None,
    ) -> None:
        self.uuid = uuid
        self.init_handles = [] if init_handles is None else init_handles
        self.timeout = timeout
        self.hints = hints

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReconfigureOptions):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _shown(self)


def _effective(abort_process, timeout, hints, enable_reconfigure=False):
    """What TorchComm.get_options returns."""
    options = CommOptions.__new__(CommOptions)
    options.abort_process_on_timeout_or_error = abort_process
    options.timeout = timeout
    options.store = None
    options.enable_reconfigure = enable_reconfigure
    options.hints = hints
    return options
