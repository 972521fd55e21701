# SPDX-License-Identifier: BSD-3-Clause
"""What ranks could leave behind: processes, files in /dev/shm, sockets."""

import os
import pathlib
import re
import time

from multi.support.ranks import SESSION

LIMIT_S = 10
INTERVAL_S = 0.02
SHM = pathlib.Path("/dev/shm")


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _processes():
    return [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()]


def _is_ours(process, session):
    return f"{SESSION}={session}".encode() in _read(process / "environ").split(b"\0")


def _links(process):
    """What its descriptors point to."""
    try:
        fds = list((process / "fd").iterdir())
    except OSError:
        return []
    links = []
    for fd in fds:
        try:
            links.append(os.readlink(fd))
        except OSError:
            continue
    return links


def _sockets():
    """Inode to name of the abstract sockets of torchcomms."""
    found = {}
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and re.match("@.*torchcomms", fields[7]):
            found[fields[6]] = fields[7]
    return found


def shm_files():
    return {str(p) for p in SHM.rglob("*")} if SHM.is_dir() else set()


def _others_files(processes):
    """The files of /dev/shm that these processes use."""
    used = set()
    for process in processes:
        used |= set(re.findall(r"/dev/shm/\S+", _read(process / "maps").decode()))
        used |= set(_links(process))
    return used


def find(session, expected_pids, shm_before):
    """What is there now that should not be, as lines of text. What processes of another
    session hold is theirs: the machine may run other things."""
    ours = [p for p in _processes() if _is_ours(p, session)]
    others = [p for p in _processes() if p not in ours]
    problems = []
    for process in ours:
        if int(process.name) not in expected_pids:
            command = _read(process / "cmdline").replace(b"\0", b" ").decode()
            problems.append(f"process {process.name}: {command}")
    sockets = _sockets()
    if sockets:
        theirs = {link for p in others for link in _links(p)}
        problems += [
            f"socket {name}"
            for inode, name in sockets.items()
            if f"socket:[{inode}]" not in theirs
        ]
    files = shm_files() - shm_before
    if files:
        problems += [f"file {f}" for f in sorted(files - _others_files(others))]
    return problems


def find_lasting(session, expected_pids, shm_before):
    """The same, after what is about to go has had time to go."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        problems = find(session, expected_pids, shm_before)
        if not problems or time.monotonic() > deadline:
            return problems
        time.sleep(INTERVAL_S)
