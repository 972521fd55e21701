# SPDX-License-Identifier: BSD-3-Clause
"""api.md 18: the log of communication."""

import re

import pytest
import torch

import torchcomms
from torchcomms import ReduceOp
from torchcomms.hooks import clog
from unit.thread_ranks import leave, on_all

STAMP = r"\+\d+\.\d+"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


def lines(path):
    return path.read_text().splitlines()


def signatures(path):
    return [re.sub(r"^C\d+\|sig\|", "", x) for x in lines(path) if "|sig|" in x]


def test_names_of_the_class():
    from torchcomms._comms.hooks.clog import clog as of_the_extension

    assert of_the_extension is clog
    assert torchcomms._comms.hooks.clog.clog is clog
    assert clog.__module__ == "torchcomms.hooks"


def test_what_cannot_be_is_refused(fake, tmp_path, path):
    with pytest.raises(RuntimeError, match="cannot open .*No such file"):
        clog(str(tmp_path / "no" / "log"), ["ALL"])
    with pytest.raises(ValueError, match="events must be of LIFECYCLE, ALL, but got"):
        clog(str(path), ["SOME"])
    with pytest.raises(ValueError, match="verbose must be of buffers, but got"):
        clog(str(path), ["ALL"], ["everything"])
    with pytest.raises(TypeError, match="events must be a list"):
        clog(str(path), "ALL")
    log = clog(str(path), ["ALL"])
    with pytest.raises(TypeError, match="comm must be a torchcomms.TorchComm"):
        log.register_with_comm(3)
    log.register_with_comm(fake)
    with pytest.raises(RuntimeError, match="'main' is registered .* already"):
        log.register_with_comm(fake)


def test_header_and_communicator(fake, path):
    path.write_text("what was there before\n")
    log = clog(str(path), ["ALL"])
    (header,) = lines(path)
    assert re.fullmatch(r"V\|1\|base_timestamp=\d+\.\d{3}", header)
    log.register_with_comm(fake)
    assert lines(path)[1:] == ["new_comm|comm=main|rank=1|world_size=3"]


def test_a_signature_is_written_once(fake, path):
    log = clog(str(path), [])
    log.register_with_comm(fake)
    for _ in range(3):
        fake.all_reduce(torch.ones(4), ReduceOp.SUM)
    fake.all_reduce(torch.ones(5), ReduceOp.SUM)
    found = lines(path)[2:]
    fields = "dtype=f32|red_op=sum|async_op=f|comm=main"
    assert found[0] == f"C1|sig|all_reduce|in_count=4|out_count=4|{fields}"
    assert found[4] == f"C2|sig|all_reduce|in_count=5|out_count=5|{fields}"
    queued = [re.fullmatch(rf"C(\d)\|Q\|work_id=(\d+)\|{STAMP}", x) for x in found]
    assert [m[1] for m in queued if m] == ["1", "1", "1", "2"]
    ids = [int(m[2]) for m in queued if m]
    assert ids == sorted(set(ids))
    assert len(found) == 6


