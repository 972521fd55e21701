# SPDX-License-Identifier: BSD-3-Clause
"""api.md 20: torch's debug server and its front end show our record."""

import contextlib
import json
import os
import pickle
import socket
import threading
import urllib.error
import urllib.request

import pytest
import torch

from torchcomms import ReduceOp
from torchcomms.hooks import FlightRecorderHook

LIMIT_S = 60


@contextlib.contextmanager
def worker_server():
    from torch._C._distributed_c10d import _WorkerServer

    server = _WorkerServer("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()


@contextlib.contextmanager
def front_end(address):
    """torch's own, on a free port of the loopback, asking the server at `address`."""
    import torch.distributed as dist
    from torch.distributed.debug import _frontend
    from torch.distributed.debug._debug_handlers import default_handlers

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    dist.PrefixStore("debug_server", store).set("rank0", address)
    os.environ.update(
        {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
        }
    )

    class OnLoopback(_frontend._IPv6HTTPServer):
        address_family = socket.AF_INET

        def __init__(self, address, handler):
            super().__init__(("127.0.0.1", address[1]), handler)

    _frontend._IPv6HTTPServer = OnLoopback
    made = _frontend.FrontendServer(port=0, handlers=default_handlers())
    try:
        yield f"http://127.0.0.1:{made._server.server_port}"
    finally:
        made._server.shutdown()
        made._server.server_close()
        made.join()


def ask(url, data=None):
    """Status and text; `data` makes it a POST."""
    try:
        with urllib.request.urlopen(url, data=data, timeout=LIMIT_S) as reply:
            return reply.status, reply.read().decode(), reply.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["Content-Type"]


def handler(address, name, query=""):
    return ask(f"{address}/handler/{name}?{query}", b"")


def recorded(me):
    comm = me.comm()
    recorder = FlightRecorderHook()
    recorder.register_with_comm(comm)
    comm.all_reduce(torch.ones(2), ReduceOp.SUM)
    return comm


def pages(me):
    comm = recorded(me)
    with worker_server() as address, front_end(address) as site:
        status, text, _ = ask(f"{site}/")
        assert status == 200
        assert "TorchComms FR" in text
        status, text, _ = ask(f"{site}/torchcomms_fr_trace")
        assert status == 200, text
        assert "Memberships" in text
        status, text, _ = ask(f"{site}/torchcomms_fr_trace_json")
        assert status == 200, text
        assert "pg_status" in text
        status, text, _ = ask(f"{site}/torchcomms_health_check")
        assert status == 200
        assert "{&#34;healthy&#34;: true}" in text or '{"healthy": true}' in text
    comm.finalize()


def test_pages_of_the_front_end(fresh):
    pytest.importorskip("tabulate")
    fresh(1).run(pages)


def parameters(me):
    recorded(me)
    with worker_server() as address:
        name = "torchcomms_fr_trace_json"
        status, text, kind = handler(address, name)
        document = json.loads(text)
        assert (status, kind) == (200, "application/json")
        assert len(document["entries"]) == 1
        _, text, _ = handler(address, name, "onlyactive=true")
        assert "entries" not in json.loads(text)
        _, text, _ = handler(address, name, "includecollectives=false&onlyactive=false")
        assert "entries" not in json.loads(text)
        for query, expected in {
            "onlyactive=yes": "Invalid value for onlyactive valid values are true or "
            "false",
            "includecollectives=": "Invalid value for includecollectives valid values "
            "are true or false",
            "only=true": "Invalid parameters - unexpected param passed in",
        }.items():
            assert handler(address, name, query)[:2] == (400, expected)


def test_parameters_of_the_trace(fresh):
    fresh(1).run(parameters)


def dumps(me, path):
    os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = path
    name = "torchcomms_fr_dump_file"
    with worker_server() as address:
        assert handler(address, name)[0] == 503
        recorded(me)
        status, text, _ = handler(address, name)
        assert status == 200
        assert text == "Flight Recorder dump initiated for rank 0"
        for thread in threading.enumerate():
            if thread.name == "tc_fr_dump":
                thread.join()
    with open(f"{path}0", "rb") as file:
        return len(pickle.load(file)["entries"])


def test_a_dump_on_request(fresh, tmp_path):
    assert fresh(1).run(dumps, str(tmp_path / "trace_")) == [1]


def one_at_a_time(me, path):
    from torchcomms.hooks.fr import handlers

    recorded(me)
    os.environ["TORCHCOMM_FR_DUMP_TEMP_FILE"] = path
    with handlers._dumping, worker_server() as address:
        _, text, _ = handler(address, "torchcomms_fr_dump_file")
        assert text == "Flight Recorder dump already in progress for rank 0"
    assert not os.path.exists(f"{path}0")


def test_one_dump_at_a_time(fresh, tmp_path):
    fresh(1).run(one_at_a_time, str(tmp_path / "trace_"))


def health(me):
    comm = recorded(me)
    store = me.store("over")
    name = "torchcomms_health_check"
    with worker_server() as address:
        assert handler(address, name) == (200, '{"healthy": true}', "application/json")
        if me.rank == 0:
            work = comm.all_reduce(torch.ones(2), ReduceOp.SUM, async_op=True)
            comm.abort()
            with pytest.raises(RuntimeError, match="aborted"):
                work.wait()
            assert handler(address, name)[1] == '{"healthy": false}'
            store.set("over", "yes")
        store.wait(["over"])


def test_a_failure_makes_a_process_unhealthy(fresh):
    fresh(2).run(health)
