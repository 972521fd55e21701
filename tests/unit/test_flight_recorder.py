# SPDX-License-Identifier: BSD-3-Clause
"""api.md 17: the flight recorder, with the fake backend and with ranks as threads."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook
from torchcomms.hooks.fr import health
from torchcomms.hooks.fr import recorder as shared_ring
from unit.thread_ranks import leave, on_all

FIELDS = {
    "record_id": int,
    "pg_id": int,
    "process_group": list,
    "collective_seq_id": int,
    "p2p_seq_id": int,
    "op_id": int,
    "profiling_name": str,
    "thread_id": str,
    "thread_name": str,
    "time_created_ns": int,
    "duration_ms": float,
    "input_sizes": list,
    "output_sizes": list,
    "input_dtypes": list,
    "output_dtypes": list,
    "state": str,
    "time_discovered_started_ns": int,
    "time_discovered_completed_ns": int,
    "retired": bool,
    "timeout_ms": int,
    "is_p2p": bool,
}


@pytest.fixture
def recorder(fake):
    made = FlightRecorderHook(max_entries=100, isolated=True)
    made.register_with_comm(fake)
    return made


@pytest.fixture
def new_shared(monkeypatch):
    """A process has one shared ring; the test gets one that nobody has used."""
    monkeypatch.setattr(shared_ring, "_shared", None)


def document(recorder, **options):
    return json.loads(recorder.dump_json(**options))


def entries(recorder, **options):
    return document(recorder, **options).get("entries", [])


def reduce_some(comm, count):
    for _ in range(count):
        comm.all_reduce(torch.ones(2), ReduceOp.SUM)


def test_an_argument_that_is_wrong_is_refused(fake):
    with pytest.raises(ValueError, match="max_entries .* at least 1, but got 0"):
        FlightRecorderHook(max_entries=0, isolated=True)
    with pytest.raises(TypeError, match="comm must be a torchcomms.TorchComm"):
        FlightRecorderHook(isolated=True).register_with_comm("main")


def test_names_of_the_class():
    from torchcomms._comms.hooks.fr import FlightRecorderHook as of_the_extension

    assert of_the_extension is FlightRecorderHook
    assert torchcomms._comms.hooks.fr.FlightRecorderHook is FlightRecorderHook
    assert FlightRecorderHook.__module__ == "torchcomms.hooks"


def test_size_counts_entries_since_the_last_reset(fake):
    recorder = FlightRecorderHook(max_entries=4, isolated=True)
    assert not recorder.is_enabled()
    recorder.register_with_comm(fake)
    assert recorder.is_enabled()
    assert recorder.size() == len(recorder) == 0
    reduce_some(fake, 3)
    assert recorder.size() == len(recorder) == 3
    reduce_some(fake, 3)
    assert recorder.size() == len(recorder) == 4
    recorder.reset()
    assert recorder.size() == len(recorder) == 0
    reduce_some(fake, 1)
    assert recorder.size() == 1


def test_the_ring_keeps_the_newest_oldest_first(fake):
    recorder = FlightRecorderHook(max_entries=4, isolated=True)
    recorder.register_with_comm(fake)
    reduce_some(fake, 10)
    found = entries(recorder)
    assert [e["record_id"] for e in found] == [6, 7, 8, 9]
    for key in ("op_id", "time_created_ns", "collective_seq_id"):
        assert [e[key] for e in found] == sorted(e[key] for e in found)


def test_record_ids_restart_and_sequence_numbers_go_on(fake, recorder):
    sequence = []
    for count in (1, 2, 3):
        reduce_some(fake, count)
        found = entries(recorder)
        assert [e["record_id"] for e in found] == list(range(count))
        sequence += [e["collective_seq_id"] for e in found]
        recorder.reset()
    assert sequence == list(range(1, 7))


def test_a_recorder_may_come_late_and_leaves_op_ids_alone(fake):
    """The ring is indexed by its own counter, and no counter of others is reset."""
    early = FlightRecorderHook(max_entries=8, isolated=True)
    early.register_with_comm(fake)
    reduce_some(fake, 5)
    late = FlightRecorderHook(max_entries=2, isolated=True)
    late.register_with_comm(fake)
    reduce_some(fake, 2)
    ids = [e["op_id"] for e in entries(early)]
    assert ids == sorted(set(ids))
    assert [e["op_id"] for e in entries(late)] == ids[-2:]
    assert [e["record_id"] for e in entries(late)] == [0, 1]


def test_the_document(fake, recorder):
    empty = document(recorder)
    assert "entries" not in empty
    assert empty["version"] == "2.10"
    assert isinstance(empty["comm_lib_version"], str)
    assert empty["pg_config"] == {
        "main": {"name": "main", "desc": "fake", "ranks": "[0,1,2]"}
    }
    assert isinstance(empty["pg_status"], dict)
    reduce_some(fake, 1)
    (entry,) = entries(recorder)
    assert {key: type(value) for key, value in entry.items()} == FIELDS
    assert entry["process_group"] == ["main", "fake"]
    assert entry["profiling_name"] == "fake:all_reduce"
    assert entry["p2p_seq_id"] == 0
    assert entry["is_p2p"] is False
    assert entry["retired"] is True
    assert entry["state"] == "completed"
    assert entry["timeout_ms"] == 600_000
    assert entry["duration_ms"] > 0


def calls(comm):
    """Operation, call, and the shapes of inputs and outputs as they are recorded."""
    one, three = torch.zeros(4, 5), [torch.zeros(4, 5) for _ in range(3)]
    big = torch.zeros(12, 5)
    uneven, others = ([torch.zeros(n) for n in (1, 2, 3)] for _ in range(2))
    op = ReduceOp.SUM
    yield "send 1->0", lambda: comm.send(one, 0), [[4, 5]], [[4, 5]]
    yield "recv 1<-2", lambda: comm.recv(one, 2), [], [[4, 5]]
    yield "broadcast", lambda: comm.broadcast(one, 0), [[4, 5]], [[4, 5]]
    yield "all_reduce", lambda: comm.all_reduce(one, op), [[4, 5]], [[4, 5]]
    yield "reduce", lambda: comm.reduce(one, 0, op), [[4, 5]], [[4, 5]]
    yield "all_gather", lambda: comm.all_gather(three, one), [[4, 5]], [[3, 4, 5]]
    yield (
        "all_gather_v",
        lambda: comm.all_gather_v(uneven, others[1]),
        [[2]],
        [[1], [2], [3]],
    )
    yield (
        "all_gather_single",
        lambda: comm.all_gather_single(big, one),
        [[4, 5]],
        [[12, 5]],
    )
    yield (
        "reduce_scatter",
        lambda: comm.reduce_scatter(one, three, op),
        [[3, 4, 5]],
        [[4, 5]],
    )
    yield (
        "reduce_scatter_single",
        lambda: comm.reduce_scatter_single(one, big, op),
        [[12, 5]],
        [[4, 5]],
    )
    yield "all_to_all", lambda: comm.all_to_all(uneven, others), [[6]], [[6]]
    yield "barrier", lambda: comm.barrier(), [], []
    yield "scatter", lambda: comm.scatter(one, [], 0), [], [[4, 5]]
    yield "gather", lambda: comm.gather([], one, 0), [[4, 5]], []
    yield "gather", lambda: comm.gather_single(big, one, 1), [[4, 5]], [[12, 5]]


def test_shapes_and_names_of_each_operation(fake, recorder):
    expected = []
    for name, call, inputs, outputs in calls(fake):
        call()
        expected.append((f"fake:{name}", inputs, outputs))
    assert [
        (e["profiling_name"], e["input_sizes"], e["output_sizes"])
        for e in entries(recorder)
    ] == expected


def test_dtypes(fake, recorder):
    names = {
        torch.float32: "Float",
        torch.float64: "Double",
        torch.float16: "Half",
        torch.bfloat16: "BFloat16",
        torch.int64: "Long",
        torch.int32: "Int",
        torch.uint8: "Byte",
        torch.bool: "Bool",
        torch.complex64: "ComplexFloat",
        torch.float8_e5m2: "Float8_e5m2",
    }
    for dtype in names:
        fake.broadcast(torch.zeros(2, dtype=dtype), 0)
    for name, entry in zip(names.values(), entries(recorder), strict=True):
        assert entry["input_dtypes"] == entry["output_dtypes"] == [name]


def test_what_has_no_tensors_is_recorded_too(fake, recorder):
    fake.barrier()
    batch = fake.batch_op_create()
    batch.send(torch.ones(1), 0)
    batch.issue()
    assert fake.split([], "nobody") is None
    child = fake.split([1, 2], "child")
    child.finalize()
    found = entries(recorder)
    assert [e["profiling_name"] for e in found] == [
        "fake:barrier",
        "fake:coalesced",
        "fake:split",
        "fake:split",
    ]
    assert all(e["retired"] and e["state"] == "completed" for e in found)
    assert all(e["input_dtypes"] == e["output_dtypes"] == [] for e in found)


def test_point_to_point_leaves_the_numbers_of_collectives_alone(fake, recorder):
    """Not all ranks take part in it, and the others count on."""
    reduce_some(fake, 1)
    fake.send(torch.ones(1), 0)
    fake.recv(torch.ones(1), 0)
    reduce_some(fake, 1)
    found = [e["collective_seq_id"] for e in entries(recorder)]
    assert found == [1, -1, -2, 2]


def test_children_are_recorded_with_global_ranks(fake, recorder):
    child = fake.split([2, 1], "child")
    child.all_reduce(torch.ones(1), ReduceOp.SUM)
    config = document(recorder)["pg_config"]
    assert config["child"] == {"name": "child", "desc": "fake", "ranks": "[2,1]"}
    grandchild = child.split([1], "grandchild")
    if grandchild is None:
        # The fake backend decides which rank of its child it is.
        grandchild = child.split([0], "grandchild")
    grandchild.all_reduce(torch.ones(1), ReduceOp.SUM)
    config = document(recorder)["pg_config"]
    assert config["grandchild"]["ranks"] in ("[1]", "[2]")
    names = [e["process_group"][0] for e in entries(recorder)]
    assert names[-1] == "grandchild"
    assert names.count("child") == names.count("main") + 1
    leave([grandchild, child])


def test_finalize_is_not_recorded_and_what_was_stays(fake, recorder):
    reduce_some(fake, 2)
    fake.finalize()
    assert [e["profiling_name"] for e in entries(recorder)] == ["fake:all_reduce"] * 2
    assert "main" in document(recorder)["pg_config"]


def test_finalized_communicators_without_entries_are_forgotten(fake):
    """A process may make communicators without an end."""
    recorder = FlightRecorderHook(max_entries=2, isolated=True)
    recorder.register_with_comm(fake)
    for number in range(5):
        child = fake.split([1], f"child{number}")
        child.barrier()
        child.finalize()
    assert len(document(recorder)["pg_config"]) <= 4


def test_active_only(pair):
    recorder = FlightRecorderHook(max_entries=8, isolated=True)
    recorder.register_with_comm(pair[0])
    on_all(pair, lambda comm: comm.all_reduce(torch.ones(2), ReduceOp.SUM))
    assert "entries" not in document(recorder, include_completed=False)
    work = pair[0].all_reduce(torch.ones(3), ReduceOp.SUM, async_op=True)
    (entry,) = entries(recorder, include_completed=False)
    assert entry["input_sizes"] == [[3]]
    assert entry["retired"] is False
    assert entry["state"] in ("scheduled", "started")
    assert "duration_ms" not in entry
    pair[1].all_reduce(torch.ones(3), ReduceOp.SUM)
    work.wait()
    assert entries(recorder, include_completed=False) == []
    assert [e["state"] for e in entries(recorder)] == ["completed"] * 2
    assert all(e["duration_ms"] > 0 for e in entries(recorder))


def test_an_operation_that_fails_retires_without_being_completed(pair):
    recorder = FlightRecorderHook(max_entries=8, isolated=True)
    recorder.register_with_comm(pair[0])
    work = pair[0].all_reduce(torch.ones(3), ReduceOp.SUM, async_op=True)
    pair[0].abort()
    with pytest.raises(RuntimeError, match="aborted"):
        work.wait()
    with pytest.raises(RuntimeError, match="rank 0 aborted it"):
        pair[1].finalize()
    (entry,) = entries(recorder)
    assert entry["retired"] is True
    assert entry["state"] != "completed"


def test_all_hooks_share_one_ring_and_record_once(fake, new_shared, monkeypatch):
    monkeypatch.setenv("TORCHCOMM_FR_BUFFER_SIZE", "3")
    first, second = FlightRecorderHook(max_entries=1), FlightRecorderHook()
    lone = FlightRecorderHook(isolated=True)
    for recorder in (first, first, second, lone):
        recorder.register_with_comm(fake)
    reduce_some(fake, 2)
    assert first.size() == second.size() == lone.size() == 2
    reduce_some(fake, 2)
    assert first.size() == second.size() == 3
    second.reset()
    assert first.size() == 0
    assert lone.size() == 4


def test_the_size_of_the_shared_ring_may_not_be_nonsense(new_shared, monkeypatch):
    monkeypatch.setenv("TORCHCOMM_FR_BUFFER_SIZE", "many")
    with pytest.raises(RuntimeError, match="TORCHCOMM_FR_BUFFER_SIZE is 'many'"):
        FlightRecorderHook()


def test_a_dump_is_the_json_as_a_pickle(fake, recorder, tmp_path, monkeypatch):
    reduce_some(fake, 1)
    path = tmp_path / "deeper" / "whole_name"
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_TEMP_FILE", str(path))
    monkeypatch.setenv("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", "1")
    assert recorder.dump_file(1) is None
    dumped = pickle.loads(path.read_bytes())
    expected = document(recorder)
    expected["entries"][0]["process_group"] = ("main", "fake")
    assert dumped == expected
    recorder.dump_file(1, include_completed=False)
    assert pickle.loads(path.read_bytes())["entries"] == []
    assert [p.name for p in path.parent.iterdir()] == ["whole_name"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TORCHCOMM_FR_DUMP_TEMP_FILE": "{tmp}/mine_"}, "mine_3"),
        ({"XDG_CACHE_HOME": "{tmp}/xdg"}, "xdg/torch/comm_lib_trace_rank_3"),
        ({"HOME": "{tmp}"}, ".cache/torch/comm_lib_trace_rank_3"),
    ],
)
def test_where_dumps_are_written(variables, expected, tmp_path):
    """Decided by the first dump of a process."""
    program = """
