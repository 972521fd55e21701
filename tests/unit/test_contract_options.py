# SPDX-License-Identifier: BSD-3-Clause
"""api.md 3: option classes, typed hints; and the hints and stores of section 4."""

import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import HashStore, TCPStore

import torchcomms
from torchcomms import CommOptions, ReconfigureOptions, _comms
from torchcomms._options import hint_bool, hint_int
from torchcomms.utils._store_manager import _create_prefix_store, _dup_prefix_store

CPU = torch.device("cpu")
OPERATIONS = (
    "Send Recv BatchP2P Broadcast AllReduce Reduce AllGather AllGatherSingle "
    "ReduceScatter ReduceScatterSingle AllToAll AllToAllSingle AllToAllvSingle Barrier "
    "Scatter Gather GatherSingle Put Signal WaitSignal AllGatherPInit AllGatherPExec"
).split()


class Unprintable:
    def __repr__(self):
        raise ValueError("no")


@pytest.mark.parametrize("name", OPERATIONS)
def test_options_of_an_operation(name):
    cls = getattr(_comms, f"{name}Options")
    assert getattr(torchcomms, f"{name}Options") is cls
    options = cls()
    fields = {"hints": {}, "timeout": timedelta(0)}
    if name in ("Send", "Recv"):
        fields["tag"] = 0
    assert vars(options) == fields
    assert options == cls()
    options.timeout = timedelta(seconds=3)
    assert options != cls()
    options.hints = {"a": "b"}
    assert f"{name}Options(hints={{'a': 'b'}}, timeout=" in repr(options)
    assert cls().hints == {}


def test_reconfigure_options():
    options = ReconfigureOptions()
    options.uuid, options.init_handles = 7, ["a", "b"]
    options.timeout, options.hints = timedelta(seconds=1), {"k": "v"}
    assert options == ReconfigureOptions(
        uuid=7,
        init_handles=["a", "b"],
        timeout=timedelta(seconds=1),
        hints={"k": "v"},
    )
    assert ReconfigureOptions(7, {"a"}).init_handles == {"a"}
    assert ReconfigureOptions(7, {"a"}).timeout is None
    assert "uuid=7" in repr(options)


def test_repr_cannot_fail():
    for options in (CommOptions(), ReconfigureOptions(), _comms.SendOptions()):
        options.hints = Unprintable()
        options.timeout = Unprintable()
        assert "hints=<Unprintable>" in repr(options)
    options = CommOptions()
    options.store = HashStore()
    assert repr(options)


def test_equality_of_comm_options_looks_at_three_fields():
    one, two = CommOptions(), CommOptions()
    two.store, two.enable_reconfigure = object(), True
    assert one == two
    for field, value in (
        ("timeout", timedelta(seconds=1)),
        ("abort_process_on_timeout_or_error", False),
        ("hints", {"a": "b"}),
    ):
        two = CommOptions()
        setattr(two, field, value)
        assert one != two, field


# Hints --------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["1", "true", "Yes", " Y "])
def test_hint_true(word):
    assert hint_bool({"a": word}, "a", False) is True


@pytest.mark.parametrize("word", ["0", "FALSE", "no", "n"])
def test_hint_false(word):
    assert hint_bool({"a": word}, "a", True) is False


def test_hints_that_are_not_what_they_should_be():
    assert hint_bool({}, "a", True) is True
    assert hint_bool({"a": " "}, "a", False) is False
    assert (hint_int({}, "a", 5), hint_int({"a": " -12 "}, "a", 5)) == (5, -12)
    with pytest.raises(RuntimeError, match="hint 'a' must be one of .* got 'on'"):
        hint_bool({"a": "on"}, "a", False)
    for text in ("1.5", "0x10", "1_000", "ten", "--1", "-"):
        with pytest.raises(ValueError, match="hint 'a'|invalid literal"):
            hint_int({"a": text}, "a", 0)


def written_by(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_unknown_hints_give_one_warning_with_the_known_ones():
    """api.md 4: by new_comm and by split, and only where the hints were given."""
    lines = written_by(
        """
        import torch, torchcomms
        hints = {"colour": "red", "persistent_store": "true", "size": "1"}
        comm = torchcomms.new_comm("fake", "cpu", "main", False, None, True,
                                   hints=hints)
        assert comm.get_options().hints["colour"] == "red"
        inherits = comm.split([0], "inherits")
        told = comm.split([0], "told", hints={"shape": "round"})
        quiet = torchcomms.new_comm("fake", "cpu", "quiet", hints={
            "persistent_store": "false", "is_high_priority_stream": "false"})
        comm.all_reduce(torch.ones(1), torchcomms.ReduceOp.SUM, hints={"any": "thing"})
        for each in (quiet, told, inherits, comm):
            each.finalize()
        """
    )
    assert len(lines) == 2, lines
    assert "'main'" in lines[0]
    assert "'colour', 'size'" in lines[0]
    assert "'told'" in lines[1]
    assert "'shape'" in lines[1]
    for line in lines:
        assert "it knows 'is_high_priority_stream', 'persistent_store'" in line
        assert "backend fake" in line


def test_many_unknown_hints_are_still_one_line():
    lines = written_by(
        """
        import torchcomms
        hints = {f"hint-number-{i}": "x" for i in range(100)}
        torchcomms.new_comm("fake", "cpu", "main", hints=hints).finalize()
        """
    )
    assert len(lines) == 1
    assert "'hint-number-0'" in lines[0]


# Stores -------------------------------------------------------------------------------


def tcp_store():
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=30), False)


def test_create_prefix_store(world, monkeypatch):
    """api.md 1: at MASTER_ADDR and MASTER_PORT, under the prefix."""
    server = tcp_store()
    world(1, 2)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.port))
    store = _create_prefix_store("mine", timedelta(seconds=30))
    store.set("key", "value")
    assert server.get("mine/key") == b"value"
    again = _create_prefix_store("other")
    again.set("key", "second")
    assert store.get("key") == b"value"


def test_dup_prefix_store(world, monkeypatch):
    """api.md 1: another store, on which the ranks agree; the first may go."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    bootstrap = HashStore()
    world(0, 2)
    hosted = _dup_prefix_store("mine", bootstrap, timedelta(seconds=30))
    world(1, 2)
    joined = _dup_prefix_store("mine", bootstrap)
    del bootstrap
    joined.set("key", "value")
    assert hosted.get("key") == b"value"
    assert hosted.underlying_store.port == joined.underlying_store.port
    assert type(joined.underlying_store) is TCPStore


def test_dup_prefix_store_without_rank_0(world):
    world(1, 2)
    with pytest.raises(RuntimeError, match="[Tt]imeout"):
        _dup_prefix_store("mine", HashStore(), timedelta(milliseconds=50))
