# SPDX-License-Identifier: BSD-3-Clause
"""api.md 4, 5: What is refused, with which words, and that the right call works
afterwards."""

import inspect
import os
import re
import time
import warnings
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore, Store, TCPStore

import torchcomms
from multi.support.reference import MOVED, name_of

SUM = torchcomms.ReduceOp.SUM
SECOND = timedelta(seconds=1)


def refused(call, text, kind=RuntimeError):
    """The words of a call that raises; fails when it does not or says other ones."""
    with pytest.raises(kind) as caught:
        call()
    assert re.search(text, str(caught.value)), f"{caught.value} lacks {text}"
    assert "\n" not in str(caught.value), "a stack in the message"
    return str(caught.value)


def works(comm):
    """The communicator is as good as new."""
    size, rank = comm.get_size(), comm.get_rank()
    for count in (3, 50_000):
        t = torch.full((count,), rank + 1.0)
        comm.all_reduce(t, SUM, False)
        assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))


def good_calls(size):
    """Name to arguments of a call that every rank may make."""
    one, whole, other = torch.ones(4), torch.ones(4 * size), torch.ones(4 * size)
    parts = [torch.ones(4) for _ in range(size)]
    others = [torch.ones(4) for _ in range(size)]
    splits = [4] * size
    return {
        "broadcast": [one, 0],
        "all_reduce": [one, SUM],
        "reduce": [one, 0, SUM],
        "all_gather": [parts, one],
        "all_gather_v": [parts, one],
        "all_gather_single": [whole, one],
        "reduce_scatter": [one, parts, SUM],
        "reduce_scatter_v": [one, parts, SUM],
        "reduce_scatter_single": [one, whole, SUM],
        "all_to_all": [parts, others],
        "all_to_all_single": [whole, other],
        "all_to_all_v_single": [whole, other, splits, splits],
        "scatter": [one, parts, 0],
        "gather": [parts, one, 0],
        "gather_single": [whole, one, 0],
        "send": [one, 1],
        "recv": [one, 1],
    }


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])


BAD_TENSORS = {
    "meta": (lambda: torch.ones(4, device="meta"), "is on meta, .* on cpu"),
    "sparse": (lambda: torch.ones(4).to_sparse(), r"layout torch\.sparse_coo"),
    "csr": (lambda: torch.ones(2, 2).to_sparse_csr(), r"layout torch\.sparse_csr"),
    "quantised": (quantised, "is quantized"),
    "nested": (nested, "nested"),
    "negated": (lambda: torch._neg_view(torch.ones(4)), "negative bit"),
    "conjugated": (
        lambda: torch.ones(4, dtype=torch.complex64).conj(),
        "conjugate bit",
    ),
    "imaginary part of a conjugate": (
        lambda: torch.ones(4, dtype=torch.complex64).conj().imag,
        "Tensor must be contiguous|negative bit",
    ),
    "transposed": (lambda: torch.ones(2, 3).t(), r"contiguous.*\[3, 2\].*\(1, 3\)"),
    "every second": (lambda: torch.ones(8)[::2], "Tensor must be contiguous"),
    "expanded": (lambda: torch.ones(1).expand(4), "Tensor must be contiguous"),
    "channels last": (
        lambda: torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last),
        "Tensor must be contiguous",
    ),
}


def substituted(arguments, bad):
    """Every way to put `bad` in the place of a tensor: position and new arguments."""
    for i, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            yield i, [*arguments[:i], bad, *arguments[i + 1 :]]
        elif isinstance(argument, list) and isinstance(argument[0], torch.Tensor):
            changed = [*argument[:-1], bad]
            yield i, [*arguments[:i], changed, *arguments[i + 1 :]]


