# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5: what is refused before anything is sent, with the same words everywhere."""

import torch

import torchcomms
from contract.support import SIZE, raises

SUM, AVG, BAND = (getattr(torchcomms.ReduceOp, op) for op in ("SUM", "AVG", "BAND"))
PREMUL = torchcomms.ReduceOp.PREMUL_SUM(2.0)


def refusals(comm, rank):
    """(text, call) of calls that one rank makes and no other."""
    t = torch.ones(4)
    lists = [torch.ones(4) for _ in range(SIZE)]
    short = lists[:-1]
    odd = [*short, torch.ones(5)]
    return [
        ("dst must be in range [0, 4), but got 4", lambda: comm.send(t, 4, False)),
        ("src must be in range [0, 4), but got -2", lambda: comm.recv(t, -2, False)),
        ("root must be in range [0, 4), but got 7", lambda: comm.broadcast(t, 7, True)),
        ("Cannot send to self", lambda: comm.send(t, rank, False)),
        ("Cannot recv from self", lambda: comm.recv(t, rank, True)),
        (
            "must be contiguous",
            lambda: comm.all_reduce(torch.ones(4, 4).t(), SUM, False),
        ),
        ("has 3 entries", lambda: comm.all_gather(short, t, False)),
        ("has 5 elements, expected 4", lambda: comm.all_gather(odd, t, False)),
        (
            "has dtype",
            lambda: comm.all_gather_single(torch.ones(16, dtype=torch.int8), t, False),
        ),
        (
            "expected 16",
            lambda: comm.all_gather_single(torch.ones(15), t, False),
        ),
        (
            "Cannot use ReduceOp.BAND with non-integral dtype",
            lambda: comm.all_reduce(t, BAND, False),
        ),
        (
            "Cannot use ReduceOp.AVG with dtype bool",
            lambda: comm.all_reduce(torch.ones(4, dtype=torch.bool), AVG, False),
        ),
        (
            "Cannot use ReduceOp.PREMUL_SUM with dtype int32",
            lambda: comm.all_reduce(torch.ones(4, dtype=torch.int32), PREMUL, False),
        ),
        (
            "Cannot issue empty batch operation",
            lambda: comm.batch_op_create().issue(False),
        ),
        (
            "has 3 entries",
            lambda: comm.all_to_all_v_single(t, t, [1, 1, 1], [1] * 4, False),
        ),
        (
            "sums to 5",
            lambda: comm.all_to_all_v_single(t, t.clone(), [1] * 4, [2, 1, 1, 1], True),
        ),
    ]


def refused(me, backend):
    comm = me.comm(backend=backend)
    for turn, (text, call) in enumerate(refusals(comm, me.rank)):
        if turn % SIZE == me.rank:
            with raises(text):
                call()
    tensor = torch.ones(4)
    comm.all_reduce(tensor, SUM, False)
    assert tensor.tolist() == [SIZE] * 4


def test_refused_on_the_rank_that_gave_it(ranks, backend):
    ranks(SIZE).run(refused, backend)


def optional(me, backend):
    comm = me.comm(backend=backend)
    if not comm.is_abort_supported():
        with raises("abort not implemented for communicator"):
            comm.abort()
    return comm.is_abort_supported()


def test_optional_parts(ranks, backend):
    assert ranks(SIZE).run(optional, backend) == [backend != "gloo"] * SIZE
