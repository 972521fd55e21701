# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1, 4: new_comm: rank and size, stores, and backends by name."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import (
    FileStore,
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)

import torchcomms
from torchcomms._bootstrap import _rank_and_size
from torchcomms._store import Adapter
from unit.thread_ranks import leave, make_ranks, on_all

CPU = torch.device("cpu")
METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"
OWN = {"TORCHCOMM_RANK": "1", "TORCHCOMM_SIZE": "11"}
OMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "12"}
PMI = {"PMI_RANK": "3", "PMI_SIZE": "13"}
PALS = {"PALS_RANKID": "4", "PALS_SIZE": "14"}
RUN = {"RANK": "5", "WORLD_SIZE": "15"}
ALL = {**OWN, **OMPI, **PMI, **PALS, **RUN}


def without(variables, *dropped):
    return {k: v for k, v in variables.items() if k not in {*dropped}}


FOUND = [
    (ALL, (1, 11)),
    (without(ALL, *OWN), (2, 12)),
    ({**PMI, **PALS, **RUN}, (3, 13)),
    ({**PALS, **RUN}, (4, 14)),
    (RUN, (5, 15)),
    ({**RUN, METHOD: "auto"}, (5, 15)),
    ({**without(ALL, *OWN), METHOD: "TorchRun"}, (5, 15)),
    ({**without(ALL, *OWN), METHOD: "mpi"}, (2, 12)),
    ({**PMI, **RUN, METHOD: "MPI"}, (3, 13)),
    ({**without(ALL, *OWN), METHOD: "pals"}, (4, 14)),
    ({**ALL, METHOD: "other"}, (1, 11)),
    ({**ALL, METHOD: "  "}, (1, 11)),
    # where PALS gives no size
    ({"PALS_RANKID": "4", "PMI_SIZE": "21", **RUN, METHOD: "pals"}, (4, 21)),
    ({"PALS_RANKID": "4", "OMPI_COMM_WORLD_SIZE": "22", METHOD: "pals"}, (4, 22)),
    ({"PALS_RANKID": "4", "WORLD_SIZE": "23"}, (4, 23)),
    # rows that do not count
    ({"TORCHCOMM_RANK": "1", **RUN}, (5, 15)),
    ({"TORCHCOMM_RANK": "-1", "TORCHCOMM_SIZE": "4", **RUN}, (5, 15)),
    ({"TORCHCOMM_RANK": "1", "TORCHCOMM_SIZE": "0", **RUN}, (5, 15)),
    ({"TORCHCOMM_RANK": " ", "TORCHCOMM_SIZE": "", **RUN}, (5, 15)),
    ({"RANK": " 5 ", "WORLD_SIZE": "\t15 "}, (5, 15)),
]


@pytest.mark.parametrize(("variables", "expected"), FOUND)
def test_rank_and_size(monkeypatch, variables, expected):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert _rank_and_size() == expected


NOT_FOUND = [
    ({}, "Unable to determine rank and size: none of the variables"),
    ({"RANK": "1"}, "Unable .*: RANK is '1' but WORLD_SIZE is not set"),
    ({"WORLD_SIZE": "2"}, "Unable .*RANK is not set but WORLD_SIZE is '2'"),
    ({"RANK": "-2", "WORLD_SIZE": "2"}, "Unable .*RANK is '-2' but WORLD_SIZE is '2'"),
    ({**RUN, METHOD: "mpi"}, "Unable to determine rank and size"),
    ({**OMPI, METHOD: "torchrun"}, "Unable to determine rank and size"),
    ({**RUN, METHOD: "none"}, "Unable to determine rank and size"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
    ({"PMI_RANK": "7", "PMI_SIZE": "3"}, "PMI_RANK is 7, but PMI_SIZE is 3"),
    ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK.*one"),
    ({"RANK": "0", "WORLD_SIZE": "2.0"}, "WORLD_SIZE.*2.0"),
    ({"TORCHCOMM_RANK": "99999999999999", "TORCHCOMM_SIZE": "1"}, "TORCHCOMM_RANK"),
]


@pytest.mark.parametrize(("variables", "text"), NOT_FOUND)
def test_rank_and_size_are_missing_or_wrong(monkeypatch, variables, text):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeError, match=text):
        torchcomms.new_comm("ncclx", CPU, name="x")


def test_environment_is_read_at_each_call(world):
    """Rank 0 of 1, then of 2, which needs a store, then of 1 again."""
    for size in (1, 2, 1):
        world(0, size)
        if size == 2:
            with pytest.raises(RuntimeError, match="MASTER_ADDR is not set"):
                torchcomms.new_comm("ncclx", CPU, name="x")
        else:
            torchcomms.new_comm("ncclx", CPU, name="x").finalize()