def bad_tensors(me, kind):
    comm = me.comm()
    make, text = BAD_TENSORS[kind]
    if me.rank == 0:
        for name, arguments in good_calls(me.size).items():
            method = getattr(comm, name)
            names = list(inspect.signature(method).parameters)
            for i, changed in substituted(arguments, make()):
                for asynchronous in (False, True):
                    said = refused(lambda: method(*changed, asynchronous), text)  # noqa: B023
                    assert names[i] in said, said
    works(comm)


@pytest.mark.parametrize("kind", BAD_TENSORS)
def test_a_tensor_that_is_no_plain_memory_is_refused(ranks, kind):
    ranks(2).run(bad_tensors, kind)


def no_tensors(me):
    comm = me.comm()
    if me.rank == 0:
        for name, arguments in good_calls(me.size).items():
            for bad in (None, 1.0, [1.0], torch.ones(1).numpy()):
                for _i, changed in substituted(arguments, bad):
                    refused(
                        lambda: getattr(comm, name)(*changed, False),  # noqa: B023
                        type(bad).__name__,
                        TypeError,
                    )
    works(comm)


def test_what_is_no_tensor_is_refused(ranks):
    ranks(2).run(no_tensors)


def every_dtype(me):
    """Moves, or says that it cannot."""
    comm = me.comm()
    outcomes = {}
    dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    for dtype in sorted(dtypes - set(MOVED), key=str):
        contents = [torch.arange(16, dtype=torch.uint8) + 100 * r for r in (0, 1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t = contents[me.rank].clone().view(dtype)
        try:
            comm.broadcast(t, 1, False)
        except RuntimeError as error:
            said = str(error)
            plain = "not supported" in said and str(dtype) in said
            outcomes[name_of(dtype)] = "refused" if plain else said
        else:
            assert torch.equal(t.view(torch.uint8), contents[1])
            outcomes[name_of(dtype)] = "moved"
    works(comm)
    return outcomes


def test_every_other_dtype_moves_or_is_refused(ranks):
    first, second = ranks(2).run(every_dtype)
    assert first == second
    # Quantised ones and the bits of no meaning; small integers lie in bytes.
    left = {name: how for name, how in first.items() if not re.match("q|bits", name)}
    assert set(left.values()) == {"moved"}, left
    assert set(first.values()) == {"moved", "refused"}, first


def ones(*counts):
    return [torch.ones(n) for n in counts]


def bad_calls(comm, size):
    """(words, call): lengths, counts, dtypes, ranks, splits. Made by rank 0 of 2."""
    one, whole = torch.ones(4), torch.ones(4 * size)
    double = torch.ones(4, dtype=torch.float64)
    parts, short, three = ones(4, 4), ones(4, 3), ones(4, 4, 4)
    entries = "has 3 entries, but the communicator has 2 ranks"
    count = "has 3 elements, expected 4"
    whole_count = "has 7 elements, expected 8"
    dtype = "dtype float64, but the others have float32"
    mixed = [torch.ones(4), double.clone()]
    op = SUM
    v = comm.all_to_all_v_single
    yield entries, lambda: comm.all_gather(three, one, False)
    yield entries, lambda: comm.all_gather_v(three, one, False)
    yield entries, lambda: comm.reduce_scatter(one, three, op, False)
    yield entries, lambda: comm.reduce_scatter_v(one, three, op, False)
    yield entries, lambda: comm.all_to_all(three, parts, False)
    yield entries, lambda: comm.all_to_all(parts, three, False)
    yield entries, lambda: comm.scatter(one, three, 0, False)
    yield entries, lambda: comm.gather(three, one, 0, False)
    yield "has 0 entries", lambda: comm.scatter(one, [], 0, False)
    yield r"\[1\] " + count, lambda: comm.all_gather(short, one, False)
    yield r"\[1\] " + count, lambda: comm.reduce_scatter(one, short, op, False)
    yield r"\[1\] " + count, lambda: comm.scatter(one, short, 0, False)
    yield r"\[1\] " + count, lambda: comm.gather(short, one, 0, False)
    yield r"\[0\] " + count, lambda: comm.all_gather_v(ones(3, 4), one, False)
    yield r"\[0\] " + count, lambda: comm.reduce_scatter_v(one, ones(3, 4), op, False)
    yield r"\[0\] " + count, lambda: comm.all_to_all(ones(4, 4), ones(3, 4), False)
    yield whole_count, lambda: comm.all_gather_single(torch.ones(7), one, False)
    yield whole_count, lambda: comm.gather_single(torch.ones(7), one, 0, False)
    yield whole_count, lambda: comm.reduce_scatter_single(one, torch.ones(7), op, False)
    yield whole_count, lambda: comm.all_to_all_single(torch.ones(7), whole, False)
    yield (
        "7 elements, which 2 ranks do not divide",
        lambda: comm.all_to_all_single(torch.ones(7), torch.ones(7), False),
    )
    yield dtype, lambda: comm.all_gather(mixed, one, False)
    yield "dtype", lambda: comm.all_gather_single(whole, double, False)
    yield dtype, lambda: comm.reduce_scatter(one, mixed, op, False)
    yield "dtype", lambda: comm.reduce_scatter_single(double, whole, op, False)
    yield dtype, lambda: comm.all_to_all(parts, mixed, False)
    yield dtype, lambda: comm.scatter(one, mixed, 0, False)
    yield dtype, lambda: comm.gather(mixed, one, 0, False)
    yield "dtype", lambda: comm.gather_single(whole, double, 0, False)
    for r in (-1, 2, 2**40):
        text = rf"root must be in range \[0, 2\), but got {r}"
        yield text, lambda r=r: comm.broadcast(one, r, False)
        yield text, lambda r=r: comm.reduce(one, r, op, False)
        yield text, lambda r=r: comm.scatter(one, parts, r, False)
        yield text, lambda r=r: comm.gather(parts, one, r, False)
        yield text, lambda r=r: comm.gather_single(whole, one, r, False)
        end = rf"must be in range \[0, 2\), but got {r}"
        yield "dst " + end, lambda r=r: comm.send(one, r, False)
        yield "src " + end, lambda r=r: comm.recv(one, r, False)
        yield "range", lambda r=r: comm.split([0, r], "child")
    yield "Cannot send to self", lambda: comm.send(one, 0, False)
    yield "Cannot recv from self", lambda: comm.recv(one, 0, False)
    yield "empty batch", lambda: comm.batch_op_create().issue(False)
    splits = "output_split_sizes", "input_split_sizes"
    other = torch.ones(8)
    yield splits[0] + " has 3 entries", lambda: v(whole, other, [1] * 3, [4, 4], False)
    yield splits[1] + " has 1 entries", lambda: v(whole, other, [4, 4], [4], False)
    yield r"\[1\].*negative.*-1", lambda: v(whole, other, [4, 4], [4, -1], False)
    yield "sums to 9.*8 rows", lambda: v(whole, other, [4, 5], [4, 4], False)
    yield "sums to 9.*8 rows", lambda: v(whole, other, [4, 4], [4, 5], False)
    yield "3 elements.* 4", lambda: v(whole, other, [4, 4], [3, 4], False)
    huge = 2**62
    yield "sums to", lambda: v(whole, other, [huge, huge], [4, 4], False)
    yield "overlap", lambda: comm.all_gather([one, one], torch.ones(4), False)
    yield "overlap", lambda: comm.all_to_all_single(whole, whole, False)
    yield "overlap", lambda: comm.all_gather_single(whole, whole[2:6], False)
    yield "both 0", lambda: comm.split([0, 0], "child")
    yield "Current rank 0 is not included", lambda: comm.split([1], "child")
    yield (
        "PREMUL_SUM needs a factor",
        lambda: torchcomms.ReduceOp(torchcomms.RedOpType.PREMUL_SUM),
    )


def wrong_types(comm):
    one = torch.ones(4)
    yield "op", lambda: comm.all_reduce(one, "sum", False)
    yield "op", lambda: comm.all_reduce(one, torchcomms.RedOpType.SUM, False)
    yield "root", lambda: comm.broadcast(one, "0", False)
    yield "root", lambda: comm.broadcast(one, 0.0, False)
    yield "tensor_list", lambda: comm.all_gather(torch.ones(2, 4), one, False)
    yield "timeout", lambda: comm.barrier(False, None, 3)
    yield "hints", lambda: comm.barrier(False, ["a"])
    yield "hints", lambda: comm.barrier(False, {"a": 1})
    yield "unknown", lambda: comm.barrier(unknown=1)
    yield "tensor", lambda: comm.all_reduce()
    yield "", lambda: comm.barrier(False, None, None, None)
    yield "", lambda: torchcomms.TorchComm()
    yield "", lambda: torchcomms.TorchWork()


def bad_arguments(me):
    comm = me.comm()
    if me.rank == 0:
        for text, call in bad_calls(comm, me.size):
            refused(call, text)
        for text, call in wrong_types(comm):
            refused(call, text, TypeError)
    works(comm)


def test_bad_arguments_are_refused_on_one_rank_and_the_right_call_works(ranks):
    ranks(2).run(bad_arguments)


def after_finalize(me):
    comm = me.comm()
    batch = comm.batch_op_create()
    if me.size > 1:
        batch.send(torch.ones(1), 1 - me.rank)
    comm.finalize()
    calls = good_calls(me.size)
    if me.size == 1:
        del calls["send"], calls["recv"]
    for name, arguments in calls.items():
        if name in ("send", "recv"):
            arguments[1] = 1 - me.rank
        refused(lambda: getattr(comm, name)(*arguments, False), "already finalized")  # noqa: B023
    refused(comm.finalize, "already finalized")
    refused(lambda: comm.barrier(False), "already finalized")
    refused(lambda: comm.split([me.rank], "child"), "already finalized")
    if me.size > 1:
        refused(lambda: batch.issue(False), "already finalized")
    assert (comm.get_rank(), comm.get_size()) == (me.rank, me.size)
    assert comm.get_name() == "test"
    works(me.comm())


@pytest.mark.parametrize("size", [1, 2])
def test_after_finalize(ranks, size):
    ranks(size).run(after_finalize)


# Ranks that disagree ----------------------------------------------------------------


def calls_of(comm, count):
    """Named calls of which any two disagree, and how each is described."""
    t, other = torch.ones(count), torch.ones(count + 1)
    size = comm.get_size()
    ints = torch.ones(count, dtype=torch.int32)
    whole = torch.ones(count * size)
    peak = torchcomms.ReduceOp.MAX
    n = count
    return {
        "sum": (
            lambda a: comm.all_reduce(t, SUM, a),
            f"all_reduce of {n} float32 with SUM",
        ),
        "max": (
            lambda a: comm.all_reduce(t, peak, a),
            f"all_reduce of {n} float32 with MAX",
        ),
        "longer": (
            lambda a: comm.all_reduce(other, SUM, a),
            f"all_reduce of {n + 1} float32 with SUM",
        ),
        "int32": (lambda a: comm.all_reduce(ints, SUM, a), f"all_reduce of {n} int32"),
        "root 0": (
            lambda a: comm.broadcast(t, 0, a),
            f"broadcast of {n} float32, root 0",
        ),
        "root 1": (
            lambda a: comm.broadcast(t, 1, a),
            f"broadcast of {n} float32, root 1",
        ),
        "gather": (
            lambda a: comm.all_gather_single(whole, t, a),
            f"all_gather_single of {n} float32",
        ),
        "reduce": (
            lambda a: comm.reduce(t, 0, SUM, a),
            f"reduce of {n} float32 with SUM, root 0",
        ),
        "barrier": (comm.barrier, "barrier"),
    }


PAIRS = [
    ("sum", "max"),
    ("sum", "longer"),
    ("sum", "int32"),
    ("sum", "gather"),
    ("sum", "barrier"),
    ("sum", "reduce"),
    ("root 0", "root 1"),
    ("root 0", "reduce"),
    ("gather", "barrier"),
]


def disagreements(me, odd, asynchronous):
    """Rank `odd` makes the second call of each pair, the others the first."""
    for number, (common, different) in enumerate(PAIRS):
        for count in (4, 100_000):
            comm = me.comm(f"{number}-{count}")
            calls = calls_of(comm, count)
            call = calls[different if me.rank == odd else common][0]
            # Where this rank has needed nobody, the next call tells.
            said = refused(
                lambda: (call(asynchronous).wait(), comm.barrier(False)),  # noqa: B023
                "ranks disagree",
            )
            for name in (common, different):
                assert calls[name][1] in said, f"{said} lacks {calls[name][1]}"
            assert f"rank {odd} called" in said, said
            refused(lambda: comm.barrier(False), re.escape(calls[different][1]))  # noqa: B023
    works(me.comm("after"))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(("size", "odd"), [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1)])
def test_every_rank_gets_both_sides_of_a_disagreement(ranks, size, odd, asynchronous):
    ranks(size).run(disagreements, odd, asynchronous)


def split_sizes_disagree(me, count):
    """Rank 0 sends one row more than rank 1 expects."""
    comm = me.comm()
    rows = 2 * count + 2
    sends = [count, count + (1 if me.rank == 0 else 0)]
    if me.rank == 1:
        sends = [count, count]
    gets = [count, count]
    target, source = torch.ones(rows), torch.ones(rows)
    said = refused(
        lambda: (
            comm.all_to_all_v_single(target, source, gets, sends, False),
            comm.barrier(False),
        ),
        "all_to_all_v_single",
    )
    assert f"expects {4 * count} bytes from rank 0" in said, said
    assert f"sends {4 * count + 4}" in said, said
    works(me.comm("after"))


@pytest.mark.parametrize("count", [1, 50_000])
def test_split_sizes_that_disagree(ranks, count):
    ranks(2).run(split_sizes_disagree, count)


def split_lists_disagree(me):
    comm = me.comm()
    refused(lambda: comm.split([0, 1] if me.rank == 0 else [1], "child"), "rank")
    child = comm.split([1, 0], "child")
    works(me.keep(child))
    works(comm)


def test_split_lists_that_disagree(ranks):
    ranks(2).run(split_lists_disagree)


# Start-up ----------------------------------------------------------------------------

RANK_VARIABLES = [
    *("TORCHCOMM_RANK", "TORCHCOMM_SIZE", "RANK", "WORLD_SIZE"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"),
]


def create(name="test", backend="ncclx", **options):
    return torchcomms.new_comm(backend, torch.device("cpu"), name, **options)


def set_environment(**variables):
    for name in [*RANK_VARIABLES, "MASTER_ADDR", "MASTER_PORT"]:
        os.environ.pop(name, None)
    os.environ.update(variables)


def start_up_arguments(me):
    set_environment(RANK="0", WORLD_SIZE="1")
    refused(
        lambda: create(backend="NCCLX"), "failed to find backend", ModuleNotFoundError
    )
    refused(lambda: create(enable_reconfigure=3), "enable_reconfigure", TypeError)
    refused(lambda: create(timeout=3), "timeout", TypeError)
    refused(lambda: create(hints={"a": 1}), "hints", TypeError)
    with pytest.raises(RuntimeError, match="cuda"):
        torchcomms.new_comm("ncclx", torch.device("cuda", 0), "test")
    cases = [
        ({}, "Unable to determine rank and size"),
        ({"RANK": "0"}, "RANK is '0'.*WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK.*one"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
            "MASTER_PORT",
        ),
        (
            {
                "RANK": "0",
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "x",
            },
            "MASTER_PORT.*x",
        ),
    ]
    for variables, text in cases:
        set_environment(**variables)
        refused(create, text)
    set_environment(RANK="0", WORLD_SIZE="1")
    works(me.keep(create()))


def test_start_up_arguments(ranks):
    ranks(1).run(start_up_arguments)


class FailingStore(Store):
    """Raises in one of its methods."""

    def __init__(self, inner, method):
        super().__init__()
        self._inner = inner
        self._method = method

    def _call(self, name, *arguments):
        if name == self._method:
            raise OSError("the disk is on fire")
        return getattr(self._inner, name)(*arguments)

    def set(self, key, value):
        return self._call("set", key, value)

    def get(self, key):
        return self._call("get", key)

    def add(self, key, amount):
        return self._call("add", key, amount)

    def check(self, keys):
        return self._call("check", keys)

    def wait(self, keys, timeout=None):
        return self._call("wait", keys)


def failing_store(me, method, rank):
    """The rank whose store fails says so; the others do not wait for ever."""
    store = FailingStore(me.store(), method if me.rank == rank else None)
    with pytest.raises(RuntimeError) as caught:
        me.comm(store=store, timeout=SECOND)
    if me.rank == rank:
        assert "the disk is on fire" in str(caught.value)
        assert "FailingStore" in str(caught.value)
    works(me.comm("after", store=FailingStore(me.store(), None)))


@pytest.mark.parametrize(
    ("method", "rank"), [("set", 0), ("add", 0), ("add", 1), ("check", 1), ("get", 1)]
)
def test_a_store_that_raises(ranks, method, rank):
    ranks(2).run(failing_store, method, rank)


def absent_rank(me):
    if me.rank == 0:
        refused(lambda: me.comm(timeout=SECOND), "rank 1|ranks? missing")
    me.comm("after")
    if me.rank == 1:
        store = HashStore()
        said = refused(
            lambda: me.comm(store=store, timeout=SECOND), "not set within 1 s"
        )
        assert "HashStore" in said
    works(me.comm("once more"))


def test_a_rank_that_does_not_come(ranks):
    ranks(2).run(absent_rank)


def lost_server(me):
    """The TCPStore's server ends before new_comm."""
    if me.rank == 1:
        server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        client = TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
        client.set("key", "value")
        del server
        refused(lambda: me.comm(store=client, timeout=SECOND), "store: ")
    works(me.comm("after"))


def test_a_store_whose_server_is_gone(ranks):
    ranks(2).run(lost_server)


def nobody_listens(me):
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        set_environment(
            RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
        refused(
            lambda: create(timeout=SECOND),
            f"MASTER_ADDR:MASTER_PORT = 127.0.0.1:{port}",
        )


def test_a_master_port_where_nobody_listens(ranks):
    ranks(1).run(nobody_listens)


class SlowStore(FailingStore):
    """Answers after a while; looks for a key are what a start-up waits for."""

    def _call(self, name, *arguments):
        time.sleep(0.05)
        return super()._call(name, *arguments)


def slow_store(me):
    works(me.comm(store=SlowStore(me.store(), None)))


def test_a_slow_store(ranks):
    ranks(3).run(slow_store)


def contradictory_sizes(me):
    """Rank 1 believes in three ranks."""
    os.environ["RANK"] = str(me.rank)
    os.environ["WORLD_SIZE"] = "3" if me.rank == 1 else "2"
    refused(
        lambda: create(store=me.store(), timeout=SECOND),
        "size|rank",
    )
    os.environ["WORLD_SIZE"] = "2"
    works(me.keep(create("after", store=me.store())))


def test_contradictory_sizes(ranks):
    ranks(2).run(contradictory_sizes)


def same_rank_twice(me):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "1" if me.rank else "0", "3"
    refused(lambda: create(store=me.store(), timeout=SECOND), "rank")
    works(me.comm("after"))


def test_the_same_rank_twice(ranks):
    ranks(3).run(same_rank_twice)
