# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark: its arguments, references, rounds, figures and tables."""

import os
import sys
import threading

import pytest
import torch

from torchcomms import _core
from torchcomms.bench import mpi_install, suite
from torchcomms.bench.arguments import parse_arguments
from torchcomms.bench.cases import DTYPES, OPERATIONS, Case, places_needed
from torchcomms.bench.contenders import Agreement, Ours
from torchcomms.bench.figures import row
from torchcomms.bench.limit import add_limit, limits
from torchcomms.bench.line import ANY, FAR, NEAR, SHARED, placement
from torchcomms.bench.measure import Rounds, Turns, first_call, measure
from torchcomms.bench.screen import Screen
from torchcomms.bench.session import Session
from torchcomms.bench.settings import AUTO, OFF, ON, Settings
from torchcomms.bench.table import Table, side_by_side
from torchcomms.bench.units import parse_size, show_size

US = 1e-6
NEAR_LINE, FAR_LINE = (0.12 * US, 0.13 * US), (0.5 * US, 0.5 * US)
MOVED_LINE = (0.12 * US, 0.5 * US)


class Idle:
    """A peer that does nothing, hence is wrong wherever there is something to do."""

    name = "idle"
    version = "0"
    may_refuse = True

    def bind(self, case, place):
        return lambda: None

    def close(self):
        pass


class Refusing(Idle):
    name = "refusing"

    def bind(self, case, place):
        def refuse():
            raise RuntimeError("no such dtype")

        return refuse


class Lines:
    """In place of the line: the given times, again and again."""

    def __init__(self, *seconds):
        self.seconds_given = seconds
        self.asked = 0

    def seconds(self):
        self.asked += 1
        return self.seconds_given[self.asked % len(self.seconds_given)]


def case_of(name, nbytes=64, ranks=1, rotate=OFF):
    return Case(OPERATIONS[name], nbytes, torch.float32, 0, ranks, rotate)


def rounds_of(ours, theirs, lines):
    return Rounds([1, 1], [[us * US for us in ours], [us * US for us in theirs]], lines)


def right_of(peer="gloo"):
    return {"torchcomms": True, peer: True}


@pytest.mark.parametrize(
    ("text", "nbytes"), [("8", 8), ("64K", 65536), ("1m", 1 << 20), ("2G", 2 << 30)]
)
def test_sizes_are_read_and_shown_alike(text, nbytes):
    assert parse_size(text) == nbytes
    assert show_size(nbytes) == text.upper()


@pytest.mark.parametrize("text", ["", "K", "1.5M", "-8", "8 bytes"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--ops", "all_reduce,nix", "unknown: nix"),
        ("--dtypes", "float31", "unknown: float31"),
        ("--sizes", "8,many", "'many' is no size"),
        ("--ranks", "2,0", "'2,0' is no list of counts"),
        ("--iters", "0", "neither auto nor a count"),
        ("--against", "mpi", "unknown: mpi; known: gloo, mpich, openmpi, impi"),
        ("--rotate", "2", "invalid choice"),
        ("--seconds", "-1", "'-1' is no number of seconds"),
        ("--seconds", "inf", "'inf' is no number of seconds"),
        ("--json", "/nowhere/result.json", "No such file"),
        ("--report", "/proc/nowhere", "No such file"),
        ("--from", "/dev/null", "/dev/null is no result of --json"),
    ],
)
def test_a_bad_option_is_named(option, value, message, capsys):
    with pytest.raises(SystemExit):
        parse_arguments([option, value])
    error = capsys.readouterr().err
    assert option in error
    assert message in error


def test_settings_survive_json():
    options, _ = parse_arguments(["--sizes", "8,4K", "--backends", "ncclx,torchcomms"])
    settings = Settings.of(options, ["gloo"])
    assert settings.sizes == [8, 4096]
    assert settings.backends == ["ncclx", "torchcomms"]
    assert Settings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        (0.12, 0.14, NEAR),
        (0.50, 0.45, FAR),
        (1.3, 1.3, FAR),
        (0.12, 0.16, None),
        (0.50, 0.12, None),
        (0.12, 40, None),
        (15, 900, SHARED),
        (0, 0, ANY),
    ],
)
def test_placement_of_a_round(before, after, place):
    assert placement(before * US, after * US) == place


def test_figures_are_of_one_placement_and_its_rounds():
    rounds = rounds_of(
        [1, 2, 90, 3, 8, 6],
        [4, 4, 1, 40, 10, 10],
        [NEAR_LINE, NEAR_LINE, MOVED_LINE, NEAR_LINE, FAR_LINE, FAR_LINE],
    )
    found = row(case_of("all_reduce", 4096, ranks=2), right_of(), rounds)
    near, far = found["placements"][NEAR], found["placements"][FAR]
    assert list(found["placements"]) == [NEAR, FAR]
    assert (near["rounds"], far["rounds"], found["rounds_dropped"]) == (3, 2, 1)
    assert near["times"]["torchcomms"]["us_med"] == pytest.approx(2)
    assert near["times"]["torchcomms"]["us_p90"] == pytest.approx(3)
    assert near["line_us"] == pytest.approx(0.125)
    # Medians of the same rounds, and not the median of the rounds' ratios.
    assert near["ours_by"] == {"gloo": pytest.approx(2 / 4)}
    assert far["ours_by"] == {"gloo": pytest.approx(0.7)}
    bus = 4096 / 2e-6 / 1e9
    assert near["times"]["torchcomms"]["bus_gb_per_s"] == pytest.approx(bus)