import os
from torchcomms.hooks import FlightRecorderHook
recorder = FlightRecorderHook(isolated=True)
recorder.dump_file(3)
os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = "nowhere"
recorder.dump_file(4)
"""
    given = {name: value.format(tmp=tmp_path) for name, value in variables.items()}
    clean = {
        name: value
        for name, value in os.environ.items()
        if name != "XDG_CACHE_HOME" and not name.startswith("TORCHCOMM_")
    }
    subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **given},
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {expected, f"{expected[:-1]}4"}


class Unready:
    """A communicator before its first reconfigure, which gives it ranks."""

    size = 0

    def __init__(self, like):
        self._like = like

    def get_size(self):
        if self.size == 0:
            raise RuntimeError("not initialized")
        return self.size

    def get_rank(self):
        return self.size - 1

    def __getattr__(self, name):
        return getattr(self._like, name)


def test_ranks_may_come_after_the_registration(fake):
    comm = Unready(fake)
    ring = shared_ring.Recorder(8)
    ring.attach(comm)
    assert ring.document(True)["pg_config"]["main"]["ranks"] == "[]"
    comm.size = 2
    fake.send(torch.ones(1), 0)
    document = ring.document(True)
    assert document["pg_config"]["main"]["ranks"] == "[0,1]"
    assert document["entries"][0]["profiling_name"] == "fake:send 1->0"
    comm.size = 3
    assert ring.document(True)["pg_config"]["main"]["ranks"] == "[0,1,2]"


@pytest.mark.parametrize(
    ("given", "aborts_process", "on_cpu", "slept"),
    [
        ("", True, False, [15.0]),
        ("", True, True, []),
        ("", False, False, []),
        ("250", True, True, [0.25]),
        ("250", False, True, []),
        ("0", True, False, []),
    ],
)
def test_time_for_a_dump_before_an_abort(
    given, aborts_process, on_cpu, slept, monkeypatch
):
    found = []
    monkeypatch.setenv("TORCHCOMM_HEALTH_CHECK_WAIT_MS", given)
    monkeypatch.setattr(health.time, "sleep", found.append)
    health.wait_for_a_dump(aborts_process, on_cpu)
    assert found == slept
