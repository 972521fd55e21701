# SPDX-License-Identifier: BSD-3-Clause
"""api.md 4: How ranks find each other: stores, launchers, environments."""

import gc
import os
import socket
import subprocess
import sys
import threading

import pytest
import torch
from torch.distributed import HashStore, PrefixStore, Store, TCPStore

import torchcomms

SUM = torchcomms.ReduceOp.SUM
LIMIT_S = 120


def check_sum(comm, count=3):
    size = comm.get_size()
    t = torch.full((count,), comm.get_rank() + 1.0)
    comm.all_reduce(t, SUM, False)
    assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))


def free_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


def as_rank(me):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(me.rank), str(me.size)


def tcp_store(me):
    """Rank 0 hosts it on a port that the system gives and the others are told."""
    if me.rank == 0:
        store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        me.store().set("port", str(store.port))
        return store
    port = int(me.store().get("port"))
    return TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)


class DictStore(Store):
    """The least that a store written in Python has."""

    def __init__(self, inner):
        super().__init__()
        self._inner = inner

    def set(self, key, value):
        self._inner.set(key, value)

    def get(self, key):
        return self._inner.get(key) if self._inner.check([key]) else b""

    def add(self, key, amount):
        return self._inner.add(key, amount)


STORES = {
    "TCPStore": tcp_store,
    "FileStore": lambda me: me.store(),
    "PrefixStore of TCPStore": lambda me: PrefixStore("prefix", tcp_store(me)),
    "PrefixStore of FileStore": lambda me: PrefixStore("prefix", me.store()),
    "Python store": lambda me: DictStore(me.store()),
}


def any_store(me, kind, persistent):
    store = STORES[kind](me)
    hints = {"persistent_store": "true"} if persistent else None
    for name in ("one", "two", "one"):
        comm = me.comm(name, store=store, hints=hints)
        check_sum(comm)
        check_sum(comm, 100_000)
        comm.finalize()
    last = me.comm("last", store=store)
    last.barrier(False)
    del store
    gc.collect()
    check_sum(last)
    child = me.keep(last.split(list(range(me.size)), "child"))
    check_sum(child)
    # The one that hosts it shall not end before the others are through.
    last.barrier(False)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("size", [1, 3])
def test_stores(ranks, size, kind, persistent):
    ranks(size).run(any_store, kind, persistent)


class Announcing(DictStore):
    """Says when it is first used: the environment has been read then."""

    def __init__(self, inner):
        super().__init__(inner)
        self.used = threading.Event()

    def add(self, key, amount):
        self.used.set()
        return super().add(key, amount)


def ranks_as_threads(me):
    """All ranks in one process, by a HashStore."""
    inner = HashStore()
    size = 3
    failures = []

    def be_rank(rank, store):
        try:
            comm = torchcomms.new_comm("ncclx", torch.device("cpu"), "t", store=store)
            assert comm.get_rank() == rank
            for count in (1, 700, 100_000):
                check_sum(comm, count)
                out = [torch.empty(count) for _ in range(size)]
                comm.all_gather(out, torch.full((count,), float(rank)), True).wait()
                assert [o[0].item() for o in out] == [0.0, 1.0, 2.0]
            comm.finalize()
        except BaseException as error:
            failures.append(repr(error))

    threads = []
    for rank in range(size):
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(size)
        store = Announcing(inner)
        threads.append(threading.Thread(target=be_rank, args=(rank, store)))
        threads[-1].start()
        assert store.used.wait(LIMIT_S)
    for thread in threads:
        thread.join()
    assert failures == []


def test_ranks_may_be_threads_with_a_hash_store(ranks):
    ranks(1).run(ranks_as_threads)


def by_environment(me, variables, port):
    names = ["RANK", "WORLD_SIZE"]
    for name in names:
        os.environ.pop(name, None)
    os.environ.update({n: v.format(r=me.rank, n=me.size) for n, v in variables.items()})
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    for name in ("one", "two"):
        comm = me.keep(torchcomms.new_comm("torchcomms", torch.device("cpu"), name))
        assert (comm.get_rank(), comm.get_size()) == (me.rank, me.size)
        check_sum(comm)
    # Hosted by rank 0, whose process ends with the test.
    comm.barrier(False)


RANK, SIZE = "{r}", "{n}"
VARIABLES = {
    "torchrun": {"RANK": RANK, "WORLD_SIZE": SIZE},
    "torchcomms": {"TORCHCOMM_RANK": RANK, "TORCHCOMM_SIZE": SIZE, "RANK": "7"},
    "Open MPI": {
        "OMPI_COMM_WORLD_RANK": RANK,
        "OMPI_COMM_WORLD_SIZE": SIZE,
        "RANK": "0",
        "WORLD_SIZE": "1",
    },
    "PMI": {"PMI_RANK": RANK, "PMI_SIZE": SIZE, "RANK": "0", "WORLD_SIZE": "1"},
    "PALS": {"PALS_RANKID": RANK, "PALS_SIZE": SIZE},
    "PALS, size of torchrun": {"PALS_RANKID": RANK, "WORLD_SIZE": SIZE},
    "torchrun by name": {
        "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD": "TorchRun",
        "RANK": RANK,
        "WORLD_SIZE": SIZE,
        "PMI_RANK": "0",
        "PMI_SIZE": "1",
    },
    "no such method": {
        "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD": "none",
        "TORCHCOMM_RANK": RANK,
        "TORCHCOMM_SIZE": SIZE,
    },
}


@pytest.mark.parametrize("variables", VARIABLES.values(), ids=VARIABLES)
def test_environments_of_launchers(fresh, variables):
    fresh(3).run(by_environment, variables, free_port())


def alone(me):
    """One rank needs no store and no port."""
    as_rank(me)
    os.environ["MASTER_PORT"] = "0"
    check_sum(me.keep(torchcomms.new_comm("ncclx", torch.device("cpu"), "alone")))


def test_one_rank_with_master_port_zero(ranks):
    ranks(1).run(alone)


def occupied_port(me, port):
    """The test itself hosts a TCPStore on MASTER_PORT, as some programs do."""
    as_rank(me)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    store = TCPStore("127.0.0.1", port, None, me.rank == 0, wait_for_workers=False)
    comm = me.keep(torchcomms.new_comm("ncclx", torch.device("cpu"), "main"))
    check_sum(comm)
    comm.barrier(False)
    store.set(f"done{me.rank}", "")


def test_a_port_that_has_a_store_already(fresh):
    fresh(2).run(occupied_port, free_port())


SCRIPT = """
import sys, torch, torchcomms
comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="main")
other = torchcomms.new_comm("ncclx", torch.device("cpu"), name="other")
for c in (comm, other):
    t = torch.full((5,), c.get_rank() + 1.0)
    c.all_reduce(t, torchcomms.ReduceOp.SUM, False)
    # One write: print would make two of it, which the ranks mix.
    sys.stdout.write(f"sum {t[0].item()}\\n")
    c.finalize()
"""


def launch(tmp_path, zygote, *arguments):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments, str(script)],
        env=zygote.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize("kind", ["standalone", "static"])
def test_torchrun(tmp_path, zygote, kind):
    how = ["--standalone"]
    if kind == "static":
        # The agent itself listens at MASTER_PORT.
        how = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    done = launch(tmp_path, zygote, *how, "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("sum 3.0") == 4, done.stdout