def test_a_row_whose_rounds_were_all_moved_says_so():
    rounds = rounds_of([1], [1], [MOVED_LINE])
    found = row(case_of("barrier", 0, ranks=2), right_of(), rounds)
    assert found["placements"] == {}
    assert "moved in every round" in next(Table(["gloo"]).lines(found))


def test_bus_bandwidth():
    def bus(name, ranks):
        return case_of(name, 4 << 20, ranks).bus_gigabytes(0.001)

    gigabytes = (4 << 20) / 1e6
    assert bus("all_reduce", 2) == pytest.approx(gigabytes)
    assert bus("all_reduce", 4) == pytest.approx(1.5 * gigabytes)
    # nccl-tests: 4 blocks as the size, of which 3 / 4 count.
    assert bus("all_gather", 4) == pytest.approx(4 * gigabytes * 3 / 4)
    assert bus("broadcast", 4) == pytest.approx(gigabytes)
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


def test_buffers_rotate_where_a_cache_would_flatter():
    assert places_needed(8, 8, AUTO) == 1
    assert places_needed(8, 8, ON) > 1
    assert places_needed(2 << 20, 1 << 20, OFF) == 1
    assert places_needed(2 << 20, 1 << 20, AUTO) * (2 << 20) >= 64 << 20
    assert places_needed(1 << 30, 1 << 30, AUTO) == 1
    assert places_needed(0, 0, ON) == 1
    places = case_of("all_gather", 16 << 20, ranks=2, rotate=AUTO).places
    addresses = {place.input.data_ptr() for place in places}
    addresses |= {place.output.data_ptr() for place in places}
    assert len(places) > 1
    assert len(addresses) == 2 * len(places)


def test_contenders_share_the_turns_of_the_buffers():
    turns = Turns([["a0", "a1", "a2"], ["b0", "b1", "b2"]])
    assert turns.take(0, 2) == ["a0", "a1"]
    assert turns.take(1, 2) == ["b2", "b0"]
    assert turns.take(0, 4) == ["a1", "a2", "a0", "a1"]


def test_a_wrong_result_and_a_refusal_are_noticed(alone):
    agreement = Agreement(alone)
    case = case_of("all_gather")
    assert first_call(Ours(alone), case, agreement)[1] is True
    assert first_call(Idle(), case, agreement)[1] is False
    assert first_call(Refusing(), case, agreement) == (None, None)


def bound_to(order):
    return [[lambda: order.append("a")], [lambda: order.append("b")]]


def test_contenders_take_turns_between_lines(alone):
    order, line = [], Lines(0.12 * US)
    case, agreement = case_of("barrier", 0), Agreement(alone)
    found = measure(bound_to(order), case, agreement, line, seconds=0, iterations=1)
    assert [len(seconds) for seconds in found.seconds] == [5, 5]
    assert "".join(order[-10:]) == "abbaabbaab"
    assert found.places() == [NEAR] * 5
    assert line.asked == 6


def test_measuring_goes_on_a_while_where_cpus_are_moved(alone):
    case, agreement, line = case_of("barrier", 0), Agreement(alone), Lines(*MOVED_LINE)
    found = measure(bound_to([]), case, agreement, line, seconds=0, iterations=1)
    assert found.places() == [None] * 20
    assert [len(seconds) for seconds in found.seconds] == [20, 20]


def test_a_session_with_a_wrong_peer_shows_it(alone):
    settings = Settings(["all_gather"], [64], ["float32"], ["ncclx"], seconds=0)
    session = Session([alone], [Idle(), Refusing()])
    (found,) = session.rows(settings)
    assert session.versions() == {"idle": "0", "refusing": "0"}
    assert found["right"] == {"torchcomms": True, "idle": False, "refusing": None}
    table = Table(["idle", "refusing"])
    titles = ["idle", "us", "ours/it", "refusing", "us", "ours/it"]
    assert table.header().split()[-6:] == titles
    (line,) = table.lines(found)
    assert "idle: WRONG RESULT" in line
    assert line.split("  idle:")[0].split()[-2:] == ["-", "-"]


