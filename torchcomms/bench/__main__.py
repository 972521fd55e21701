# SPDX-License-Identifier: BSD-3-Clause
"""`python -m torchcomms.bench`; starts the ranks itself where no launcher did."""

import sys
from datetime import timedelta

import torch

import torchcomms
from torchcomms._bootstrap import _rank_and_size
from torchcomms._store import open_master_store
from torchcomms.bench.arguments import parse_arguments
from torchcomms.bench.contenders import C10d
from torchcomms.bench.launch import launch
from torchcomms.bench.session import run

_START_TIMEOUT = timedelta(seconds=60)


def _under_a_launcher():
    try:
        return _rank_and_size()
    except RuntimeError as cause:
        if "none of the variables" in str(cause):
            return None
        raise


def main():
    options, ask = parse_arguments()
    placed = _under_a_launcher()
    if placed is None:
        return launch(options.ranks or 2, sys.argv[1:])
    rank, ranks = placed
    if options.ranks not in (None, ranks):
        ask.error(f"--ranks is {options.ranks}, but the launcher started {ranks}")
    comm = torchcomms.new_comm(options.backend, torch.device("cpu"), name="bench")
    peers = [
        C10d(peer, open_master_store(rank, _START_TIMEOUT), rank, ranks)
        for peer in options.against
    ]
    return run(options, comm, peers)


if __name__ == "__main__":
    sys.exit(main())
