# SPDX-License-Identifier: BSD-3-Clause
"""api.md 9: Ends of reconfigured communicators: dropped, forked, left at exit."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch

import torchcomms

CPU = torch.device("cpu")


def make(name="flock"):
    return torchcomms.new_comm("ncclx", CPU, name, enable_reconfigure=True)


def form(comms, uuid):
    """All communicators of this list, each on a thread."""
    handles = [comm.get_init_handle() for comm in comms]
    threads = [
        threading.Thread(target=comm.reconfigure, args=(uuid, handles))
        for comm in comms
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [comm.get_size() for comm in comms] == [len(comms)] * len(comms)


def test_a_work_outlives_its_membership_and_its_communicator():
    pair = [make(), make()]
    form(pair, 0)
    works = [pair[0].recv(torch.empty(3), 1, True) for _ in range(3)]
    form(pair[:1], 1)
    form(pair, 2)
    seen = weakref.ref(pair[0])
    for comm in pair:
        comm.finalize()
    del comm
    pair.clear()
    gc.collect()
    assert seen() is None
    for work in works:
        with pytest.raises(RuntimeError, match="rank 0 left it for membership 1"):
            work.wait()


def test_dropped_without_ranks():
    handle = make().get_init_handle()
    again = make()
    again.reconfigure(0, [again.get_init_handle()])
    with pytest.raises(RuntimeError, match="is gone: nobody listens"):
        again.reconfigure(1, [again.get_init_handle(), handle])
    again.finalize()


def in_a_child(comm, handle):
    try:
        for call in (
            comm.get_init_handle,
            comm.finalize,
            lambda: comm.reconfigure(1, [handle]),
        ):
            with pytest.raises(RuntimeError, match="forked child"):
                call()
        assert not comm.is_aborted()
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.filterwarnings("ignore:This process")
def test_in_a_forked_child():
    comm = make()
    handle = comm.get_init_handle()
    comm.reconfigure(0, [handle])
    pid = os.fork()
    if pid == 0:
        in_a_child(comm, handle)
    assert os.waitpid(pid, 0)[1] == 0
    comm.reconfigure(1, [handle])
    comm.all_reduce(torch.ones(3), torchcomms.ReduceOp.SUM, False)
    comm.finalize()


LEFT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_face_reconfigure import form, make
import torch
pair = [make(), make()]
never = make()
never.get_init_handle()
form(pair, 0)
works = [pair[0].recv(torch.empty(3), 1, True) for _ in range(3)]
form(pair[:1], 1)
form(pair, 2)
works += [pair[1].recv(torch.empty(3), 0, True)]
"""


def test_what_is_left_at_exit_is_left_quietly():
    done = subprocess.run(
        [sys.executable, "-c", LEFT, os.path.dirname(__file__)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
