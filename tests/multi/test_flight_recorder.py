# SPDX-License-Identifier: BSD-3-Clause
"""api.md 17: the record of real jobs, read by torch's own analyser."""

import json
import os
import pickle
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from multi.support.c10d import switched_world
from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook

# torch's analyser knows the names of backends other than NCCL's from 2.13 on.
TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
pytestmark = pytest.mark.skipif(
    TORCH < (2, 13), reason="the analyser of this torch reads records of NCCL only"
)


def all_reduce(comm, count=4, **options):
    return comm.all_reduce(torch.ones(count), ReduceOp.SUM, **options)


def recorded(me, name="test", **options):
    comm = me.comm(name, **options)
    recorder = FlightRecorderHook(isolated=True)
    recorder.register_with_comm(comm)
    return comm, recorder


def dump(me, recorder, folder, include_completed=True):
    os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = os.path.join(folder, f"dump_{me.rank}")
    os.environ["TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME"] = "1"
    try:
        recorder.dump_file(me.rank, include_completed)
    finally:
        del os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"]
        del os.environ["TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME"]


def meet(me, key):
    """All ranks are here; not by an operation that would be recorded."""
    # Its file goes with the last object of all ranks, so that each keeps one.
    me.meeting = getattr(me, "meeting", None) or me.store("meet")
    me.meeting.set(f"{key}/{me.rank}", "here")
    me.meeting.wait([f"{key}/{rank}" for rank in range(me.size)])


