# SPDX-License-Identifier: BSD-3-Clause
"""The table of a benchmark, and the same figures as JSON."""

import json
import os
import platform
import sys

import torch

from torchcomms.bench.measure import ratio

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text):
    """Bytes of "8", "64K", "1M" or "2G"."""
    number, unit = text.strip(), ""
    if number and number[-1].upper() in "KMG":
        number, unit = number[:-1], number[-1].upper()
    if not number.isdecimal():
        raise ValueError(f"'{text}' is no size: 8, 64K, 1M, 2G are")
    return int(number) * _UNITS[unit]


def show_size(nbytes):
    for unit in "GMK":
        if nbytes and nbytes % _UNITS[unit] == 0:
            return f"{nbytes // _UNITS[unit]}{unit}"
    return str(nbytes)


def show_microseconds(seconds):
    us = seconds * 1e6
    if us < 100:
        return f"{us:.2f}"
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def machine():
    """What a reader needs to know of the place the figures come from."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            found = [line for line in lines if line.startswith("model name")]
        name = found[0].split(":", 1)[1].strip() if found else name
    except OSError:
        pass
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


class Row:
    """The figures of one case: ours first, a peer's None where it refused."""

    def __init__(self, case, timings, right):
        self.case = case
        self.timings = timings
        self.right = right

    def ours(self):
        return next(iter(self.timings.values()))

    def as_dict(self):
        case, ours = self.case, self.ours()
        return {
            "op": case.operation.name,
            "ranks": case.ranks,
            "bytes": case.nbytes,
            "dtype": str(case.dtype).removeprefix("torch."),
            "right": self.right,
            "bus_gb_per_s": case.bus_gigabytes(ours.median()),
            "times": {
                name: timing
                and {
                    "us_med": timing.median() * 1e6,
                    "us_p10": timing.at(0.1) * 1e6,
                    "us_p90": timing.at(0.9) * 1e6,
                    "bursts": len(timing.seconds),
                    "calls_per_burst": timing.calls,
                    "ours_by_this": ratio(ours, timing),
                }
                for name, timing in self.timings.items()
            },
        }


class Table:
    """Lines of fixed width, so that a row can be shown as soon as it is measured."""

    def __init__(self, peers):
        self.peers = peers

    def header(self):
        line = f"{'op':<14} {'bytes':>6} {'dtype':<8} {'us':>8} {'p10':>8} {'p90':>8}"
        line += f" {'GB/s':>7}"
        for peer in self.peers:
            line += f" {peer + ' us':>10} {'ours/it':>8}"
        return line

    def line(self, row):
        case, ours = row.case, row.ours()
        bus = case.bus_gigabytes(ours.median())
        dtype = str(case.dtype).removeprefix("torch.")
        size = show_size(case.nbytes) if case.operation.out_blocks else "-"
        line = f"{case.operation.name:<14} {size:>6} {dtype:<8}"
        for value in (ours.median(), ours.at(0.1), ours.at(0.9)):
            line += f" {show_microseconds(value):>8}"
        line += f" {bus:>7.2f}" if bus else f" {'-':>7}"
        for peer in self.peers:
            timing = row.timings[peer]
            if timing is None:
                line += f" {'-':>10} {'-':>8}"
            else:
                us = show_microseconds(timing.median())
                line += f" {us:>10} {ratio(ours, timing):>8.3f}"
        wrong = [name for name, right in row.right.items() if right is False]
        return line + "".join(f"  {name}: WRONG RESULT" for name in wrong)


def write_json(path, rows, ranks):
    content = {
        "command": [os.path.basename(sys.executable), *sys.orig_argv[1:]],
        "machine": machine(),
        "ranks": ranks,
        "rows": [row.as_dict() for row in rows],
    }
    with open(path, "w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
