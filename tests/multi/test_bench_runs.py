# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark as people run it: by itself, under a launcher, and under an mpiexec."""

import json
import os
import re
import subprocess
import sys

import pytest

from torchcomms.bench.cases import OPERATIONS
from torchcomms.bench.line import PLACEMENTS

TIMEOUT_S = 120
TINY = ("--seconds", 0, "--iters", 2)
BENCH = ("-m", "torchcomms.bench")


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environment},
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )


def check_rows(rows, peer):
    for row in rows:
        assert row["right"] == {"torchcomms": True, peer: True}, row
        assert row["calls"] == {"torchcomms": 2, peer: 2}
        assert row["rounds_dropped"] >= 0
        for place, placed in row["placements"].items():
            assert place in PLACEMENTS
            assert placed["rounds"] > 0
            ours, theirs = (
                placed["times"][name]["us_med"] for name in ("torchcomms", peer)
            )
            assert placed["ours_by"][peer] == pytest.approx(ours / theirs)


def test_every_operation_beside_gloo_with_a_report(tmp_path):
    result, report = tmp_path / "result.json", tmp_path / "report"
    done = python(
        *(*BENCH, "--ranks", "2,3", "--against", "gloo", "--ops", ",".join(OPERATIONS)),
        *("--sizes", "8,20K", "--dtypes", "float32,int8", *TINY),
        *("--json", result, "--report", report),
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(result.read_text())
    rows = content["rows"]
    check_rows(rows, "gloo")
    for ranks in (2, 3):
        mine = [row for row in rows if row["ranks"] == ranks]
        sized = set(OPERATIONS) - {"barrier"} - ({"ping_pong"} if ranks == 3 else set())
        assert len(mine) == len(sized) * 4 + 1
        assert {row["op"] for row in mine} == sized | {"barrier"}
    assert {row["buffers"] > 1 for row in rows if row["bytes"] >= 16 << 10} == {True}
    assert {row["buffers"] for row in rows if row["bytes"] < 16 << 10} == {1}
    assert content["versions"]["torch"]
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# 2 ranks beside gloo",
        "# 3 ranks beside gloo",
    ]
    assert lines[-1] == str(report / "index.html")
    page = (report / "index.html").read_text()
    placements = {(r["ranks"], r["dtype"], p) for r in rows for p in r["placements"]}
    assert page.count("<h2>") == len(placements)
    assert "<svg" in page


def test_an_earlier_result_is_shown_again(tmp_path):
    result = tmp_path / "result.json"
    done = python(*BENCH, "--ops", "barrier", "--against", "gloo", *TINY,
                  "--json", result)  # fmt: skip
    assert done.returncode == 0, done.stderr
    again = python(*BENCH, "--from", result, "--report", tmp_path)
    assert again.returncode == 0, again.stderr
    assert "barrier" in again.stdout
    assert "All figures" in (tmp_path / "index.html").read_text()


def test_a_second_backend_of_ours(tmp_path):
    result = tmp_path / "result.json"
    done = python(*BENCH, "--ops", "all_reduce", "--sizes", "64", *TINY,
                  "--backends", "ncclx,torchcomms", "--json", result)  # fmt: skip
    assert done.returncode == 0, done.stderr
    check_rows(json.loads(result.read_text())["rows"], "torchcomms:torchcomms")


