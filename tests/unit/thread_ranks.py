# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of ncclx as threads of one process."""

import threading
from contextlib import closing
from datetime import timedelta

from torch._C._distributed_c10d import HashStore

from torchcomms import _core
from torchcomms._store import Adapter


def _run_all(count, act):
    """act(rank) on a thread for each rank; the results, or the first error."""
    results = [None] * count
    errors = []

    def run(rank):
        try:
            results[rank] = act(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def make_ranks(size, timeout=30.0, name="pair", store=None):
    """Communicators of ranks 0 to size - 1."""
    store = HashStore() if store is None else store

    def make(rank):
        with closing(Adapter(store, None, 60)) as adapter:
            return _core._new_comm(
                backend="ncclx",
                name=name,
                device_type="cpu",
                device_index=None,
                rank=rank,
                size=size,
                timeout=timedelta(seconds=timeout),
                abort_process=True,
                store=adapter,
                hints={},
            )

    return _run_all(size, make)


def make_fake(rank, size, name="main"):
    """A rank among several of the backend that moves nothing: new_comm makes one of
    one rank only."""
    return _core._new_comm(
        backend="fake",
        name=name,
        device_type="cpu",
        device_index=None,
        rank=rank,
        size=size,
        timeout=timedelta(seconds=600),
        abort_process=True,
        store=object(),  # several ranks need one; it is not touched
        hints=None,
    )


def on_all(comms, act):
    """act(comm) on a thread for each communicator."""
    return _run_all(len(comms), lambda rank: act(comms[rank]))


def leave(comms):
    """Finalizes what is not finalized."""
    for comm in comms:
        try:
            comm.finalize()
        except RuntimeError as error:
            if "already finalized" not in str(error):
                raise
