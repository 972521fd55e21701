# SPDX-License-Identifier: BSD-3-Clause
"""The process that ranks are forked from, and what a rank does.

Importing torch takes seconds, so it is done once, in a process without a communicator
and without threads; ranks are its forks. Run by support/ranks.py as
`worker.py <descriptor of the control socket>`.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import os
import pathlib
import pickle
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection

TESTS = pathlib.Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1


class Rank:
    """What a function of a test gets: who it is, a store and communicators.

    Communicators made here are finalized when the function returns and aborted when it
    raises, so that no other rank waits for this one until its deadline.
    """

    def __init__(self, rank, size, folder):
        self.rank = rank
        self.size = size
        self.folder = folder
        self._comms = []
        self._own_store = None

    def store(self, name="store"):
        from torch.distributed import FileStore

        return FileStore(os.path.join(self.folder, name), self.size)

    def comm(self, name="test", backend="ncclx", **options):
        import torch

        import torchcomms

        # One for all: the file goes with the last object of all ranks, which must not
        # be while one of them is on its way to the next communicator.
        self._own_store = self._own_store or self.store()
        options.setdefault("store", self._own_store)
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(self.rank), str(self.size)
        comm = torchcomms.new_comm(backend, torch.device("cpu"), name, **options)
        return self.keep(comm)

    def keep(self, comm):
        """Also ends a communicator that the function made in another way."""
        self._comms.append(comm)
        return comm

    def _end(self, failed):
        for comm in self._comms:
            if failed and comm.is_abort_supported():
                comm.abort()
            # Broken or finalized by the function: both are the function's to check.
            with contextlib.suppress(RuntimeError):
                comm.finalize()
        self._comms.clear()


def load_module(path):
    name = "multi_" + pathlib.Path(path).stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def run_call(rank, size, call):
    environment = dict(os.environ)
    me = Rank(rank, size, call["folder"])
    failed = True
    try:
        function = getattr(load_module(call["path"]), call["function"])
        value = function(me, *call["args"], **call["kwargs"])
        failed = False
    except BaseException:
        return {"error": traceback.format_exc()}
    finally:
        me._end(failed)
        os.environ.clear()
        os.environ.update(environment)
    return {"value": value}


def answer(channel, reply):
    try:
        channel.send(reply)
    except (TypeError, AttributeError, pickle.PicklingError) as cause:
        channel.send({"error": f"cannot return this value: {cause!r}"})


def serve(channel, rank, size):
    """Runs calls until the other end closes."""
    while True:
        try:
            call = channel.recv()
        except EOFError:
            return
        reply = run_call(rank, size, call)
        sys.stdout.flush()
        sys.stderr.flush()
        answer(channel, reply)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_rank(request, channel_fd, log_fd):
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.update(request["env"])
    serve(Connection(channel_fd), request["rank"], request["size"])


def fork_rank(control, request, fds):
    pid = os.fork()
    if pid == 0:
        control.close()
        become_rank(request, *fds)
        if request["whole_exit"]:
            sys.exit(0)
        # What torchcomms does at exit, without the second that it takes to tear down
        # all of torch.
        atexit._run_exitfuncs()
        os._exit(0)
    for fd in fds:
        os.close(fd)
    return pid


def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(control_fd):
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, str(TESTS))
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch
    import torch.distributed
    import torch.distributed.tensor

    import torchcomms  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()
    control = socket.socket(fileno=control_fd)
    control.send(pickle.dumps("ready"))
    while True:
        data, fds, _flags, _address = socket.recv_fds(control, 1 << 16, 2)
        if not data:
            return
        request = pickle.loads(data)
        if request["do"] == "fork":
            reply = fork_rank(control, request, fds)
        else:
            reply = reap(request["pid"])
        control.send(pickle.dumps(reply))


if __name__ == "__main__":
    main(int(sys.argv[1]))
