# SPDX-License-Identifier: BSD-3-Clause
"""Which plots a report has: rows of a run to series over the size."""

import statistics

from torchcomms.bench.line import PLACEMENTS
from torchcomms.bench.svg import Plot, Series
from torchcomms.bench.table import OURS

LIMIT = "limit"

# Ours stands out; told apart also by those who see no red and green.
_COLORS = {
    OURS: "#d1410c",
    "gloo": "#7a7f87",
    "mpich": "#0072b2",
    "openmpi": "#009e73",
    "impi": "#8e5fb8",
    LIMIT: "#222222",
}
_MORE_COLORS = ("#b8860b", "#56b4e9", "#cc79a7")


def color_of(name, names):
    if name in _COLORS:
        return _COLORS[name]
    others = [each for each in names if each not in _COLORS]
    return _MORE_COLORS[others.index(name) % len(_MORE_COLORS)]


def contenders(rows):
    """Ours first, then the others as they were measured."""
    return list(dict.fromkeys(name for row in rows for name in row["right"]))


def groups(rows):
    """Rows with the figures of one placement: by ranks, dtype and placement."""
    found = {}
    ops = list(dict.fromkeys(row["op"] for row in rows))
    for row in sorted(rows, key=lambda row: (ops.index(row["op"]), row["bytes"])):
        for place, placed in row["placements"].items():
            key = row["ranks"], row["dtype"], place
            found.setdefault(key, []).append((row, placed))

    def order(key):
        ranks, dtype, place = key
        return ranks, dtype, PLACEMENTS.index(place)

    return {key: found[key] for key in sorted(found, key=order)}


def _series(name, names, values, dashed=False):
    """Values by size; ours has one a session, of which the median is shown."""
    points = [(size, statistics.median(found)) for size, found in values.items()]
    return Series(name, color_of(name, names), points, dashed)


def _collect(group, value):
    """By size the values, above 0, that `value` finds in the figures of a row."""
    found = {}
    for row, placed in group:
        one = value(placed)
        if row["bytes"] and one:
            found.setdefault(row["bytes"], []).append(one)
    return found


def _times_plot(group, names, title, unit, key):
    plot = Plot(title, unit)
    for name in names:
        values = _collect(group, lambda p, name=name: p["times"].get(name, {}).get(key))
        plot.series.append(_series(name, names, values))
    return plot


def _ratio_plot(group, names, title, has_limit):
    plot = Plot(title, "our time / theirs, below 1 ours is faster", level=1)
    for name in names:
        values = _collect(group, lambda p, name=name: p["ours_by"].get(name))
        plot.series.append(_series(name, names, values))
    if has_limit:
        values = _collect(group, lambda placed: placed.get("ours_by_limit"))
        plot.series.append(_series(LIMIT, names, values, dashed=True))
    return plot


def plots_of(op, group, names):
    """Those of one operation, of which the empty ones are left out."""
    mine = [(row, placed) for row, placed in group if row["op"] == op]
    time = _times_plot(mine, names, f"{op}: time", "microseconds", "us_med")
    limit = _collect(mine, lambda placed: placed.get("limit_us"))
    if limit:
        time.series.append(_series(LIMIT, names, limit, dashed=True))
    bus = "GB/s of the busiest link"
    to_whom = "ratio to each peer and to the limit" if limit else "ratio to each peer"
    found = [
        time,
        _times_plot(mine, names, f"{op}: bus bandwidth", bus, "bus_gb_per_s"),
        _ratio_plot(mine, names, f"{op}: {to_whom}", bool(limit)),
    ]
    return [plot for plot in found if any(each.points for each in plot.series)]
