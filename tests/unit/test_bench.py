# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark: its arguments, references, statistics and reports."""

import json
import os
import subprocess
import sys

import pytest
import torch

from torchcomms.bench import report
from torchcomms.bench.arguments import parse_arguments
from torchcomms.bench.cases import DTYPES, OPERATIONS, Case
from torchcomms.bench.contenders import Agreement, Ours
from torchcomms.bench.measure import Timing, first_call, measure, ratio
from torchcomms.bench.session import run

TIMEOUT_S = 120


class Idle:
    """A peer that does nothing, hence is wrong wherever there is something to do."""

    name = "idle"
    may_refuse = True

    def bind(self, case):
        return lambda: None

    def close(self):
        pass


class Refusing(Idle):
    name = "refusing"

    def bind(self, case):
        def refuse():
            raise RuntimeError("no such dtype")

        return refuse


def bench(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "torchcomms.bench", *map(str, arguments)],
        env={**os.environ, **environment},
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8", 8), ("64K", 65536), ("1m", 1 << 20), ("2G", 2 << 30)]
)
def test_sizes_are_read_and_shown_alike(text, nbytes):
    assert report.parse_size(text) == nbytes
    assert report.show_size(nbytes) == text.upper()


@pytest.mark.parametrize("text", ["", "K", "1.5M", "-8", "8 bytes"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        report.parse_size(text)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--ops", "all_reduce,nix", "unknown: nix"),
        ("--dtypes", "float31", "unknown: float31"),
        ("--sizes", "8,many", "'many' is no size"),
        ("--iters", "0", "neither auto nor a count"),
        ("--against", "mpi", "unknown: mpi"),
    ],
)
def test_a_bad_option_is_named(option, value, message, capsys):
    with pytest.raises(SystemExit):
        parse_arguments([option, value])
    error = capsys.readouterr().err
    assert option in error
    assert message in error


def test_ratio_is_taken_within_rounds():
    # The machine slowed down tenfold for one round: no matter to either.
    ours, theirs = Timing(1, [1.0, 1.0, 10.0]), Timing(1, [2.0, 20.0, 20.0])
    assert ratio(ours, theirs) == 0.5
    assert ours.median() == 1.0
    assert ours.at(0.9) == 10.0


def test_bus_bandwidth():
    def bus(name, ranks):
        case = Case(OPERATIONS[name], 4 << 20, torch.float32, 0, ranks)
        return case.bus_gigabytes(0.001)

    gigabytes = (4 << 20) / 1e6
    assert bus("all_reduce", 2) == pytest.approx(gigabytes)
    assert bus("all_reduce", 4) == pytest.approx(1.5 * gigabytes)
    assert bus("all_gather", 4) == pytest.approx(3 * gigabytes)
    assert bus("ping_pong", 2) == pytest.approx(2 * gigabytes)
    assert bus("barrier", 2) == 0


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_references_by_hand(dtype):
    def expected(name, rank):
        case = Case(OPERATIONS[name], 2 * dtype.itemsize, dtype, rank, 2)
        value = case.expected()
        return None if value is None else value.tolist()

    # Rank r has (i + 3 r + block) mod 4 at place i.
    assert expected("all_reduce", 0) == [3, 1]
    assert expected("reduce", 1) is None
    assert expected("broadcast", 1) == [0, 1]
    assert expected("all_gather", 0) == [0, 1, 3, 0]
    assert expected("reduce_scatter", 1) == [1, 3]
    assert expected("all_to_all", 1) == [1, 2, 0, 1]
    assert expected("gather", 0) == [0, 1, 3, 0]
    assert expected("scatter", 1) == [1, 2]
    assert expected("ping_pong", 0) == [3, 0]


def test_a_wrong_result_and_a_refusal_are_noticed(alone):
    agreement = Agreement(alone)
    case = Case(OPERATIONS["all_gather"], 64, torch.float32, 0, 1)
    assert first_call(Ours(alone), case, agreement)[1] is True
    assert first_call(Idle(), case, agreement)[1] is False
    assert first_call(Refusing(), case, agreement) == (None, None)


def test_contenders_take_turns(alone):
    case = Case(OPERATIONS["barrier"], 0, torch.float32, 0, 1)
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    timings = measure(calls, case, Agreement(alone), seconds=0, iterations=1)
    assert [len(timing.seconds) for timing in timings] == [5, 5]
    assert "".join(order[-10:]) == "abbaabbaab"


def test_a_session_with_a_wrong_peer_fails(alone, capsys):
    options, _ = parse_arguments(["--ops", "all_gather", "--sizes", "64"])
    options.seconds = 0
    peers = [Idle(), Refusing()]
    assert run(options, alone, peers) == 1
    header, row = capsys.readouterr().out.splitlines()
    titles = ["idle", "us", "ours/it", "refusing", "us", "ours/it"]
    assert header.split()[-6:] == titles
    assert "idle: WRONG RESULT" in row
    assert row.split("  idle:")[0].split()[-2:] == ["-", "-"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_beside_gloo(ranks, tmp_path):
    result = tmp_path / "result.json"
    done = bench(
        *("--ranks", ranks, "--against", "gloo", "--ops", ",".join(OPERATIONS)),
        *("--sizes", "8,100K", "--dtypes", "float32" if ranks == 2 else "int8"),
        *("--seconds", 0, "--iters", 2, "--json", result),
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(result.read_text())["rows"]
    measured = {row["op"] for row in rows}
    assert measured == set(OPERATIONS) - ({"ping_pong"} if ranks != 2 else set())
    assert len(done.stdout.splitlines()) == len(rows) + 1
    for row in rows:
        assert row["ranks"] == ranks
        assert row["right"] == {"torchcomms": True, "gloo": True}, row
        assert row["times"]["gloo"]["ours_by_this"] > 0
        assert row["times"]["torchcomms"]["calls_per_burst"] == 2


def test_ranks_that_contradict_the_launcher_are_refused():
    done = bench("--ranks", 3, TORCHCOMM_RANK="0", TORCHCOMM_SIZE="1")
    assert done.returncode != 0
    assert "--ranks is 3, but the launcher started 1" in done.stderr


def test_a_failing_rank_ends_the_benchmark():
    done = bench("--backend", "nix", "--ranks", 2)
    assert done.returncode != 0
    assert "failed to find backend 'nix'" in done.stderr
