# SPDX-License-Identifier: BSD-3-Clause
"""The report: one page that needs nothing besides itself."""

from html import escape

from torchcomms.bench.line import ANY, FAR, NEAR, SHARED
from torchcomms.bench.plots import LIMIT, color_of, contenders, groups, plots_of
from torchcomms.bench.svg import draw
from torchcomms.bench.table import OURS
from torchcomms.bench.units import show_microseconds, show_size

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2127; background: #fff;
  max-width: 1340px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.7em; } h2 { margin-top: 2em; border-bottom: 1px solid #ccd; }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f4f5f7; }
code { overflow-wrap: anywhere; } dt { font-weight: 600; float: left; width: 9em; }
dd { margin: 0 0 .2em 9em; } .plots { display: flex; flex-wrap: wrap; gap: 4px; }
.legend span { margin-right: 1.4em; white-space: nowrap; }
.legend i { display: inline-block; width: 1.6em; height: 0; margin-right: .4em;
  border-top: 3px solid; vertical-align: middle; }
svg { max-width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg .title { font-size: 13px; font-weight: 600; } svg .label { fill: #444; }
svg .grid { stroke: #e3e5e9; } svg .axis { stroke: #8a8f98; fill: none; }
svg .line { fill: none; stroke-width: 1.8; }
svg .level { stroke: #1d2127; stroke-width: 1.2; stroke-dasharray: 2 3; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #e3e5e9; }
td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
details { overflow-x: auto; } summary { cursor: pointer; }
"""
_PLACES = {
    NEAR: "CPUs near each other",
    FAR: "CPUs far from each other",
    SHARED: "one CPU for both ranks",
    ANY: "CPUs not looked for",
}
_NOTES = """
<p>A time is the median, over bursts of about a millisecond, of a call at the slowest
rank. Contenders take turns in the same processes; a ratio divides the medians of the
same rounds, and below 1 ours is faster. Before and after each round a bare cache line
goes to the other rank and back: rounds in which that time moved by more than 25 % do
not count, and those below and above 0.25 us (near, far) are apart, since a host that
moves the CPUs changes every small time up to fourfold. Bytes are what one rank
contributes or gets; for all_gather, reduce_scatter, all_to_all, gather and scatter
one rank's block. Bus bandwidth is by the convention of nccl-tests, in 1e9 bytes a
second. Where several peers were measured, ours has a time beside each; the plots of
time and bandwidth show their median. The limit is the memory traffic that no
all_reduce of 2 ranks avoids, on buffers that stay in the caches (limit.c), and never
less than half a line round trip.</p>
"""


def _head(content):
    place, rows = content["machine"], content["rows"]
    cache = show_size(place["last_level_cache"])
    rotated = sorted({row["buffers"] for row in rows if row["bytes"]})
    buffers = (
        "one" if rotated[-1:] in ([], [1]) else f"up to {rotated[-1]}, in rotation"
    )
    dropped = sum(row["rounds_dropped"] for row in rows)
    kept = sum(p["rounds"] for row in rows for p in row["placements"].values())
    facts = {
        "Machine": f"{place['cpu']}, {place['cores']} CPUs, last cache {cache}, "
        f"{place['system']}, load {place['load']} before",
        "Versions": ", ".join(f"{k}: {v}" for k, v in content["versions"].items()),
        "Buffers": f"{buffers}",
        "Rounds": f"{kept} counted, {dropped} dropped since the CPUs were moved",
    }
    yield "<h1>torchcomms: times of collectives</h1>"
    yield f"<p><code>{escape(' '.join(content['command']))}</code></p><dl>"
    yield from (f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    yield f"</dl>{_NOTES}"


def _legend(names, has_limit):
    shown = [
        f'<span><i style="border-color:{color_of(name, names)}"></i>'
        f"{escape(name)}</span>"
        for name in names
    ]
    if has_limit:
        dashed = "border-top-style:dashed"
        color = color_of(LIMIT, names)
        shown.append(
            f'<span><i style="border-color:{color};{dashed}"></i>{LIMIT}</span>'
        )
    return f'<p class="legend">{"".join(shown)}</p>'


def _cells(names, row, placed):
    yield row["op"]
    yield show_size(row["bytes"]) if row["bytes"] else "-"
    yield str(row["buffers"])
    yield f"{placed['line_us']:.2f}"
    yield str(placed["rounds"])
    ours = placed["times"][OURS]
    yield show_microseconds(ours["us_med"])
    yield f"{show_microseconds(ours['us_p10'])} to {show_microseconds(ours['us_p90'])}"
    yield f"{ours['bus_gb_per_s']:.2f}" if ours["bus_gb_per_s"] else "-"
    for name in names[1:]:
        times = placed["times"].get(name)
        yield show_microseconds(times["us_med"]) if times else "-"
        yield f"{placed['ours_by'][name]:.3f}" if times else "-"
    yield f"{placed['ours_by_limit']:.2f}" if "ours_by_limit" in placed else "-"
    wrong = [name for name, right in row["right"].items() if right is False]
    yield f"wrong: {', '.join(wrong)}" if wrong else ""


def _table(group, names):
    titles = ["operation", "bytes", "buffers", "line us", "rounds", "ours us",
              "p10 to p90", "GB/s"]  # fmt: skip
    for name in names[1:]:
        titles += [f"{name} us", "ours/it"]
    head = "".join(f"<th>{escape(t)}</th>" for t in [*titles, "ours/limit", ""])
    yield f"<details><summary>All figures</summary><table><tr>{head}</tr>"
    for row, placed in group:
        cells = "".join(f"<td>{escape(c)}</td>" for c in _cells(names, row, placed))
        yield f"<tr>{cells}</tr>"
    yield "</table></details>"


def _section(key, group):
    ranks, dtype, place = key
    names = contenders([row for row, _ in group])
    lines = [placed["line_us"] for _, placed in group]
    line = f", line {min(lines):.2f} to {max(lines):.2f} us" if lines[0] else ""
    yield f"<h2>{ranks} ranks, {dtype}, {_PLACES[place]}{line}</h2>"
    yield _legend(names, any("limit_us" in placed for _, placed in group))
    for op in dict.fromkeys(row["op"] for row, _ in group):
        pictures = [draw(plot) for plot in plots_of(op, group, names)]
        if pictures:
            yield f'<div class="plots">{"".join(pictures)}</div>'
    yield from _table(group, names)


def render(content):
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        "<title>torchcomms: times of collectives</title>",
        f"<style>{_STYLE}</style></head><body>",
        *_head(content),
    ]
    for key, group in groups(content["rows"]).items():
        parts += _section(key, group)
    return "\n".join([*parts, "</body></html>\n"])


def write(directory, content):
    """Writes index.html there and returns its path."""
    path = directory / "index.html"
    path.write_text(render(content), encoding="utf-8")
    return path
