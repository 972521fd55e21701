# SPDX-License-Identifier: BSD-3-Clause
"""Figures of a case: medians and ratios of the rounds that count, for each placement.

A row is a plain dictionary, the same in JSON, table and page.
"""

import statistics

from torchcomms.bench.line import PLACEMENTS


def _at(values, share):
    """The value below which this share of the rounds lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _times(case, seconds):
    return {
        "us_med": statistics.median(seconds) * 1e6,
        "us_p10": _at(seconds, 0.1) * 1e6,
        "us_p90": _at(seconds, 0.9) * 1e6,
        "bus_gb_per_s": case.bus_gigabytes(statistics.median(seconds)),
    }


def _of_placement(case, names, rounds, chosen):
    """Figures of the chosen rounds; the first of `names` is ours."""
    taken = [[seconds[i] for i in chosen] for seconds in rounds.seconds]
    medians = [statistics.median(seconds) for seconds in taken]
    lines = [value for i in chosen for value in rounds.lines[i]]
    return {
        "rounds": len(chosen),
        "line_us": statistics.median(lines) * 1e6,
        "times": {
            name: _times(case, seconds)
            for name, seconds in zip(names, taken, strict=True)
        },
        "ours_by": {
            name: medians[0] / median
            for name, median in zip(names[1:], medians[1:], strict=True)
        },
    }


def row(case, right, rounds):
    """`right` has every contender, ours first, and None for one that refused."""
    names = [name for name, verdict in right.items() if verdict is not None]
    places = rounds.places()
    placements = {}
    for place in PLACEMENTS:
        chosen = [i for i, found in enumerate(places) if found == place]
        if chosen:
            placements[place] = _of_placement(case, names, rounds, chosen)
    return {
        "op": case.operation.name,
        "ranks": case.ranks,
        "bytes": case.nbytes,
        "dtype": str(case.dtype).removeprefix("torch."),
        "buffers": len(case.places),
        "right": right,
        "calls": dict(zip(names, rounds.calls, strict=True)),
        "rounds_dropped": places.count(None),
        "placements": placements,
    }
