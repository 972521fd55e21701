# SPDX-License-Identifier: BSD-3-Clause
"""Line plots as SVG: sizes by powers of two, values by powers of ten."""

import math
from dataclasses import dataclass, field
from html import escape

from torchcomms.bench.units import show_size

_WIDTH, _HEIGHT = 430, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 14, 34, 46
_PADDING = 0.05  # of the height, above and below the values
_MOST_X_LABELS = 9


@dataclass
class Series:
    """One line of a plot; `points` are pairs of bytes and value, both above 0."""

    name: str
    color: str
    points: list
    dashed: bool = False


@dataclass
class Plot:
    title: str
    unit: str
    series: list = field(default_factory=list)
    level: float | None = None  # a line across, where two are equal


def _number(value):
    """1000 and 0.01 rather than 1e3 and 1e-2; no trailing zeros."""
    if 1e-6 <= value * 1.001 and value < 1e7:
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return f"{value:.0e}"


def value_ticks(low, high):
    """Values to label: powers of ten, and where they are few also values between."""
    for factors in ((1,), (1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            return ticks
    return ticks or [low]


class _Axes:
    """From bytes and values to places in the picture."""

    def __init__(self, plot):
        sizes = sorted({x for series in plot.series for x, _ in series.points})
        values = [y for series in plot.series for _, y in series.points]
        values += [plot.level] if plot.level else []
        self.sizes = sizes
        self._x0, self._x1 = math.log2(sizes[0]), math.log2(sizes[-1])
        low, high = math.log10(min(values)), math.log10(max(values))
        # At least half a decade, so that noise does not look like a slope.
        missing = max(0.5 - (high - low), 0) / 2
        room = (high - low + 2 * missing) * _PADDING
        self._y0, self._y1 = low - missing - room, high + missing + room

    def x(self, size):
        share = (math.log2(size) - self._x0) / ((self._x1 - self._x0) or 1)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value):
        share = (math.log10(value) - self._y0) / (self._y1 - self._y0)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def size_labels(self):
        """Sizes that were measured, thinned out so that no label covers another."""
        every = math.ceil(len(self.sizes) / _MOST_X_LABELS)
        room = (_WIDTH - _LEFT - _RIGHT) / (_MOST_X_LABELS + 2)
        chosen = []
        for size in self.sizes[::every]:
            if not chosen or self.x(size) - self.x(chosen[-1]) >= room:
                chosen.append(size)
        return chosen

    def value_labels(self):
        return value_ticks(10**self._y0, 10**self._y1)


def _text(x, y, text, anchor="middle", kind="label", more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{more}>'
        f"{escape(text)}</text>"
    )


def _grid(axes, unit):
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in axes.value_labels():
        y = axes.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        yield _text(_LEFT - 6, y + 4, _number(value), "end")
    for size in axes.size_labels():
        x = axes.x(size)
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
        yield _text(x, bottom + 16, show_size(size))
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
    yield _text((_LEFT + right) / 2, _HEIGHT - 10, "bytes")
    middle = (_TOP + bottom) / 2
    yield _text(14, middle, unit, more=f' transform="rotate(-90 14 {middle:.1f})"')


def _line(axes, series):
    places = [(axes.x(x), axes.y(y)) for x, y in sorted(series.points)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="5 4"' if series.dashed else ""
    yield f'<path class="line" stroke="{series.color}"{dashes} d="M{path}"/>'
    for (x, y), (size, value) in zip(places, sorted(series.points), strict=True):
        told = f"{series.name}, {show_size(size)}: {value:.4g}"
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{series.color}">'
            f"<title>{escape(told)}</title></circle>"
        )


def draw(plot):
    """The plot as an SVG element; nothing where it has no points."""
    series = [each for each in plot.series if each.points]
    if not series:
        return ""
    axes = _Axes(Plot(plot.title, plot.unit, series, plot.level))
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'xmlns="http://www.w3.org/2000/svg" role="img">',
        _text(_LEFT, 18, plot.title, "start", "title"),
        *_grid(axes, plot.unit),
    ]
    if plot.level:
        y = axes.y(plot.level)
        parts.append(f'<path class="level" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    for each in series:
        parts += _line(axes, each)
    return "\n".join([*parts, "</svg>"])