def test_peers_side_by_side():
    def measured(peer, ours, theirs, line):
        rounds = rounds_of([ours], [theirs], [line])
        return row(case_of("all_reduce", 8, ranks=2), right_of(peer), rounds)

    rows = [
        measured("gloo", 1, 100, NEAR_LINE),
        measured("mpich", 1, 4, NEAR_LINE),
        measured("impi", 1, 2, NEAR_LINE),
        measured("impi", 3, 4, FAR_LINE),
    ]
    header, near, far = side_by_side(rows, ["gloo", "mpich", "impi"])
    assert header.split("|")[1:-1] == [
        f" {'ours':>8} {peer:>8} {'ours/it':>7} " for peer in ("gloo", "mpich", "impi")
    ]
    assert [part.split()[-1] for part in near.split("|")[1:]] == [
        *("0.010", "0.250", "0.500"),
        "0.500",
    ]
    assert near.split()[4] == NEAR
    assert far.split()[4] == FAR
    assert [part.split()[-1] for part in far.split("|")[1:]] == [
        *("-", "-", "0.750"),
        "0.750",
    ]


def test_the_limit_of_a_row(tmp_path):
    file = tmp_path / "limit.json"
    file.write_text(
        '{"op":"line_round_trip","bytes":8,"us_med":9}\n'
        '{"op":"copy","bytes":4096,"us_med":9}\n'
        '{"op":"all_reduce","bytes":4096,"us_med":0.5}\n'
    )
    found = limits(str(file), [])
    assert found == {4096: 0.5}

    def by_limit(name, nbytes, ranks=2, line=0.2 * US):
        rounds = rounds_of([1], [1], [(line, line)])
        measured = row(case_of(name, nbytes, ranks), right_of(), rounds)
        add_limit(measured, found)
        (placed,) = measured["placements"].values()
        return placed.get("ours_by_limit")

    assert by_limit("all_reduce", 4096) == pytest.approx(2)
    assert by_limit("all_reduce", 8) == pytest.approx(10), "half a line round trip"
    assert by_limit("all_reduce", 8192) is None
    assert by_limit("all_reduce", 4096, ranks=4) is None
    assert by_limit("all_gather", 4096) is None
    assert by_limit("all_reduce", 8, line=20 * US) is None, "one CPU for both"


@pytest.mark.parametrize("text", ["", "nothing", '{"op": "copy", "bytes": 8}'])
def test_a_file_without_limits_is_refused(tmp_path, text):
    file = tmp_path / "limit.json"
    file.write_text(text)
    with pytest.raises(SystemExit, match=r"--limit .*limit\.json: "):
        limits(str(file), [])


def make_mpi(folder, answer):
    """What looks like an environment with an MPI; its Python answers this."""
    programs = folder / "mpich" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("mpiexec", ""), ("python", f"echo {answer}")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)


def test_an_mpi_that_is_installed_is_used(tmp_path):
    make_mpi(tmp_path, "{} {}".format(*sys.version_info[:2]))
    assert mpi_install.missing(tmp_path, "mpich") is None
    options, _ = parse_arguments(["--against", "mpich,impi,gloo"])
    options.mpi_dir = tmp_path
    assert suite.installed_peers(options) == ["mpich", "gloo"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [(None, "mpich is not installed in"), ("", "not installed"), ("2 7", "Python 2.7")],
)
def test_an_mpi_that_is_not_installed(tmp_path, answer, message, capsys):
    if answer is not None:
        make_mpi(tmp_path, answer)
    options, _ = parse_arguments(["--against", "mpich"])
    options.mpi_dir = tmp_path
    with pytest.raises(SystemExit, match="none of these is installed"):
        suite.installed_peers(options)
    error = capsys.readouterr().err
    assert message in error
    assert f"{tmp_path}/mpich/bin/pip install numpy mpi4py mpich" in error


@pytest.mark.parametrize("tqdm_is_there", [True, False])
def test_progress_only_on_a_terminal(tqdm_is_there, monkeypatch, capsys):
    if not tqdm_is_there:
        monkeypatch.setitem(sys.modules, "tqdm", None)

    def shown():
        screen = Screen(2)
        screen.begin("all_reduce 8")
        screen.show("a row")
        screen.step()
        screen.close()
        return capsys.readouterr()

    assert tuple(shown()) == ("a row\n", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    out, err = shown()
    assert out == "a row\n"
    assert "all_reduce 8" in err
    assert "1/2" in err


def test_line_round_trip_of_two_threads():
    """The GIL is released, or neither would come to an end."""
    file = os.memfd_create("line")
    try:
        os.ftruncate(file, 4096)
        found = []
        follower = threading.Thread(
            target=lambda: found.append(_core._line_round_trip(file, False))
        )
        follower.start()
        assert 0 < _core._line_round_trip(file, True) < 60
        follower.join()
        assert found == [0]
        os.ftruncate(file, 8)
        with pytest.raises(RuntimeError, match=r"at least 128 bytes, but it has 8"):
            _core._line_round_trip(file, True)
    finally:
        os.close(file)
    with pytest.raises(RuntimeError, match="fstat of fd -1"):
        _core._line_round_trip(-1, True)
