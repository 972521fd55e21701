# SPDX-License-Identifier: BSD-3-Clause
"""new_comm: who this process is, and the store by which the ranks find each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchcomms import _core
from torchcomms._backends import _load_backend
from torchcomms._options import CommOptions

if TYPE_CHECKING:
    from datetime import timedelta

    import torch
    from torch.distributed import Store

_OWN = ("TORCHCOMM_RANK", ("TORCHCOMM_SIZE",))
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",))
_PMI = ("PMI_RANK", ("PMI_SIZE",))
_PALS = (
    "PALS_RANKID",
    ("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"),
)
_TORCHRUN = ("RANK", ("WORLD_SIZE",))

# Rank from the first variable, size from the first of the others that is set.
_METHODS = {
    "auto": (_OWN, _OPEN_MPI, _PMI, _PALS, _TORCHRUN),
    "torchrun": (_OWN, _TORCHRUN),
    "mpi": (_OWN, _OPEN_MPI, _PMI),
    "pals": (_OWN, _PALS),
}
_OTHER_METHOD = (_OWN,)


def _is_set(variable):
    return bool(os.environ.get(variable, "").strip())


def _shown(variable):
    value = os.environ.get(variable, "").strip()
    return f"{variable} is '{value}'" if value else f"{variable} is not set"


def _rank_and_size():
    """Rank and size from the environment, read anew at each call."""
    method = _core._option("TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD")
    incomplete = []
    for rank_variable, size_variables in _METHODS.get(method.lower(), _OTHER_METHOD):
        size_variable = next(filter(_is_set, size_variables), size_variables[0])
        rank, size = _core._option(rank_variable), _core._option(size_variable)
        if rank >= 0 and size > 0:
            if rank >= size:
                raise RuntimeError(
                    f"{rank_variable} is {rank}, but {size_variable} is {size}: "
                    f"ranks are numbered from 0 to {size - 1}"
                )
            return rank, size
        if _is_set(rank_variable) or _is_set(size_variable):
            incomplete.append(f"{_shown(rank_variable)} but {_shown(size_variable)}")
    tried = "; ".join(incomplete) or (
        "none of the variables of torchrun, mpiexec or torchcomms is set "
        "(RANK and WORLD_SIZE, for one)"
    )
    raise RuntimeError(f"Unable to determine rank and size: {tried}")


def _options(abort_process, timeout, is_high_priority_stream, store, hints):
    options = CommOptions()
    if abort_process is not None:
        options.abort_process_on_timeout_or_error = abort_process
    if timeout is not None:
        options.timeout = timeout
    options.store = store
    if hints is not None:
        options.hints = hints
    if is_high_priority_stream is not None:
        word = "true" if is_high_priority_stream else "false"
        options.hints = {"is_high_priority_stream": word, **options.hints}
    return options


def new_comm(
    backend: str,
    device: torch.device | str,
    name: str,
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Store | None = None,
    enable_reconfigure: bool = False,
    hints: dict[str, str] | None = None,
) -> _core.TorchComm:
    """Makes a communicator of all ranks; every rank calls it.

    Rank and size come from the environment: the variables of torchcomms, mpiexec or
    torchrun, in that order. The ranks find each other by `store`, any store of
    torch.distributed, which may be dropped afterwards; without one, by a TCPStore at
    MASTER_ADDR and MASTER_PORT that rank 0 hosts. A single rank needs neither.

    Args:
        backend: `ncclx` or `torchcomms` (on a CPU device: shared memory), `gloo`
            (torch's own), or `fake` (moves nothing; always one rank), or a name that
            another package offers.
        device: the torch.device whose tensors the communicator takes.
        name: appears in errors and logs.
        abort_process_on_timeout_or_error: kept for GPU backends; a backend on a CPU
            device raises instead.
        timeout: of the start-up and of each operation, a timedelta.
        is_high_priority_stream: for GPU backends.
        store: see above.
        enable_reconfigure: makes a communicator without ranks, and without looking at
            the environment or the store; its `reconfigure()` gives it ranks.
        hints: a dict of strings for the backend; unknown ones are ignored, with one
            warning in the log.

    Raises:
        ModuleNotFoundError: no backend of this name is installed.
        RuntimeError: rank and size are missing or contradict each other, or the ranks
            did not find each other within the timeout.
    """
    import torch

    from torchcomms._c10d import load_shim
    from torchcomms._metaclass import adopt

    adopt()
    load_shim()
    if not _core._is_backend_registered(backend):
        try:
            _load_backend(backend)
        except Exception:
            # A module that registers its name and then fails has done what it is for.
            if not _core._is_backend_registered(backend):
                raise
    device = torch.device(device)
    alone = enable_reconfigure or _core._is_solitary(backend)
    rank, size = (0, 1) if alone else _rank_and_size()
    options = _options(
        abort_process_on_timeout_or_error,
        timeout,
        is_high_priority_stream,
        store,
        hints,
    )
    adapter = None
    if size > 1:
        from torchcomms._store import Adapter, open_master_store

        adapter = Adapter(
            store,
            lambda: open_master_store(rank, options.timeout),
            options.timeout.total_seconds(),
        )
    try:
        return _core._new_comm(
            backend,
            name,
            device.type,
            device.index,
            rank,
            size,
            options.timeout,
            options.abort_process_on_timeout_or_error,
            adapter,
            options.hints,
            enable_reconfigure,
        )
    finally:
        if adapter is not None:
            adapter.close()
