# SPDX-License-Identifier: BSD-3-Clause
"""Tables of text: a session line by line, and all peers side by side."""

from torchcomms.bench.line import PLACEMENTS
from torchcomms.bench.mpi_install import WHEELS
from torchcomms.bench.units import show_microseconds, show_size

OURS = "torchcomms"


def _size(row):
    return show_size(row["bytes"]) if row["bytes"] else "-"


def _line_us(placed):
    return f"{placed['line_us']:.2f}" if placed["line_us"] else "-"


class Table:
    """Lines of fixed width, so that a row can be shown as soon as it is measured."""

    def __init__(self, peers):
        self.peers = peers

    def header(self):
        line = f"{'op':<14} {'bytes':>6} {'dtype':<8} {'line':>5}"
        line += f" {'us':>8} {'p10':>8} {'p90':>8} {'GB/s':>7}"
        for peer in self.peers:
            line += f" {peer + ' us':>10} {'ours/it':>8}"
        return line

    def _placed(self, row, placed):
        ours = placed["times"][OURS]
        line = (
            f"{row['op']:<14} {_size(row):>6} {row['dtype']:<8} {_line_us(placed):>5}"
        )
        for key in ("us_med", "us_p10", "us_p90"):
            line += f" {show_microseconds(ours[key]):>8}"
        bus = ours["bus_gb_per_s"]
        line += f" {bus:>7.2f}" if bus else f" {'-':>7}"
        for peer in self.peers:
            times = placed["times"].get(peer)
            if times is None:
                line += f" {'-':>10} {'-':>8}"
            else:
                us = show_microseconds(times["us_med"])
                line += f" {us:>10} {placed['ours_by'][peer]:>8.3f}"
        return line

    def lines(self, row):
        """A line for each placement of the CPUs."""
        wrong = "".join(
            f"  {name}: WRONG RESULT"
            for name, right in row["right"].items()
            if right is False
        )
        for placed in row["placements"].values():
            yield self._placed(row, placed) + wrong
        if not row["placements"]:
            moved = "the CPUs were moved in every round"
            yield f"{row['op']:<14} {_size(row):>6} {row['dtype']:<8} {moved}{wrong}"


def merged(rows):
    """Rows of all sessions by case and placement: peer to the figures beside it."""
    found = {}
    ops = list(dict.fromkeys(row["op"] for row in rows))

    def order(key):
        ranks, op, dtype, nbytes, place = key
        return ranks, ops.index(op), dtype, nbytes, PLACEMENTS.index(place)

    for row in rows:
        for place, placed in row["placements"].items():
            key = row["ranks"], row["op"], row["dtype"], row["bytes"], place
            for peer in placed["ours_by"]:
                found.setdefault(key, {})[peer] = placed
    return {key: found[key] for key in sorted(found, key=order)}


def fastest_mpi(beside):
    """Our ratio to the MPI that does best against us in its own rounds; or None."""
    ratios = [
        placed["ours_by"][peer] for peer, placed in beside.items() if peer in WHEELS
    ]
    return max(ratios, default=None)


def side_by_side(rows, peers):
    """Lines: for each case and placement ours, theirs and the ratio, peer by peer.

    Ours is measured anew beside every peer; a ratio compares the same rounds.
    """
    line = f"{'ranks':>5} {'op':<14} {'bytes':>6} {'dtype':<8} {'cpus':<6} {'limit':>8}"
    for peer in peers:
        line += f" | {'ours':>8} {peer:>8} {'ours/it':>7}"
    yield line + f" | {'/mpi':>6}"
    for (ranks, op, dtype, nbytes, place), beside in merged(rows).items():
        size = show_size(nbytes) if nbytes else "-"
        limit = next((p["limit_us"] for p in beside.values() if "limit_us" in p), None)
        shown = show_microseconds(limit) if limit else "-"
        line = f"{ranks:>5} {op:<14} {size:>6} {dtype:<8} {place:<6} {shown:>8}"
        for peer in peers:
            placed = beside.get(peer)
            if placed is None:
                line += f" | {'-':>8} {'-':>8} {'-':>7}"
                continue
            ours, theirs = placed["times"][OURS], placed["times"][peer]
            line += f" | {show_microseconds(ours['us_med']):>8}"
            line += f" {show_microseconds(theirs['us_med']):>8}"
            line += f" {placed['ours_by'][peer]:>7.3f}"
        ratio = fastest_mpi(beside)
        yield line + (f" | {ratio:>6.3f}" if ratio else f" | {'-':>6}")
