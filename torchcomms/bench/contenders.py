# SPDX-License-Identifier: BSD-3-Clause
"""Who is measured: each turns a case and one place of it into a call."""

from functools import partial

import torch

from torchcomms import ReduceOp
from torchcomms.bench.cases import ROOT


def ping_pong(rank, send, recv):
    """One message there and one back; rank 1 answers with its own."""

    def first():
        send()
        recv()

    def second():
        recv()
        send()

    return first if rank == 0 else second


class Ours:
    """The object API of torchcomms."""

    may_refuse = False

    def __init__(self, comm, name="torchcomms"):
        self.comm = comm
        self.name = name
        self.version = None  # stands in the head of the report

    def bind(self, case, place):
        return getattr(self, "_" + case.operation.name)(case, place)

    def _all_reduce(self, case, place):
        return partial(self.comm.all_reduce, place.output, ReduceOp.SUM, False)

    def _reduce(self, case, place):
        return partial(self.comm.reduce, place.output, ROOT, ReduceOp.SUM, False)

    def _broadcast(self, case, place):
        return partial(self.comm.broadcast, place.output, ROOT, False)

    def _all_gather(self, case, place):
        return partial(self.comm.all_gather_single, place.output, place.input, False)

    def _reduce_scatter(self, case, place):
        call = self.comm.reduce_scatter_single
        return partial(call, place.output, place.input, ReduceOp.SUM, False)

    def _all_to_all(self, case, place):
        return partial(self.comm.all_to_all_single, place.output, place.input, False)

    def _gather(self, case, place):
        return partial(self.comm.gather_single, place.output, place.input, ROOT, False)

    def _scatter(self, case, place):
        parts = list(place.input.chunk(case.ranks)) if case.rank == ROOT else []
        return partial(self.comm.scatter, place.output, parts, ROOT, False)

    def _ping_pong(self, case, place):
        peer = 1 - case.rank
        send = partial(self.comm.send, place.input, peer, False)
        recv = partial(self.comm.recv, place.output, peer, False)
        return ping_pong(case.rank, send, recv)

    def _barrier(self, *_):
        return partial(self.comm.barrier, False)

    def close(self):
        self.comm.finalize()


class C10d:
    """torch.distributed with one of its backends."""

    may_refuse = True  # gloo has no bfloat16 in some builds of torch, for one

    def __init__(self, backend, store, rank, ranks):
        import torch.distributed as dist

        self.name = backend
        self.version = None  # that of torch
        self.dist = dist
        store = dist.PrefixStore(f"bench/{backend}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)

    def bind(self, case, place):
        return getattr(self, "_" + case.operation.name)(case, place)

    def _all_reduce(self, case, place):
        return partial(self.dist.all_reduce, place.output)

    def _reduce(self, case, place):
        return partial(self.dist.reduce, place.output, ROOT)

    def _broadcast(self, case, place):
        return partial(self.dist.broadcast, place.output, ROOT)

    def _all_gather(self, case, place):
        # The older name is deprecated from torch 2.13 on and warns.
        call = getattr(self.dist, "all_gather_single", self.dist.all_gather_into_tensor)
        return partial(call, place.output, place.input)

    def _reduce_scatter(self, case, place):
        call = getattr(
            self.dist, "reduce_scatter_single", self.dist.reduce_scatter_tensor
        )
        return partial(call, place.output, place.input)

    def _all_to_all(self, case, place):
        return partial(self.dist.all_to_all_single, place.output, place.input)

    def _gather(self, case, place):
        at_root = case.rank == ROOT
        parts = list(place.output.chunk(case.ranks)) if at_root else None
        return partial(self.dist.gather, place.input, parts, ROOT)

    def _scatter(self, case, place):
        parts = list(place.input.chunk(case.ranks)) if case.rank == ROOT else None
        return partial(self.dist.scatter, place.output, parts, ROOT)

    def _ping_pong(self, case, place):
        peer = 1 - case.rank
        send = partial(self.dist.send, place.input, peer)
        recv = partial(self.dist.recv, place.output, peer)
        return ping_pong(case.rank, send, recv)

    def _barrier(self, *_):
        return self.dist.barrier

    def close(self):
        self.dist.destroy_process_group()


class Agreement:
    """Small numbers that the ranks must agree on between measurements."""

    def __init__(self, comm):
        self.comm = comm

    def _reduced(self, values, op):
        tensor = torch.tensor(values, dtype=torch.float64)
        self.comm.all_reduce(tensor, op, False)
        return tensor.tolist()

    def largest(self, values):
        return self._reduced(values, ReduceOp.MAX)

    def all_true(self, value):
        return self._reduced([float(value)], ReduceOp.MIN) == [1.0]

    def barrier(self):
        self.comm.barrier(False)