@pytest.mark.parametrize("rank_and_size", [None, (2, 3)])
def test_fake_needs_no_environment(world, rank_and_size):
    """api.md 11: rank 0 of 1, whatever the environment says."""
    if rank_and_size is not None:
        world(*rank_and_size)
    comm = torchcomms.new_comm("fake", CPU, name="x")
    assert (comm.get_rank(), comm.get_size()) == (0, 1)
    child = comm.split([0], "child")
    assert (child.get_backend(), child.get_name()) == ("fake", "child")
    assert (child.get_rank(), child.get_size()) == (0, 1)
    for each in (child, comm):
        each.finalize()


def test_device_as_text(world):
    world(0, 1)
    comm = torchcomms.new_comm("fake", "cpu", name="x")
    assert comm.get_device() == CPU
    comm.finalize()


@pytest.mark.parametrize(
    ("arguments", "exception", "text"),
    [
        ({"device": "meta"}, RuntimeError, "device type 'meta' is not supported"),
        ({"name": 5}, TypeError, "name must be a str, but got int"),
        ({"timeout": 5}, TypeError, "timeout must be a datetime.timedelta"),
        ({"timeout": timedelta(0)}, RuntimeError, "timeout must be positive"),
        ({"hints": {"a": 1}}, TypeError, "a value of hints must be a str"),
        ({"abort_process_on_timeout_or_error": 1}, TypeError, "must be a bool"),
    ],
)
def test_new_comm_refuses(world, arguments, exception, text):
    world(0, 1)
    with pytest.raises(exception, match=text):
        torchcomms.new_comm(
            **{"backend": "fake", "device": CPU, "name": "x", **arguments}
        )


def test_backend_for_another_device(world):
    world(0, 1)
    with pytest.raises(RuntimeError, match="no backend 'ncclx' for device type cuda"):
        torchcomms.new_comm("ncclx", "cuda:0", name="x")


# Backends by entry point --------------------------------------------------------------


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """An installed package that offers two backends; one cannot be imported."""
    info = tmp_path / "offers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[torchcomms.backends]\n"
        "unit-fake = torchcomms._core\n"
        "unit-broken = no_such_one\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_built_backends(distribution):
    assert {"unit-fake", "unit-broken"} <= {*torchcomms.built_backends()}
    assert torchcomms.is_backend_built("unit-fake")
    assert not torchcomms.is_backend_built("unit-absent")
    assert torchcomms._load_backend("unit-fake") is None


@pytest.mark.usefixtures("distribution")
def test_unknown_backends(world):
    world(0, 1)
    with pytest.raises(ModuleNotFoundError, match="failed to find backend 'invalid'"):
        torchcomms.new_comm("invalid", CPU, name="x")
    with pytest.raises(ModuleNotFoundError, match="no_such_one"):
        torchcomms.new_comm("unit-broken", CPU, name="x")
    # loads, but does not register the name
    with pytest.raises(RuntimeError, match="no backend 'unit-fake'"):
        torchcomms.new_comm("unit-fake", CPU, name="x")


def test_is_backend_registered():
    from torchcomms._comms import _is_backend_registered

    assert _is_backend_registered("fake")
    assert not _is_backend_registered("invalid")
    with pytest.raises(TypeError):
        _is_backend_registered(5)


# Stores -------------------------------------------------------------------------------


