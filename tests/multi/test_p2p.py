# SPDX-License-Identifier: BSD-3-Clause
"""api.md 5, 8: Sends, receives and batches between processes, through the object
API."""

import os
import signal
from datetime import timedelta

import pytest
import torch

from multi.support.reference import MOVED

# None, inline, a slot and one more element, several slots, a long stream.
BYTES = [0, 16, 16 * 1024, 16 * 1024 + 16, 80 * 1024, 3 * 1024 * 1024]
SHORT = timedelta(milliseconds=200)


def content(dtype, size, seed):
    raw = (torch.arange(size, dtype=torch.int64) * 7 + seed * 31) % 251
    if dtype is torch.bool:
        raw %= 2
    return raw.to(torch.uint8).view(dtype)


def same(tensor, expected):
    return torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))


def ring(me, dtypes):
    comm = me.comm()
    right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    wrong = []
    for dtype in dtypes:
        for size in BYTES:
            mine = content(dtype, size, me.rank)
            got = torch.zeros(size, dtype=torch.uint8).view(dtype)
            if me.rank % 2 == 0:
                comm.send(mine, right, False)
                comm.recv(got, left, False)
            else:
                comm.recv(got, left, False)
                comm.send(mine, right, False)
            if not same(got, content(dtype, size, left)):
                wrong.append(("sync", dtype, size))
            got.view(torch.uint8).zero_()
            works = [comm.recv(got, left, True), comm.send(mine, right, True)]
            for work in works:
                work.wait()
            if not same(got, content(dtype, size, left)):
                wrong.append(("async", dtype, size))
    return wrong


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ring_of_every_dtype(ranks, size):
    assert ranks(size).run(ring, MOVED) == [[]] * size


def exchange(me, rounds):
    comm = me.comm()
    others = [r for r in range(me.size) if r != me.rank]
    right = True
    for i in range(rounds):
        batch = comm.batch_op_create()
        got = {}
        for r in others:
            for size in BYTES:
                batch.send(content(torch.uint8, size, 5 * me.rank + r), r)
                got[r, size] = torch.zeros(size, dtype=torch.uint8)
                batch.recv(got[r, size], r)
        work = batch.issue(i % 2 == 0)
        if i % 2 == 0:
            comm.barrier(False)
            work.wait()
        for (r, size), tensor in got.items():
            right &= same(tensor, content(torch.uint8, size, 5 * r + me.rank))
    return right


@pytest.mark.parametrize("size", [2, 3, 4])
def test_batches_of_everybody_with_everybody(ranks, size):
    assert ranks(size).run(exchange, 6) == [True] * size


def recv_too_late(me):
    comm = me.comm()
    tensor = torch.zeros(8)
    text = ""
    if me.rank == 0:
        with pytest.raises(RuntimeError) as caught:
            comm.recv(tensor, 1, False, timeout=SHORT)
        text = str(caught.value)
    comm.barrier(False)
    if me.rank == 1:
        comm.send(torch.full((8,), 3.0), 0, False)
    elif me.rank == 0:
        comm.recv(tensor, 1, False)
    return text, tensor.tolist()


def test_a_recv_that_times_out_fails_alone(ranks):
    (text, tensor), *_ = ranks(3).run(recv_too_late)
    assert text.startswith(
        "recv from rank 1 tag 0 timed out after 0.200 s: nothing has"
    )
    assert tensor == [3.0] * 8


def send_too_late(me):
    comm = me.comm()
    large = torch.full((1 << 20,), 1.0)
    texts = []
    if me.rank == 0:
        with pytest.raises(RuntimeError) as caught:
            comm.send(large, 1, False, timeout=SHORT)
        texts.append(str(caught.value))
    comm.barrier(False)
    if me.rank == 0:
        comm.send(large + 1, 1, False)
    elif me.rank == 1:
        with pytest.raises(RuntimeError) as caught:
            comm.recv(large, 0, False)
        texts.append(str(caught.value))
        comm.recv(large, 0, False)
        texts.append(large.unique().tolist())
    return texts


def test_a_send_that_times_out_fails_alone_on_both_sides(ranks):
    (sent,), (received, values), _ = ranks(3).run(send_too_late)
    assert "send of 4194304 bytes to rank 1 tag 0 timed out after 0.200 s" in sent
    assert "was not received" in sent
    assert "rank 0 gave its send up" in received
    assert values == [2.0]


def disagree(me, count):
    comm = me.comm()
    text = ""
    try:
        if me.rank == 0:
            comm.send(torch.zeros(count), 1, False)
        else:
            comm.recv(torch.zeros(count, dtype=torch.int32), 0, False)
    except RuntimeError as error:
        text = str(error)
    comm.barrier(False)
    return text


@pytest.mark.parametrize(("count", "eager"), [(5, True), (50000, False)])
def test_a_mismatch_names_both_sides(ranks, count, eager):
    sender, receiver = ranks(2).run(disagree, count)
    assert f"recv of {count} int32 from rank 0" in receiver
    assert f"rank 0 sent {count} float32" in receiver
    if eager:
        assert sender == ""
    else:
        assert f"send of {count} float32 to rank 1" in sender
        assert f"rank 1 receives {count} int32" in sender


def recv_for_ever(comm, tensor):
    while True:
        comm.recv(tensor, 1, False)


def die_in_the_middle(me):
    comm = me.comm()
    large = torch.zeros(64 << 20, dtype=torch.uint8)
    if me.rank == 1:
        works = [comm.send(large, 0, True), comm.recv(large.clone(), 0, True)]
        works.append(comm.barrier(True))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError) as caught:
        recv_for_ever(comm, large)
    return str(caught.value)


def test_a_peer_killed_in_the_middle_is_named(fresh):
    pool = fresh(2)
    pool.start(die_in_the_middle)
    survivor, killed = pool.finish()
    assert killed.exit == -signal.SIGKILL
    text = survivor.value
    assert f"rank 1 (pid {pool.workers[1].pid}) died in " in text
