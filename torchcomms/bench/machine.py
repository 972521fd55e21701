# SPDX-License-Identifier: BSD-3-Clause
"""What a reader needs to know of the place the figures come from."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

import torch

import torchcomms

_CACHES = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN_CACHE = 32 << 20


def _cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def last_level_cache():
    """Bytes of the largest cache of a CPU; a guess where the system does not tell."""
    try:
        sizes = [path.read_text().strip() for path in _CACHES.glob("index*/size")]
        return max(int(size.removesuffix("K")) << 10 for size in sizes)
    except (OSError, ValueError):
        return _UNKNOWN_CACHE


def machine():
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "last_level_cache": last_level_cache(),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def _source():
    """The commit that torchcomms runs from, else the version that is installed."""
    package = pathlib.Path(torchcomms.__file__).resolve().parent
    describe = ["git", "-C", str(package), "describe", "--always", "--dirty"]
    try:
        tracked = ["git", "-C", str(package), "ls-files", "--error-unmatch", "bench"]
        subprocess.run(tracked, check=True, capture_output=True)
        done = subprocess.run(describe, check=True, capture_output=True, text=True)
        return f"commit {done.stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        pass
    try:
        return importlib.metadata.version("torchcomms")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def versions():
    return {
        "torchcomms": _source(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
