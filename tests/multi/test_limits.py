# SPDX-License-Identifier: BSD-3-Clause
"""Too few descriptors, too little memory, too few cores: an error or success."""

import ctypes
import mmap
import os
import pathlib
import resource
from datetime import timedelta

import pytest
import torch

import torchcomms
from multi.support import cells

SUM = torchcomms.ReduceOp.SUM
SHORT = timedelta(seconds=5)
MEBI = 1 << 20
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_REC_PRIVATE = 16384 | 262144
EPERM = 1


def check_sum(comm, count):
    size = comm.get_size()
    t = torch.full((count,), comm.get_rank() + 1.0)
    comm.all_reduce(t, SUM, False)
    assert torch.equal(t, torch.full((count,), size * (size + 1) / 2))


def attempt(me, name, timeout=None):
    """None, or the error of making and using a communicator."""
    comm = None
    try:
        comm = me.comm(name, timeout=timeout)
        for count in (4, 100_000):
            check_sum(comm, count)
        comm.broadcast(torch.ones(1_000_000), 0, True).wait()
        comm.barrier(False)
    except (RuntimeError, MemoryError, OSError) as error:
        if comm is not None:
            comm.abort()
        return f"{type(error).__name__}: {error}"
    return None


def limited(me, which, room, limited_rank):
    """One attempt under a limit that leaves `room`, then one without it."""
    kind = getattr(resource, which)
    old = resource.getrlimit(kind)
    if me.rank == limited_rank:
        resource.setrlimit(kind, (used(which) + room, old[1]))
    try:
        outcome = attempt(me, "limited", SHORT)
    finally:
        resource.setrlimit(kind, old)
    after = attempt(me, "after")
    assert after is None, after
    return outcome


def used(which):
    if which == "RLIMIT_NOFILE":
        # What a new descriptor would be: the limit is on the number, not the count.
        fd = os.open("/", os.O_RDONLY)
        os.close(fd)
        return fd
    if which == "RLIMIT_AS":
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        return pages * mmap.PAGESIZE
    return 0


def sweep(pool, which, rooms, limited_rank):
    """Runs all rooms; returns the outcome of every rank for each."""
    outcomes = {}
    for room in rooms:
        outcomes[room] = by_rank = pool.run(limited, which, room, limited_rank)
        failed = [outcome is not None for outcome in by_rank]
        assert all(failed) or not any(failed), (room, by_rank)
    return outcomes


@pytest.mark.parametrize("limited_rank", [0, 1])
def test_too_few_descriptors(fresh, limited_rank):
    outcomes = sweep(fresh(2), "RLIMIT_NOFILE", range(14), limited_rank)
    assert outcomes[0][limited_rank] is not None
    # Enough is enough: the limit is what failed.
    assert outcomes[13] == [None, None]


@pytest.mark.parametrize("limited_rank", [0, 1])
def test_too_little_address_space(fresh, limited_rank):
    rooms = [0, MEBI // 4, MEBI, 2 * MEBI, 4 * MEBI, 9 * MEBI, 16 * MEBI, 1024 * MEBI]
    outcomes = sweep(fresh(2), "RLIMIT_AS", rooms, limited_rank)
    assert outcomes[0][limited_rank] is not None
    assert outcomes[rooms[-1]] == [None, None]


def test_a_file_size_limit_below_the_segment(fresh):
    """Making the segment is refused by the system; Python ignores its signal."""
    outcomes = sweep(fresh(2), "RLIMIT_FSIZE", [4096, 1024 * MEBI], 0)
    assert all("RuntimeError" in outcome for outcome in outcomes[4096]), outcomes
    assert outcomes[1024 * MEBI] == [None, None]


def call_libc(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def tiny_shm():
    """A full /dev/shm of one page that only this process sees."""
    uid = os.getuid()
    flags = CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)
    call_libc("unshare", flags)
    if uid:
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    call_libc("mount", b"none", b"/", None, MS_REC_PRIVATE, None)
    call_libc("mount", b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=4k")
    with open("/dev/shm/full", "wb", buffering=0) as file:
        file.write(bytes(4096))
        with pytest.raises(OSError, match="No space"):
            file.write(b"1")


def full_shm(me):
    try:
        tiny_shm()
    except PermissionError as error:
        return f"no private mounts here: {error}"
    outcome = attempt(me, "main")
    assert outcome is None, outcome
    assert os.listdir("/dev/shm") == ["full"]
    return None


def test_a_full_shm_does_not_matter(fresh):
    reasons = fresh(2).run(full_shm)
    if any(reasons):
        pytest.skip(reasons[0])


def crowd(me):
    """Far more ranks than cores."""
    comm = me.comm()
    wrong = []
    for dtype, count in [
        (torch.float32, 5),
        (torch.int64, 3000),
        (torch.uint8, 70_000),
    ]:
        maker = cells.Maker(me, comm, dtype, count)
        for asynchronous in (False, True):
            wrong += cells.run(maker.movements(), asynchronous)
            wrong += cells.run(maker.reductions("SUM"), asynchronous)
    return wrong


def test_more_ranks_than_cores(fresh):
    size = max(8, 2 * len(os.sched_getaffinity(0)))
    size = min(size, 16)
    assert fresh(size).run(crowd) == [[]] * size


PROT_READ_WRITE = 3
MAP_SHARED_FIXED = 1 | 16
MAP_NORESERVE = 0x4000


class Folded:
    """More than 4 GiB of addresses over a few MiB of memory, seen again and again."""

    def __init__(self, size, memory=4 * MEBI):
        self.fd = os.memfd_create("folded")
        os.ftruncate(self.fd, memory)
        self._space = mmap.mmap(-1, size + memory, mmap.MAP_PRIVATE | MAP_NORESERVE)
        self.tensor = torch.frombuffer(self._space, dtype=torch.uint8)[:size]
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int),
            *(ctypes.c_int, ctypes.c_long),
        ]
        start = self.tensor.data_ptr()
        for at in range(start, start + size, memory):
            flags = (PROT_READ_WRITE, MAP_SHARED_FIXED)
            assert libc.mmap(at, memory, *flags, self.fd, 0) == at
        self.memory = torch.frombuffer(mmap.mmap(self.fd, memory), dtype=torch.uint8)


def beyond_32_bits(me):
    """Counts in elements and in bytes that 32 bits do not hold."""
    comm = me.comm()
    size = (1 << 32) + 3 * MEBI + 5
    folded = Folded(size)
    content = (torch.arange(folded.memory.numel(), dtype=torch.int32) % 251).byte()
    if me.rank == 0:
        folded.memory.copy_(content)
    comm.broadcast(folded.tensor, 0, False)
    assert torch.equal(folded.memory, content)
    check_sum(comm, 4)


def test_counts_beyond_32_bits(fresh):
    fresh(2).run(beyond_32_bits)
