# SPDX-License-Identifier: BSD-3-Clause
"""Runs functions of a test module on N ranks, each a process of its own."""

import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

WORKER = pathlib.Path(__file__).with_name("worker.py")
LIMIT_S = 120
STACKS_S = 2
LOG_BYTES = 8000
SESSION = "TC_TEST_SESSION"

# What a shell or a CI job may have set and what would reach every rank.
FOREIGN = ("TORCHCOMM", "OMPI_", "PMI_", "PALS_", "TORCHELASTIC", "MASTER_")


class RanksFailed(AssertionError):
    """A rank raised, died or did not answer; the text has all ranks."""


@dataclass
class Outcome:
    """How a call ended on one rank: `value`, or `error` (a traceback), or `exit`, the
    status of a process that ended without an answer (negative: by that signal)."""

    value: object = None
    error: str | None = None
    exit: int | None = None

    @property
    def ok(self):
        return self.error is None and self.exit is None


def environment(session):
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        env.pop(name, None)
    env |= {
        "OMP_NUM_THREADS": "1",
        "TORCHCOMM_TIMEOUT_SECONDS": "60",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        SESSION: session,
    }
    return env


class Zygote:
    """The process that ranks are forked from."""

    def __init__(self):
        self.session = uuid.uuid4().hex
        self.env = environment(self.session)
        self.folder = tempfile.TemporaryDirectory(prefix="torchcomms-multi-")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self.env,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._control.settimeout(LIMIT_S)
        assert self._reply() == "ready"

    @property
    def pid(self):
        return self._process.pid

    def _reply(self):
        data = self._control.recv(1 << 16)
        assert data, "the process that ranks are forked from has died"
        return pickle.loads(data)

    def fork(self, request, channel, log):
        fds = [channel.fileno(), log.fileno()]
        socket.send_fds(self._control, [pickle.dumps({"do": "fork"} | request)], fds)
        return self._reply()

    def reap(self, pid):
        """The exit status of a rank that has ended or is about to."""
        self._control.send(pickle.dumps({"do": "reap", "pid": pid}))
        return self._reply()

    def close(self):
        self._control.close()
        self._process.wait(LIMIT_S)
        self.folder.cleanup()


class Worker:
    """One rank's process, seen from the test."""

    def __init__(self, zygote, request, folder):
        ours, theirs = socket.socketpair()
        self.zygote = zygote
        self.rank = request["rank"]
        self.log = open(os.path.join(folder, f"rank{self.rank}.log"), "w+b")
        self.log_start = 0
        self.status = None
        with theirs:
            self.pid = zygote.fork(request, theirs, self.log)
        self.pidfd = os.pidfd_open(self.pid)
        self.channel = Connection(ours.detach())

    def text(self):
        """What the rank has written since the call began."""
        end = os.fstat(self.log.fileno()).st_size
        start = max(self.log_start, end - LOG_BYTES)
        return os.pread(self.log.fileno(), end - start, start).decode(errors="replace")

    def send(self, call):
        self.log_start = os.fstat(self.log.fileno()).st_size
        try:
            self.channel.send(call)
        except BrokenPipeError:
            pass  # it has died: seen by `outcome`

    def kill(self, number=signal.SIGKILL):
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass

    def outcome(self):
        """How the call ended, None while it runs."""
        if self.channel.poll():
            try:
                return Outcome(**self.channel.recv())
            except (EOFError, ConnectionResetError):
                pass  # about to end
        if wait([self.pidfd], 0):
            return Outcome(exit=self.exit_status())
        return None

    def exit_status(self):
        if self.status is None:
            self.status = self.zygote.reap(self.pid)
        return self.status

    def close(self, limit_s):
        """Waits for its exit, which closing the channel has begun."""
        ended = bool(wait([self.pidfd], limit_s))
        if not ended:
            self.kill()
        self.exit_status()
        os.close(self.pidfd)
        self.log.close()
        return ended


