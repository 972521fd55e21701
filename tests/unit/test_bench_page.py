# SPDX-License-Identifier: BSD-3-Clause
"""The report of the benchmark: plots of what the rows say, one page, no network."""

import re
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

import pytest

from torchcomms.bench import page
from torchcomms.bench.line import FAR, NEAR
from torchcomms.bench.plots import groups, plots_of
from torchcomms.bench.svg import Plot, Series, draw, value_ticks

SVG = "{http://www.w3.org/2000/svg}"


def times(us):
    return {"us_med": us, "us_p10": us, "us_p90": us, "bus_gb_per_s": 1 / us}


def measured(op, nbytes, place, ours, peer, theirs, **more):
    placed = {
        "rounds": 5,
        "line_us": 0.12,
        "times": {"torchcomms": times(ours), peer: times(theirs)},
        "ours_by": {peer: ours / theirs},
        **more,
    }
    return {
        "op": op,
        "ranks": 2,
        "bytes": nbytes,
        "dtype": "float32",
        "buffers": 1,
        "right": {"torchcomms": True, peer: theirs != 13},
        "rounds_dropped": 1,
        "placements": {place: placed},
    }


ROWS = [
    measured("all_reduce", 8, FAR, 4, "gloo", 100),
    measured("all_reduce", 8, NEAR, 1, "gloo", 50, limit_us=0.5, ours_by_limit=2),
    measured("all_reduce", 64, NEAR, 2, "gloo", 60),
    measured("all_reduce", 8, NEAR, 3, "impi", 13),
    measured("barrier", 0, NEAR, 1, "gloo", 40),
]
CONTENT = {
    "command": ["python", "-m", "torchcomms.bench", "--json", "<a & b>"],
    "machine": {
        "cpu": "CPU",
        "cores": 2,
        "last_level_cache": 8 << 20,
        "system": "Linux",
        "load": 0.1,
    },
    "versions": {"torch": "2", "impi": "Intel(R) MPI <2021>"},
    "rows": ROWS,
}


def test_placements_are_apart_and_near_comes_first():
    assert list(groups(ROWS)) == [(2, "float32", NEAR), (2, "float32", FAR)]


def test_series_of_an_operation():
    group = groups(ROWS)[2, "float32", NEAR]
    plots = plots_of("all_reduce", group, ["torchcomms", "gloo", "impi"])
    time, bus, ratio = (
        {series.name: dict(series.points) for series in plot.series} for plot in plots
    )
    # Ours was measured beside both peers.
    assert time == {
        "torchcomms": {8: 2, 64: 2},
        "gloo": {8: 50, 64: 60},
        "impi": {8: 13},
        "limit": {8: 0.5},
    }
    assert bus["gloo"] == {8: 1 / 50, 64: 1 / 60}
    assert ratio["gloo"] == {8: 1 / 50, 64: 2 / 60}
    assert ratio["impi"] == {8: 3 / 13}
    assert ratio["limit"] == {8: 2}
    assert plots_of("barrier", group, ["torchcomms", "gloo"]) == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.5, 2000, [1, 10, 100, 1000]),
        (0.9, 30, [1, 2, 5, 10, 20]),
        (2.1, 4.5, [2.5, 3, 4]),
    ],
)
def test_value_ticks(low, high, ticks):
    assert value_ticks(low, high) == pytest.approx(ticks)


def circles(picture):
    found = xml.fromstring(picture).iter(f"{SVG}circle")
    return [(float(each.get("cx")), float(each.get("cy"))) for each in found]


def test_places_in_a_plot_are_logarithmic():
    points = [(8, 1), (64, 10), (4096, 100)]
    (x0, y0), (x1, y1), (x2, y2) = circles(
        draw(Plot("time", "us", [Series("ours", "red", points)]))
    )
    assert x2 - x1 == pytest.approx(2 * (x1 - x0), abs=0.2)
    assert y1 - y2 == pytest.approx(y0 - y1, abs=0.2)
    assert y0 > y1


def test_a_plot_of_one_point_and_of_none():
    assert len(circles(draw(Plot("t", "us", [Series("a", "red", [(8, 1)])])))) == 1
    assert draw(Plot("t", "us", [Series("a", "red", [])])) == ""


def test_labels_of_sizes_do_not_cover_each_other():
    points = [(1 << power, 1) for power in range(3, 27)]
    picture = draw(Plot("t", "us", [Series("a", "red", points)]))
    texts = [
        each
        for each in xml.fromstring(picture).iter(f"{SVG}text")
        if re.fullmatch(r"\d+[KM]?", each.text) and each.get("text-anchor") == "middle"
    ]
    places = [float(text.get("x")) for text in texts]
    assert len(texts) >= 5
    assert min(b - a for a, b in zip(places, places[1:], strict=False)) > 30


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path):
    text = page.write(tmp_path, CONTENT).read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.seen.count("svg") == 6, "three plots near, three far"
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    names = {name for name, _ in tags.attributes}
    assert not {"src", "href"} & names
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_says_what_a_reader_needs(tmp_path):
    text = page.render(CONTENT)
    assert "--json &lt;a &amp; b&gt;" in text
    assert "Intel(R) MPI &lt;2021&gt;" in text
    assert "CPUs near each other" in text
    assert "CPUs far from each other" in text
    assert "wrong: impi" in text
    assert "5 dropped" in text
    assert text.count(">all_reduce: time</text>") == 2
    assert text.count("GB/s of the busiest link") == 2
