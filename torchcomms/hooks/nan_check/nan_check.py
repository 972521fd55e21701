# SPDX-License-Identifier: BSD-3-Clause
"""The NaN check: a pre-hook that looks at floating tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchcomms import _core
from torchcomms.hooks._calls import IN_PLACE, require_comm, tensors_of

_NAN = "NaN found in input tensor."


def _look(tensor: Any) -> None:
    if tensor.isnan().any():
        raise RuntimeError(_NAN)


def _find_check() -> Callable[[Any], None]:
    """torch's own check where there is one; RuntimeError where it finds a NaN."""
    import torch

    return getattr(torch.ops.c10d, "check_for_nan", _look)


class NanCheckHook:
    """Raises before an operation of which a floating tensor holds a NaN.

    Outputs are looked at as they are before the operation. A tensor that an operation
    changes in place counts as an input. Infinity and integers pass, and so do the
    tensors of a batch, which its hook does not show.
    """

    __module__ = "torchcomms.hooks"

    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None:
        self.check_inputs = bool(check_inputs)
        self.check_outputs = bool(check_outputs)
        self._enabled = False
        self._check: Callable[[Any], None] | None = None

    def register_with_comm(self, comm: _core.TorchComm) -> None:
        """Attaches the check; may be called for several communicators."""
        require_comm(comm)
        name = comm.get_name()

        def before(op: _core.OpName, op_id: int, args: Any) -> None:
            self._look_at(name, op, args)

        comm.register_pre_hook(before)
        self._enabled = True

    def is_enabled(self) -> bool:
        """Whether a communicator was registered."""
        return self._enabled

    def _look_at(self, name: str, op: _core.OpName, args: Any) -> None:
        inputs, outputs = tensors_of(op, args)
        if self.check_inputs:
            self._examine("input", inputs, name, op)
        if self.check_outputs and op not in IN_PLACE:
            self._examine("output", outputs, name, op)

    def _examine(
        self, side: str, tensors: tuple[Any, ...], name: str, op: _core.OpName
    ) -> None:
        if self._check is None:
            self._check = _find_check()
        for tensor in tensors:
            if not tensor.is_floating_point():
                continue
            try:
                # torch's check reads the memory of a strided tensor as if it were
                # contiguous, and so sees its neighbours.
                self._check(tensor.contiguous())
            except RuntimeError as cause:
                if "NaN" not in str(cause):
                    raise
                operation = str(op).rpartition(".")[2]
                raise RuntimeError(
                    f"NaN detected in {side} tensor for '{operation}' on comm "
                    f"'{name}': {cause}"
                ) from cause