def calls(comm):
    one, three = torch.zeros(4), [torch.zeros(4) for _ in range(3)]
    big = torch.zeros(12, dtype=torch.int64)
    uneven = [torch.zeros(n, dtype=torch.bfloat16) for n in (1, 2, 3)]
    mine = torch.zeros(2, dtype=torch.bfloat16)
    op = ReduceOp
    count = "in_count=4|out_count=4|dtype=f32"
    yield comm.all_reduce, (one, op.MAX), f"all_reduce|{count}|red_op=max|async_op=f"
    yield comm.broadcast, (one, 2), f"broadcast|{count}|root=2|async_op=f"
    yield comm.reduce, (one, 0, op.AVG), f"reduce|{count}|red_op=avg|root=0|async_op=f"
    yield (
        comm.send,
        (one, 0),
        "send|in_count=4|out_count=0|dtype=f32|peer=0|async_op=f",
    )
    yield (
        comm.recv,
        (one, 2),
        "recv|in_count=0|out_count=4|dtype=f32|peer=2|async_op=f",
    )
    yield (
        comm.all_gather_single,
        (big, big[:4].clone()),
        "all_gather_single|in_count=4|out_count=12|dtype=i64|async_op=f",
    )
    yield (
        comm.all_to_all_single,
        (big, big.clone()),
        "all_to_all_single|in_count=12|out_count=12|dtype=i64|async_op=f",
    )
    yield (
        comm.reduce_scatter_single,
        (big[:4].clone(), big, op.BXOR),
        "reduce_scatter_single|in_count=12|out_count=4|dtype=i64|red_op=bxor|async_op=f",
    )
    yield (
        comm.all_to_all_v_single,
        (big, big.clone(), [1, 2, 3], [3, 2, 1]),
        "all_to_all_v_single|in_splits=3,2,1|out_splits=1,2,3|dtype=i64|async_op=f",
    )
    yield (
        comm.all_gather,
        (three, one),
        "all_gather|in_count=4|out_counts=4,4,4|dtype=f32|async_op=f",
    )
    yield (
        comm.all_gather_v,
        (uneven, mine),
        "all_gather_v|in_count=2|out_counts=1,2,3|dtype=bf16|async_op=f",
    )
    yield (
        comm.reduce_scatter,
        (one, three, op.PRODUCT),
        "reduce_scatter|in_counts=4,4,4|out_count=4|dtype=f32|red_op=prod|async_op=f",
    )
    yield (
        comm.reduce_scatter_v,
        (mine, uneven, op.MIN),
        "reduce_scatter_v|in_counts=1,2,3|out_count=2|dtype=bf16|red_op=min|async_op=f",
    )
    yield (
        comm.all_to_all,
        (uneven, [t.clone() for t in uneven]),
        "all_to_all|in_counts=1,2,3|out_counts=1,2,3|dtype=bf16|async_op=f",
    )
    yield (
        comm.scatter,
        (one, three, 1),
        "scatter|in_counts=4,4,4|out_count=4|dtype=f32|root=1|async_op=f",
    )
    yield (
        comm.gather,
        (three, one, 1),
        "gather|in_count=4|out_counts=4,4,4|dtype=f32|root=1|async_op=f",
    )
    yield (
        comm.gather_single,
        (torch.zeros(12), one, 1),
        "gather_single|in_count=4|out_count=12|dtype=f32|root=1|async_op=f",
    )
    yield comm.barrier, (), "barrier|async_op=f"


def test_signatures_of_all_operations(fake, path):
    log = clog(str(path), [])
    log.register_with_comm(fake)
    expected = []
    for call, arguments, text in calls(fake):
        call(*arguments)
        expected.append(f"{text}|comm=main")
    batch = fake.batch_op_create()
    batch.send(torch.ones(1), 0)
    batch.recv(torch.ones(1), 2)
    batch.issue(True)
    expected.append("batch_op_issue|num_ops=2|async_op=t|comm=main")
    assert signatures(path) == expected


def test_words_for_dtypes_and_reductions(fake, path):
    log = clog(str(path), [])
    log.register_with_comm(fake)
    words = {
        torch.float64: "f64",
        torch.float16: "f16",
        torch.int32: "i32",
        torch.int16: "i16",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.bool: "bool",
        torch.float8_e4m3fn: "fp8e4m3",
        torch.float8_e5m2: "fp8e5m2",
        torch.complex64: "other",
    }
    for dtype in words:
        fake.broadcast(torch.zeros(1, dtype=dtype), 0)
    found = [re.search(r"dtype=(\w+)", text)[1] for text in signatures(path)]
    assert found == list(words.values())
    fake.all_reduce(torch.ones(1), ReduceOp.PREMUL_SUM(2.0))
    assert "|red_op=premul_sum|" in signatures(path)[-1]


def test_buffers(fake, path):
    log = clog(str(path), [], ["buffers"])
    log.register_with_comm(fake)
    one, big = torch.zeros(4), torch.zeros(12)
    fake.all_reduce(one, ReduceOp.SUM)
    fake.all_gather_single(big, one)
    first, second = signatures(path)
    assert f"|buf={one.data_ptr():#x}|" in first
    assert f"|in={one.data_ptr():#x}|out={big.data_ptr():#x}|" in second


