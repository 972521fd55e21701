# SPDX-License-Identifier: BSD-3-Clause
"""api.md 1, 5: MemAllocator: which tensors it makes, how long they last, and what it
refuses."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

import torchcomms

REGION = 64 * 1024 * 1024
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.uint64,
    torch.bfloat16,
    torch.float64,
    torch.complex128,
    torch.float8_e4m3fn,
]


@pytest.fixture
def allocator(alone):
    return alone.get_mem_allocator()


def heap_files():
    """How many regions this process has open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # that of the listing
    return sum("torchcomms-heap" in link for link in links)


def test_one_allocator_for_a_backend(pair, fake):
    allocator = torchcomms.get_mem_allocator("ncclx")
    assert isinstance(allocator, torchcomms.MemAllocator)
    for comm in pair:
        assert comm.get_mem_allocator() is allocator
        assert comm.mem_allocator is allocator
    assert repr(allocator) == "<MemAllocator of backend 'ncclx'>"
    with pytest.raises(TypeError):
        torchcomms.MemAllocator()


def test_backends_without_one(fake):
    for name, get in {
        "fake": fake.get_mem_allocator,
        "gloo-2": lambda: torchcomms.get_mem_allocator("gloo-2"),
    }.items():
        text = f"^No allocator factory registered for backend '{name}'$"
        with pytest.raises(RuntimeError, match=text):
            get()
    with pytest.raises(RuntimeError, match="No allocator factory"):
        _ = fake.mem_allocator
    with pytest.raises(TypeError):
        torchcomms.get_mem_allocator(3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_are_like_those_of_torch(allocator, dtype):
    for shape in [(), (0,), (3,), (2, 0, 4), (5, 7)]:
        ours, theirs = allocator.empty(shape, dtype), torch.empty(shape, dtype=dtype)
        for each in ("shape", "dtype", "device", "requires_grad", "is_leaf", "layout"):
            assert getattr(ours, each) == getattr(theirs, each)
        assert ours.stride() == theirs.stride()
        assert not ours._is_view()
        assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
        values = torch.randint(2, shape).to(dtype)
        assert ours.copy_(values).tolist() == values.tolist()


def test_defaults_and_names(allocator):
    assert allocator.empty(5).dtype is torch.float32
    assert allocator.empty(5).shape == (5,)
    assert allocator.empty(shape=[2, 3], dtype=None).shape == (2, 3)
    assert allocator.empty(torch.Size([4]), torch.int8).dtype is torch.int8


def test_gradients_go_through(allocator):
    weight = allocator.empty((3, 3)).fill_(0.5).requires_grad_()
    state = allocator.empty(3).zero_()
    state += weight @ torch.ones(3)
    state.mul_(2.0)
    state.sum().backward()
    assert torch.equal(weight.grad, torch.full((3, 3), 2.0))


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "text"),
    [
        (-1, None, RuntimeError, r"shape must not be negative, but got \(-1,\)"),
        ([2, "x"], None, TypeError, "shape must be an int"),
        (1.5, None, TypeError, "shape must be an int or a sequence of ints"),
        (3, "float32", TypeError, "dtype must be a torch.dtype, but got"),
        (2**62, None, RuntimeError, "more than any memory"),
        ([2**31, 2**31], None, RuntimeError, "more than any memory"),
        (2**50, torch.int8, RuntimeError, f"{2**50} bytes"),
    ],
)
def test_refusals(allocator, shape, dtype, error, text):
    with pytest.raises(error, match=text):
        allocator.empty(shape, dtype)
    allocator.empty(1)


def test_memory_lives_as_long_as_the_last_view(allocator):
    tensor = allocator.empty(1000, torch.int64).fill_(7)
    address = tensor.data_ptr()
    view = tensor[500:]
    del tensor
    gc.collect()
    other = allocator.empty(1000, torch.int64).fill_(1)
    assert other.data_ptr() != address
    assert view.sum() == 7 * 500
    del view
    gc.collect()
    again = allocator.empty(1000, torch.int64)
    assert again.data_ptr() == address


def test_many_cycles_hold_memory_and_descriptors_flat(allocator):
    kept = allocator.empty(10)
    before = heap_files()
    for i in range(3000):
        tensors = [allocator.empty(1 + 997 * (i + k) % 50_000) for k in range(3)]
        tensors[i % 3].zero_()
        del tensors
    for _ in range(20):
        big = allocator.empty(REGION // 4 + 1)
        big[-1] = 1.0
        del big
    assert heap_files() <= before + 1
    del kept


def test_any_thread_may_free(allocator):
    tensors = [allocator.empty(10_000) for _ in range(64)]
    addresses = sorted(t.data_ptr() for t in tensors)

    def drop():
        while tensors:
            try:
                tensors.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = [allocator.empty(10_000) for _ in range(64)]
    assert sorted(t.data_ptr() for t in again) == addresses


def test_tensors_outlive_their_communicator(world):
    world(0, 1)
    comm = torchcomms.new_comm("ncclx", torch.device("cpu"), name="short")
    tensor = comm.get_mem_allocator().empty(4).fill_(3.0)
    allocator = comm.get_mem_allocator()
    comm.finalize()
    assert comm.get_mem_allocator() is allocator
    del comm
    gc.collect()
    assert tensor.sum() == 12
    assert allocator.empty(4).fill_(1.0).sum() == 4


def run(program):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_whoever_holds_the_last_view_the_process_ends_in_order():
    run("""
        import sys, types
        import torch, torchcomms
        allocator = torchcomms.get_mem_allocator("ncclx")
        cycle = types.SimpleNamespace(tensor=allocator.empty(10))
        cycle.self = cycle
        sys.tensor_of_a_module = allocator.empty(10)
        sys.modules["torchcomms"].tensor = allocator.empty(10)
    """)


def test_an_allocation_at_exit_is_refused():
    out = run("""
        import atexit
        import torch, torchcomms
        allocator = torchcomms.get_mem_allocator("ncclx")

        def late():
            print(kept.sum().item())
            try:
                allocator.empty(1)
            except RuntimeError as error:
                print(error)

        atexit.register(late)
        kept = allocator.empty(1000).fill_(1.0)
    """)
    assert out.splitlines()[0] == "1000.0"
    assert "exiting" in out.splitlines()[1]


def test_a_forked_child_reads_and_has_a_heap_of_its_own(allocator):
    """What the child drops stays with the parent."""
    tensor = allocator.empty(1000, torch.int64).fill_(5)
    address = tensor.data_ptr()
    child = os.fork()
    if child == 0:
        good = tensor.sum().item() == 5000
        own = allocator.empty(1000, torch.int64).fill_(6)
        good = good and own.data_ptr() != address and tensor[0].item() == 5
        del tensor, own
        gc.collect()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tensor.sum() == 5000
    assert allocator.empty(1000, torch.int64).data_ptr() != address