class Pool:
    """`size` ranks that run one call after the other."""

    def __init__(self, zygote, size, env=None, whole_exit=False):
        self.size = size
        self.zygote = zygote
        self.failed = False
        self.call_folder = None
        self.folder = tempfile.mkdtemp(dir=zygote.folder.name)
        request = {"size": size, "env": dict(env or {}), "whole_exit": whole_exit}
        self.workers = [
            Worker(zygote, request | {"rank": r}, self.folder) for r in range(size)
        ]
        self._open = list(self.workers)
        self._calls = 0
        self._function = None

    def start(self, function, *args, **kwargs):
        """Begins function(rank, *args, **kwargs) on every rank."""
        self._function = function.__qualname__
        self._calls += 1
        self.call_folder = pathlib.Path(self.folder, f"call{self._calls}")
        self.call_folder.mkdir()
        call = {
            "path": function.__code__.co_filename,
            "function": function.__qualname__,
            "folder": str(self.call_folder),
            "args": args,
            "kwargs": kwargs,
        }
        for worker in self.workers:
            worker.send(call)

    def finish(self, limit_s=LIMIT_S):
        """The outcome of every rank, in rank order."""
        deadline = time.monotonic() + limit_s
        outcomes = {}
        while len(outcomes) < self.size:
            running = [w for w in self.workers if w.rank not in outcomes]
            sources = [s for w in running for s in (w.channel, w.pidfd)]
            left = deadline - time.monotonic()
            if left <= 0 or not wait(sources, left):
                self._give_up(outcomes, limit_s)
            for worker in running:
                outcome = worker.outcome()
                if outcome is not None:
                    outcomes[worker.rank] = outcome
        if not all(outcome.ok for outcome in outcomes.values()):
            self.failed = True
        return [outcomes[r] for r in range(self.size)]

    def run(self, function, *args, limit_s=LIMIT_S, **kwargs):
        """Calls on every rank and returns their values; raises what any of them did."""
        self.start(function, *args, **kwargs)
        outcomes = self.finish(limit_s)
        if not all(outcome.ok for outcome in outcomes):
            raise RanksFailed(self.describe(outcomes))
        return [outcome.value for outcome in outcomes]

    def describe(self, outcomes):
        lines = [f"{self._function} on {self.size} ranks"]
        for worker, outcome in zip(self.workers, outcomes, strict=True):
            if outcome.exit is not None:
                how = f"ended with status {outcome.exit}"
            else:
                how = outcome.error or f"returned {outcome.value!r:.200}"
            lines += [f"--- rank {worker.rank}: {how}", worker.text().rstrip()]
        return "\n".join(line for line in lines if line)

    def _give_up(self, outcomes, limit_s):
        """Reports where each rank stands, and ends them all."""
        running = [w for w in self.workers if w.rank not in outcomes]
        for worker in running:
            worker.kill(signal.SIGUSR1)
        wait([w.pidfd for w in running], STACKS_S)
        text = self.describe(
            [outcomes.get(r, Outcome(error="still running")) for r in range(self.size)]
        )
        self.failed = True
        for worker in self.workers:
            worker.kill()
        raise RanksFailed(f"not over after {limit_s} s: {text}")

    def close(self):
        """Ends the ranks; may be called again."""
        limit_s = 0 if self.failed else LIMIT_S
        workers, self._open = self._open, []
        for worker in workers:
            worker.channel.close()
        ended = [worker.close(limit_s) for worker in workers]
        assert self.failed or all(ended), "a rank did not exit at its end"


class Pools:
    """Pools that serve many tests; one in which a call failed is replaced."""

    def __init__(self, zygote):
        self.zygote = zygote
        self._pools = {}

    def __call__(self, size):
        pool = self._pools.get(size)
        if pool is not None and pool.failed:
            self._pools.pop(size).close()
            pool = None
        if pool is None:
            pool = self._pools[size] = Pool(self.zygote, size)
        return pool

    def pids(self):
        return {w.pid for pool in self._pools.values() for w in pool.workers}

    def close(self):
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