def test_the_life_of_a_call(pair, path):
    log = clog(str(path), ["LIFECYCLE"])
    log.register_with_comm(pair[0])
    before = len(lines(path))
    work = pair[0].all_reduce(torch.ones(2), ReduceOp.SUM, async_op=True)
    assert "|E|" not in path.read_text()
    pair[1].all_reduce(torch.ones(2), ReduceOp.SUM)
    work.wait()
    work.wait()
    on_all(pair, lambda comm: comm.barrier())
    letters = [re.sub(STAMP, "+", line) for line in lines(path)[before:]]
    letters = [re.sub(r"work_id=\d+", "work_id=", line) for line in letters]
    assert letters[:3] == [
        "C1|sig|all_reduce|in_count=2|out_count=2|dtype=f32|red_op=sum|async_op=t"
        "|comm=pair",
        "C1|Q|work_id=|+",
        "C1|S|+",
    ]
    assert letters.count("C1|E|+") == 1
    assert "C1|W|+" in letters
    at = letters.index("C2|sig|barrier|async_op=f|comm=pair")
    assert letters[at + 1 : at + 4] == ["C2|Q|work_id=|+", "C2|S|+", "C2|E|+"]


def test_communicators_in_one_file_and_clogs_beside_each_other(fake, world, tmp_path):
    world(0, 2)
    other = torchcomms.new_comm("fake", torch.device("cpu"), name="other")
    both, lone = clog(str(tmp_path / "both"), []), clog(str(tmp_path / "lone"), [])
    both.register_with_comm(fake)
    both.register_with_comm(other)
    lone.register_with_comm(other)
    fake.barrier()
    other.barrier()
    assert signatures(tmp_path / "both") == [
        "barrier|async_op=f|comm=main",
        "barrier|async_op=f|comm=other",
    ]
    assert signatures(tmp_path / "lone") == ["barrier|async_op=f|comm=other"]
    leave([other])


def test_split(fake, path):
    log = clog(str(path), [])
    log.register_with_comm(fake)
    assert fake.split([], "nobody") is None
    child = fake.split([2, 1], "child")
    child.barrier()
    assert [line for line in lines(path) if "split" in line] == [
        "split|parent=main|child=child|ranks=2,1"
    ]
    assert signatures(path) == ["barrier|async_op=f|comm=child"]
    assert sum("new_comm" in line for line in lines(path)) == 1
    with pytest.raises(RuntimeError, match="'child' is registered"):
        log.register_with_comm(child)
    leave([child])


def test_a_warning_for_what_is_open_at_the_end(pair, path):
    log = clog(str(path), ["ALL"])
    log.register_with_comm(pair[0])
    pair[0].all_reduce(torch.ones(2), ReduceOp.SUM, async_op=True)

    def end(comm):
        if comm is pair[1]:
            comm.all_reduce(torch.ones(2), ReduceOp.SUM)
        comm.finalize()

    on_all(pair, end)
    assert "WARN|comm=pair|open_works=1" in lines(path)


def test_no_warning_where_all_has_ended(pair, path):
    log = clog(str(path), ["ALL"])
    log.register_with_comm(pair[0])
    on_all(pair, lambda comm: comm.barrier())
    leave(pair)
    assert "WARN" not in path.read_text()


class Unready:
    """A communicator before its first reconfigure, which gives it ranks."""

    size = 0

    def __init__(self, like):
        self._like = like

    def get_size(self):
        return self.size or -1

    def __getattr__(self, name):
        return getattr(self._like, name)


def test_a_communicator_without_ranks_is_told_of_when_it_has_some(fake, path):
    comm = Unready(fake)
    log = clog(str(path), [])
    log._log.watch(comm)
    assert len(lines(path)) == 1
    comm.size = 3
    fake.barrier()
    fake.barrier()
    assert lines(path)[1] == "new_comm|comm=main|rank=1|world_size=3"
    assert sum("new_comm" in line for line in lines(path)) == 1
