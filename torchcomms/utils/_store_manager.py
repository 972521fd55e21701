# SPDX-License-Identifier: BSD-3-Clause
"""Stores of torch.distributed for whoever needs one of its own."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from torchcomms import _core
from torchcomms._bootstrap import _rank_and_size
from torchcomms._store import open_master_store

if TYPE_CHECKING:
    from torch.distributed import Store

_DEFAULT_TIMEOUT = timedelta(seconds=60)
_PORT_KEY = "dup_store_port"


def _create_prefix_store(prefix: str, timeout: timedelta = _DEFAULT_TIMEOUT) -> Store:
    """The TCPStore at MASTER_ADDR and MASTER_PORT, hosted by rank 0, under a prefix.

    Rank and size come from the environment, as in `new_comm`. One store for a
    process: it lasts as long as the process does.
    """
    from torch._C._distributed_c10d import PrefixStore

    rank, _ = _rank_and_size()
    return PrefixStore(prefix, open_master_store(rank, timeout))


def _dup_prefix_store(
    prefix: str, bootstrap_store: Store, timeout: timedelta = _DEFAULT_TIMEOUT
) -> Store:
    """A store of its own, under a prefix, on which all ranks agree by another one.

    Rank 0 hosts it on a free port of MASTER_ADDR (this host's name, where that is not
    set) and publishes the port in `bootstrap_store`, which may go afterwards. What
    rank 0 gets hosts the store: it lasts as long as that object does.
    """
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    rank, _ = _rank_and_size()
    agreed = PrefixStore(prefix, bootstrap_store)
    address = _core._option("MASTER_ADDR")
    deadline = time.monotonic() + timeout.total_seconds()
    if rank == 0:
        store = TCPStore(
            address or socket.gethostname(),
            0,
            None,
            True,
            timeout,
            wait_for_workers=False,
        )
        agreed.set(_PORT_KEY, f"{address or socket.gethostname()}:{store.port}")
    else:
        agreed.wait([_PORT_KEY], timeout)
        host, _, port = agreed.get(_PORT_KEY).decode().rpartition(":")
        left = max(deadline - time.monotonic(), 0.1)
        store = TCPStore(
            host,
            int(port),
            None,
            False,
            timedelta(seconds=left),
            wait_for_workers=False,
        )
        store.set_timeout(timeout)
    return PrefixStore(prefix, store)