def analyse(folder):
    """What torchfrtrace says of the dumps in a folder, and its table of collectives."""
    result = folder / "result"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"),
            *(str(folder), "--prefix", "dump_", "--output", str(result)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    _, database = pickle.loads(result.read_bytes())
    return said, database


def healthy_job(me, folder):
    comm, recorder = recorded(me)
    size, rank = me.size, me.rank
    one = torch.ones(2)
    big = torch.ones(2 * size)
    parts = [torch.ones(2) for _ in range(size)]
    op = ReduceOp.SUM
    all_reduce(comm)
    comm.broadcast(one, 1)
    comm.reduce(one, 0, op)
    comm.all_gather(parts, one)
    comm.all_gather_single(big, one)
    comm.reduce_scatter(one, parts, op)
    comm.reduce_scatter_single(one, big, op)
    uneven = [torch.ones(rank + 1) for _ in range(size)]
    comm.all_to_all([torch.ones(r + 1) for r in range(size)], uneven)
    comm.all_to_all_single(big, big.clone())
    comm.scatter(one, parts if rank == 0 else [], 0)
    comm.gather(parts if rank == 2 else [], one, 2)
    comm.gather_single(big, one, 1)
    comm.barrier()
    child = me.keep(comm.split([0, 2] if rank != 1 else [1], f"child{rank % 2}"))
    all_reduce(child)
    dump(me, recorder, folder)
    return comm.get_size()


def test_a_healthy_job_has_no_errors(ranks, tmp_path):
    assert ranks(3).run(healthy_job, str(tmp_path)) == [3] * 3
    said, database = analyse(tmp_path)
    for sign in ("Not all ranks", "has errors", "mismatch", "cannot decide"):
        assert sign not in said
    assert all(c.pass_check for c in database.collectives)
    assert [c.collective_name for c in database.collectives[:3]] == [
        "ncclx:all_reduce",
        "ncclx:broadcast",
        "ncclx:reduce",
    ]
    # 14 of all three ranks, and one of each child.
    assert len(database.collectives) == 16
    assert sorted(group.size for group in database.groups) == [1, 2, 3]
    child = next(g for g in database.groups if g.size == 2)
    members = {m.global_rank for m in database.memberships if m.group_id == child.id}
    assert members == {0, 2}


def missing_rank(me, folder):
    comm, recorder = recorded(me)
    for _ in range(2):
        all_reduce(comm)
    work = all_reduce(comm, async_op=True) if me.rank != 2 else None
    meet(me, "issued")
    dump(me, recorder, folder)
    meet(me, "dumped")
    if me.rank == 2:
        all_reduce(comm)
    else:
        work.wait()


def test_the_rank_that_did_not_join_is_named(ranks, tmp_path):
    ranks(3).run(missing_rank, str(tmp_path))
    said, database = analyse(tmp_path)
    assert "Not all ranks joining collective, sequence number: 3" in said
    assert "missing ranks: {2}" in said
    assert [c.pass_check for c in database.collectives[:2]] == [True] * 2
    assert database.collectives[2].missing_ranks == {2}
    assert database.collectives[2].collective_state in ("scheduled", "started")


def other_collective(me, folder):
    comm, recorder = recorded(me, abort_process_on_timeout_or_error=False)
    all_reduce(comm)
    failed = False
    try:
        if me.rank == 1:
            comm.broadcast(torch.ones(4), 0)
        else:
            all_reduce(comm)
    except RuntimeError:
        failed = True
    meet(me, "failed")
    dump(me, recorder, folder)
    return failed


def test_the_rank_that_called_another_collective_is_named(ranks, tmp_path):
    assert any(ranks(3).run(other_collective, str(tmp_path)))
    said, database = analyse(tmp_path)
    assert "Collective sequence number: 2 has errors" in said
    assert "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH" in said
    assert "'all_reduce' does not match found collective type: 'broadcast'" in said
    culprits = database.collectives[1].mismatch_collectives
    assert culprits[1].collective_name == "ncclx:broadcast"


def other_size(me, folder):
    comm, recorder = recorded(me, abort_process_on_timeout_or_error=False)
    with pytest.raises(RuntimeError, match="ranks disagree"):
        all_reduce(comm, 3 + me.rank)
    meet(me, "failed")
    dump(me, recorder, folder)


def test_another_size_is_seen(ranks, tmp_path):
    ranks(2).run(other_size, str(tmp_path))
    said, _ = analyse(tmp_path)
    assert "Error type: SIZE_OR_SYNTAX_MISMATCH" in said


def nested(me):
    comm, recorder = recorded(me)
    outer = me.keep(comm.split([2, 1] if me.rank else [0], f"outer{min(me.rank, 1)}"))
    inner = me.keep(outer.split([outer.get_rank()], f"inner{me.rank}"))
    all_reduce(outer)
    all_reduce(inner)
    document = json.loads(recorder.dump_json())
    used = [e["process_group"][0] for e in document["entries"]]
    return {n: c["ranks"] for n, c in document["pg_config"].items()}, used


def test_children_have_global_ranks(ranks):
    everywhere = {"test": "[0,1,2]"}
    results = ranks(3).run(nested)
    assert [config for config, _ in results] == [
        {**everywhere, "outer0": "[0]", "inner0": "[0]"},
        {**everywhere, "outer1": "[2,1]", "inner1": "[1]"},
        {**everywhere, "outer1": "[2,1]", "inner2": "[2]"},
    ]
    for rank, (_, used) in enumerate(results):
        outer = f"outer{min(rank, 1)}"
        assert used == ["test", outer, outer, f"inner{rank}"]


def send_and_receive(me):
    comm, recorder = recorded(me)
    all_reduce(comm)
    if me.rank == 0:
        comm.send(torch.ones(3), 1)
    else:
        comm.recv(torch.ones(3), 0)
    comm.barrier()
    return recorder.dump_json()


def test_build_db_reads_the_json(ranks):
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig

    details = {
        f"rank{rank}": {"rank": rank, "host_name": "here", **json.loads(text)}
        for rank, text in enumerate(ranks(2).run(send_and_receive))
    }
    database = build_db(details, JobConfig().parse_args([]), "2.10")
    assert [(group.desc, group.size) for group in database.groups] == [("ncclx", 2)]
    assert sorted(m.global_rank for m in database.memberships) == [0, 1]
    assert all(c.pass_check for c in database.collectives)
    assert [c.collective_name for c in database.collectives] == [
        "ncclx:all_reduce",
        "ncclx:send 0->1",
        "ncclx:barrier",
    ]


def dump_while_aborting(me, folder):
    comm, recorder = recorded(
        me, timeout=timedelta(seconds=2), abort_process_on_timeout_or_error=False
    )
    comm.register_abort_hook(lambda: dump(me, recorder, folder, False))
    all_reduce(comm)
    if me.rank == 0:
        with pytest.raises(RuntimeError):
            all_reduce(comm, 7)
    meet(me, "failed")


def test_an_abort_hook_can_dump(ranks, tmp_path):
    ranks(2).run(dump_while_aborting, str(tmp_path))
    document = pickle.loads((tmp_path / "dump_0").read_bytes())
    (entry,) = document["entries"]
    assert entry["profiling_name"] == "ncclx:all_reduce"
    assert entry["input_sizes"] == [[7]]
    assert not entry["retired"]
    assert not (tmp_path / "dump_1").exists()


def through_the_switch(me):
    """torch registers the shared recorder at each group it makes."""
    with switched_world(me, "torchcomms"):
        shared = FlightRecorderHook()
        shared.reset()
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0)
        pair = dist.split_group(split_ranks=[[0, 1]])
        dist.all_reduce(torch.ones(2), group=pair)
        document = json.loads(shared.dump_json())
        return [e["profiling_name"] for e in document["entries"]], [
            config["ranks"] for config in document["pg_config"].values()
        ][-1]


def test_the_switch_records_all_groups(fresh):
    names = ["ncclx:all_reduce", "ncclx:broadcast", "ncclx:split", "ncclx:all_reduce"]
    assert fresh(2).run(through_the_switch) == [(names, "[0,1]")] * 2