def test_under_a_launcher(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    result = tmp_path / "result.json"
    done = python(
        *(*launcher, *BENCH, "--ops", "all_reduce,barrier", "--sizes", "8,4K", *TINY),
        *("--against", "gloo", "--json", result),
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    check_rows(rows, "gloo")
    assert [row["bytes"] for row in rows] == [8, 4096, 0]
    assert done.stdout.count("# 2 ranks beside gloo") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ranks", "3"), "--ranks is 3, but the launcher started 1"),
        (("--against", "mpich,impi"), "have one MPI at most"),
        (("--limit", "measure"), "not under a launcher"),
    ],
)
def test_what_a_launcher_rules_out(arguments, message):
    done = python(*BENCH, *arguments, TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1")
    assert done.returncode != 0
    assert message in done.stderr


def test_a_failing_rank_ends_the_benchmark():
    done = python(*BENCH, "--backends", "nix")
    assert done.returncode != 0
    assert "failed to find backend 'nix'" in done.stderr


def test_a_wrong_peer_fails_the_benchmark(tmp_path):
    done = python(*BENCH, "--backends", "ncclx,fake", "--ops", "all_reduce",
                  "--sizes", "64", *TINY)  # fmt: skip
    assert done.returncode == 1
    assert "torchcomms:fake: WRONG RESULT" in done.stdout


# Starts the ranks as an mpiexec does.
MPIEXEC = """#!{python}
import os, subprocess, sys
count, command = int(sys.argv[2]), sys.argv[3:]
assert sys.argv[1] == "-n"
ranks = [
    subprocess.Popen(
        command, env=dict(os.environ, PMI_RANK=str(rank), PMI_SIZE=str(count))
    )
    for rank in range(count)
]
sys.exit(max(rank.wait() for rank in ranks))
"""
PYTHON = """#!/bin/sh
PYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"
"""
# Of MPI what these ranks call: a sum and a barrier, by the store of the session.
MPI4PY = """
import os
import numpy
from torch.distributed import PrefixStore, TCPStore

class World:
    def __init__(self):
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.store = PrefixStore("mpi", TCPStore(host, port, None, False))
        self.rank = int(os.environ["PMI_RANK"])
        self.size = int(os.environ["PMI_SIZE"])
        self.calls = 0

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def _exchange(self, mine):
        self.calls += 1
        self.store.set(f"{self.calls}/{self.rank}", mine)
        return [self.store.get(f"{self.calls}/{rank}") for rank in range(self.size)]

    def Barrier(self):
        self._exchange(b"")

    def Allreduce(self, in_place, array, operation):
        parts = self._exchange(array.tobytes())
        array[:] = sum(numpy.frombuffer(part, array.dtype) for part in parts)

class MPI:
    IN_PLACE = SUM = None
    COMM_WORLD = World() if "PMI_RANK" in os.environ else None

    @staticmethod
    def Get_library_version():
        return "VERSION"
"""


@pytest.fixture
def make_mpi(tmp_path):
    """make_mpi(name, version): an environment in tmp_path with a small MPI."""

    def make(name, version):
        programs = tmp_path / name / "bin"
        programs.mkdir(parents=True)
        folder = tmp_path / name / "packages"
        folder.mkdir()
        (folder / "mpi4py.py").write_text(MPI4PY.replace("VERSION", version))
        for program, text in (("mpiexec", MPIEXEC), ("python", PYTHON)):
            path = programs / program
            path.write_text(text.format(python=sys.executable, folder=folder))
            path.chmod(0o755)

    return make


def test_mpis_side_by_side(make_mpi, tmp_path):
    make_mpi("mpich", "MPICH Version: 5.9")
    make_mpi("impi", "Intel(R) MPI Library 2099")
    result = tmp_path / "result.json"
    done = python(
        *(*BENCH, "--against", "mpich,openmpi,impi", "--mpi-dir", tmp_path, *TINY),
        *("--ops", "all_reduce,barrier", "--sizes", "8,20K", "--json", result),
    )
    assert done.returncode == 0, done.stderr
    assert "--against openmpi: openmpi is not installed in" in done.stderr
    content = json.loads(result.read_text())
    assert content["versions"]["mpich"] == "MPICH Version: 5.9"
    assert content["versions"]["impi"] == "Intel(R) MPI Library 2099"
    for peer in ("mpich", "impi"):
        mine = [row for row in content["rows"] if peer in row["right"]]
        check_rows(mine, peer)
        assert [row["bytes"] for row in mine] == [8, 20480, 0]
    header = re.search(r"^ranks .*$", done.stdout, re.MULTILINE)
    assert header[0].split("|")[1:3] == [
        "     ours    mpich ours/it ",
        "     ours     impi ours/it ",
    ]


def test_a_session_that_fails_leaves_the_others_their_rows(make_mpi, tmp_path):
    make_mpi("mpich", "Open MPI v9")
    result = tmp_path / "result.json"
    done = python(
        *(*BENCH, "--against", "mpich,gloo", "--mpi-dir", tmp_path, *TINY),
        *("--ops", "barrier", "--json", result),
    )
    assert done.returncode == 1
    assert "--against is mpich, but mpi4py loaded Open MPI v9" in done.stderr
    check_rows(json.loads(result.read_text())["rows"], "gloo")