class PythonStore(Store):
    """The least that a store in Python has."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.values = {}

    def set(self, key, value):
        with self.lock:
            self.values[key] = value

    def get(self, key):
        with self.lock:
            return self.values[key]

    def add(self, key, amount):
        with self.lock:
            value = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(value).encode()
            return value


def tcp_store():
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), False)


STORES = {
    "hash": lambda path: HashStore(),
    "file": lambda path: FileStore(str(path / "store"), 2),
    "tcp": lambda path: tcp_store(),
    "prefix": lambda path: PrefixStore("a", PrefixStore("b", tcp_store())),
    "python": lambda path: PythonStore(),
}


@pytest.mark.parametrize("kind", STORES)
def test_any_store_serves_and_may_go_afterwards(tmp_path, kind):
    store = STORES[kind](tmp_path)
    for name in ("first", "second", "first"):
        comms = make_ranks(2, name=name, store=store)
        tensors = [torch.ones(2), torch.ones(2)]
        on_all(
            comms,
            lambda comm, tensors=tensors: comm.all_reduce(
                tensors[comm.get_rank()], torchcomms.ReduceOp.SUM
            ),
        )
        assert torch.equal(tensors[0], torch.full((2,), 2.0))
        leave(comms)
    comms = make_ranks(2, store=store)
    del store
    on_all(comms, lambda comm: comm.barrier())
    leave(comms)


@pytest.mark.parametrize("kind", STORES)
def test_adapter(tmp_path, kind):
    adapter = Adapter(STORES[kind](tmp_path), None, 60)
    adapter.set("key", b"\x00\xff")
    assert adapter.get("key", 1.0) == b"\x00\xff"
    assert adapter.add("sum", 2) == 2
    assert adapter.add("sum", 3) == 5
    with pytest.raises(RuntimeError) as caught:
        adapter.get("absent", 0.01)
    text = str(caught.value)
    assert text.startswith("store: key 'absent' was not set within 0.01 s in ")
    assert "Store" in text.split(" in ")[-1]
    adapter.close()


def test_store_that_nobody_answers(world):
    """The other rank never comes: an error after the timeout, not a hang."""
    world(1, 2)
    with pytest.raises(RuntimeError, match=r"store: .*key '.*' .*HashStore"):
        torchcomms.new_comm(
            "ncclx",
            CPU,
            name="x",
            store=HashStore(),
            timeout=timedelta(milliseconds=300),
        )


SERVER = """
import sys
from datetime import timedelta
from torch._C._distributed_c10d import TCPStore
store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), False)
print(store.port, flush=True)
sys.stdin.read()
"""


def test_store_whose_server_is_stopped(world):
    """The server lives and says nothing: an error after the timeout, not a hang."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(server.stdout.readline())
        store = TCPStore("127.0.0.1", port, None, False, timedelta(seconds=30), False)
        os.kill(server.pid, signal.SIGSTOP)
        world(1, 2)
        with pytest.raises(
            RuntimeError, match=rf"key '.*' in TCPStore at 127.0.0.1:{port}: no answer"
        ):
            torchcomms.new_comm(
                "ncclx", CPU, name="x", store=store, timeout=timedelta(milliseconds=700)
            )
    finally:
        server.kill()
        server.communicate()


class FailingStore(PythonStore):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def add(self, key, amount):
        raise self.error

    set = get = add


def test_store_that_fails(world):
    world(1, 2)
    with pytest.raises(
        RuntimeError, match=r"store: cannot .* key '.*FailingStore: lost"
    ):
        torchcomms.new_comm("ncclx", CPU, name="x", store=FailingStore(OSError("lost")))


def test_interrupt_in_the_store_goes_through(world):
    world(1, 2)
    with pytest.raises(KeyboardInterrupt):
        torchcomms.new_comm(
            "ncclx", CPU, name="x", store=FailingStore(KeyboardInterrupt())
        )


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_missing_master_is_named(world, monkeypatch, missing):
    world(1, 2)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.delenv(missing)
    with pytest.raises(RuntimeError, match=f"{missing} is not set"):
        torchcomms.new_comm("ncclx", CPU, name="x")


def test_nothing_answers_at_the_master(world, monkeypatch):
    world(1, 2)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    expected = re.escape(
        "store: nothing answers at MASTER_ADDR:MASTER_PORT = 127.0.0.1:1"
    )
    with pytest.raises(RuntimeError, match=expected):
        torchcomms.new_comm("ncclx", CPU, name="x", timeout=timedelta(milliseconds=200))


def test_a_single_rank_needs_no_store(world, monkeypatch):
    world(0, 1)
    monkeypatch.setenv("MASTER_PORT", "0")
    comm = torchcomms.new_comm("ncclx", CPU, name="x")
    comm.barrier()
    comm.finalize()


RANK_PROGRAM = textwrap.dedent(
    """
    import os, sys, torch
    from datetime import timedelta
    from torch._C._distributed_c10d import TCPStore
    import torchcomms
    from torchcomms import _store

    rank = int(os.environ["RANK"])
    if sys.argv[1] == "hosted" and rank == 0:
        mine = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, True,
                        timedelta(seconds=30), False)
    for name in ("one", "two"):
        comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name=name,
                                   timeout=timedelta(seconds=30))
        tensor = torch.ones(2)
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM)
        assert tensor.tolist() == [2.0, 2.0]
        comm.barrier()
        comm.finalize()
    assert len(_store._master_stores) == 1
    """
)


@pytest.mark.parametrize("how", ["own", "hosted", "agent"])
def test_master_store(how):
    """Rank 0 hosts; or is a client of its own store, or of the agent's."""
    agent = tcp_store() if how == "agent" else None
    port = agent.port if agent is not None else free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_PROGRAM, how],
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": ":".join(filter(None, sys.path)),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "TORCHELASTIC_USE_AGENT_STORE": str(how == "agent"),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert outputs == ["", ""]


def free_port():
    """A port that nobody has now; the store's object is gone when it is used."""
    store = tcp_store()
    return store.port
