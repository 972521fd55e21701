# SPDX-License-Identifier: BSD-3-Clause
"""Who is measured: each turns a case into a call without arguments."""

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

    def bind(self, case):
        return getattr(self, "_" + case.operation.name)(case)

    def _all_reduce(self, case):
        return partial(self.comm.all_reduce, case.output, ReduceOp.SUM, False)

    def _reduce(self, case):
        return partial(self.comm.reduce, case.output, ROOT, ReduceOp.SUM, False)

    def _broadcast(self, case):
        return partial(self.comm.broadcast, case.output, ROOT, False)

    def _all_gather(self, case):
        return partial(self.comm.all_gather_single, case.output, case.input, False)

    def _reduce_scatter(self, case):
        call = self.comm.reduce_scatter_single
        return partial(call, case.output, case.input, ReduceOp.SUM, False)

    def _all_to_all(self, case):
        return partial(self.comm.all_to_all_single, case.output, case.input, False)

    def _gather(self, case):
        return partial(self.comm.gather_single, case.output, case.input, ROOT, False)

    def _scatter(self, case):
        parts = list(case.input.chunk(case.ranks)) if case.rank == ROOT else []
        return partial(self.comm.scatter, case.output, parts, ROOT, False)

    def _ping_pong(self, case):
        peer = 1 - case.rank
        send = partial(self.comm.send, case.input, peer, False)
        recv = partial(self.comm.recv, case.output, peer, False)
        return ping_pong(case.rank, send, recv)

    def _barrier(self, case):
        return partial(self.comm.barrier, False)

    def close(self):
        self.comm.finalize()


class C10d:
    """torch.distributed with one of its backends."""

    may_refuse = True  # gloo has no bfloat16 in some builds of torch, for one

    def __init__(self, backend, store, rank, ranks):
        import torch.distributed as dist

        self.name = backend
        self.dist = dist
        store = dist.PrefixStore(f"bench/{backend}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)

    def bind(self, case):
        return getattr(self, "_" + case.operation.name)(case)

    def _all_reduce(self, case):
        return partial(self.dist.all_reduce, case.output)

    def _reduce(self, case):
        return partial(self.dist.reduce, case.output, ROOT)

    def _broadcast(self, case):
        return partial(self.dist.broadcast, case.output, ROOT)

    def _all_gather(self, case):
        # The older name is deprecated from torch 2.13 on and warns.
        call = getattr(self.dist, "all_gather_single", self.dist.all_gather_into_tensor)
        return partial(call, case.output, case.input)

    def _reduce_scatter(self, case):
        call = getattr(
            self.dist, "reduce_scatter_single", self.dist.reduce_scatter_tensor
        )
        return partial(call, case.output, case.input)

    def _all_to_all(self, case):
        return partial(self.dist.all_to_all_single, case.output, case.input)

    def _gather(self, case):
        at_root = case.rank == ROOT
        parts = list(case.output.chunk(case.ranks)) if at_root else None
        return partial(self.dist.gather, case.input, parts, ROOT)

    def _scatter(self, case):
        parts = list(case.input.chunk(case.ranks)) if case.rank == ROOT else None
        return partial(self.dist.scatter, case.output, parts, ROOT)

    def _ping_pong(self, case):
        peer = 1 - case.rank
        send = partial(self.dist.send, case.input, peer)
        recv = partial(self.dist.recv, case.output, peer)
        return ping_pong(case.rank, send, recv)

    def _barrier(self, case):
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
