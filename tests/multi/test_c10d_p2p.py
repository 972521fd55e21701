# SPDX-License-Identifier: BSD-3-Clause
"""Point-to-point of torch.distributed by name: tags, any source, batches, barriers."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import world


def ring(me):
    with world(me):
        right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
        for count in (0, 1, 5000, 300_000):
            tensor = torch.full((count,), float(me.rank))
            received = torch.empty(count)
            work = dist.isend(tensor, right)
            assert dist.recv(received, left) == left
            work.wait()
            assert torch.equal(received, torch.full((count,), float(left)))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ring(ranks, size):
    ranks(size).run(ring)


def tags(me):
    with world(me):
        if me.rank == 0:
            works = [dist.isend(torch.tensor([t]), 1, tag=t) for t in range(5)]
            for work in works:
                work.wait()
            return []
        received = []
        for tag in (3, 1, 4, 0, 2):
            tensor = torch.zeros(1, dtype=torch.int64)
            dist.recv(tensor, 0, tag=tag)
            received.append(tensor.item())
        return received


def test_tags_are_matched(ranks):
    assert ranks(2).run(tags)[1] == [3, 1, 4, 0, 2]


def any_source(me):
    with world(me):
        if me.rank != 0:
            dist.send(torch.full((4,), me.rank), 0)
            return {}
        found = {}
        for _ in range(me.size - 1):
            tensor = torch.zeros(4, dtype=torch.int64)
            source = dist.recv(tensor)
            found[source] = tensor.unique().tolist()
        return found


def test_any_source_tells_the_source(ranks):
    assert ranks(4).run(any_source)[0] == {1: [1], 2: [2], 3: [3]}


def batch(me):
    with world(me):
        others = [r for r in range(me.size) if r != me.rank]
        received = {r: torch.zeros(20_000) for r in others}
        ops = []
        for r in others:
            ops.append(dist.P2POp(dist.irecv, received[r], r))
            ops.append(dist.P2POp(dist.isend, torch.full((20_000,), float(me.rank)), r))
        works = dist.batch_isend_irecv(ops)
        assert len(works) == 1
        for work in works:
            work.wait()
        for r in others:
            assert torch.equal(received[r], torch.full((20_000,), float(r)))
        column = torch.zeros(8, 2)[:, 0]
        tagged = [
            dist.P2POp(dist.isend, torch.full((8,), 7.0), others[0], tag=2),
            dist.P2POp(dist.irecv, column, others[0], tag=2),
        ]
        for work in dist.batch_isend_irecv(tagged):
            work.wait()
        assert torch.equal(column, torch.full((8,), 7.0))


@pytest.mark.parametrize("size", [2])
def test_batches_are_one_work(ranks, size):
    ranks(size).run(batch)


def batch_of_four(me):
    with world(me):
        others = [r for r in range(me.size) if r != me.rank]
        received = {r: torch.zeros(100) for r in others}
        ops = [dist.P2POp(dist.irecv, received[r], r) for r in others]
        sent = torch.full((100,), float(me.rank))
        ops += [dist.P2POp(dist.isend, sent, r) for r in others]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return [received[r].unique().tolist() for r in others]


def test_batch_of_several_peers(ranks):
    found = ranks(4).run(batch_of_four)
    assert found[0] == [[1.0], [2.0], [3.0]]
    assert found[3] == [[0.0], [1.0], [2.0]]


def monitored(me, wait_all):
    with world(me) as group:
        group.monitored_barrier(timedelta(seconds=30))
        text = ""
        if me.rank in (1, 2):
            # Late: they come when rank 0 has given up.
            me.store("signals").wait(["gave up"])
        else:
            try:
                group.monitored_barrier(timedelta(seconds=0.3), wait_all)
            except RuntimeError as error:
                text = str(error)
            if me.rank == 0:
                me.store("signals").set("gave up", "yes")
        return text


@pytest.mark.parametrize(
    ("wait_all", "wanted"),
    [(False, "Rank 1 failed to pass"), (True, "Ranks 1, 2 failed to pass")],
)
def test_monitored_barrier_names_who_is_missing(fresh, wait_all, wanted):
    texts = fresh(3).run(monitored, wait_all)
    assert wanted in texts[0]
    assert "monitoredBarrier in 300 ms" in texts[0]


def no_time(me):
    with world(me) as group:
        if me.rank == 0:
            with pytest.raises(RuntimeError, match="timed out in monitoredBarrier"):
                group.monitored_barrier(timedelta(0))


def test_a_monitored_barrier_without_any_time(ranks):
    ranks(2).run(no_time)
