# SPDX-License-Identifier: BSD-3-Clause
"""How it is measured: short bursts of calls, the contenders taking turns.

A shared machine changes under the benchmark, so figures of different minutes say
little. In each round every contender has one burst, first one, then the other way
round, between two measurements of the line round trip. A burst takes as long as its
slowest rank.
"""

import gc
import time
from dataclasses import dataclass, field

from torchcomms.bench.line import placement

_BURST_SECONDS = 0.001
_MOST_CALLS = 2000
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 5000
_MOST_SERIES = 4  # of rounds, where the CPUs were moved in most
_WARM_UP_CALLS = 10


@dataclass
class Rounds:
    """Seconds of a call at the slowest rank, a list of rounds for each contender."""

    calls: list  # of a burst, for each contender
    seconds: list
    lines: list = field(default_factory=list)  # pairs: before and after each round

    def places(self):
        """Where the CPUs were in each round; None: they moved, it says nothing."""
        return [placement(*pair) for pair in self.lines]


class Turns:
    """The calls of each contender, one for each place, and whose turn a place has.

    Contenders share the turn: what one has just brought into a cache, no other is given
    before all the other places had theirs.
    """

    def __init__(self, bound):
        self._bound = bound
        self._next = 0

    def __len__(self):
        return len(self._bound)

    def take(self, contender, calls):
        bound, first = self._bound[contender], self._next
        self._next = (first + calls) % len(bound)
        return [bound[(first + i) % len(bound)] for i in range(calls)]


def first_call(contender, case, agreement):
    """The calls on all places, the first of them tried, and whether it was right.

    A peer that refuses the case has neither: None twice.
    """
    place = case.places[0]
    case.fill(place)
    try:
        calls = [contender.bind(case, each) for each in case.places]
        calls[0]()
    except (RuntimeError, ValueError, TypeError):
        if not contender.may_refuse:
            raise
        return None, None
    return calls, agreement.all_true(case.is_right(place))


def _burst(calls, agreement):
    agreement.barrier()
    start = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - start) / len(calls)


def _calibrate(turns, contender, agreement, iterations):
    """Calls of a burst, and the seconds that a burst takes at the slowest rank."""

    def estimate(calls):
        burst = _burst(turns.take(contender, calls), agreement)
        return agreement.largest([burst])[0]

    seconds = estimate(1)
    if seconds < _BURST_SECONDS:
        estimate(_WARM_UP_CALLS)
        seconds = estimate(_WARM_UP_CALLS)
    calls = iterations or min(max(int(_BURST_SECONDS / seconds), 1), _MOST_CALLS)
    return calls, calls * seconds


def _series(turns, calls, rounds, agreement, line):
    """Rounds, as the ranks agree on them."""
    taken = [[] for _ in calls]
    lines = [line.seconds()]
    order = list(range(len(calls)))
    for _ in range(rounds):
        for contender in order:
            burst = turns.take(contender, calls[contender])
            taken[contender].append(_burst(burst, agreement))
        order.reverse()
        lines.append(line.seconds())
    agreed = agreement.largest(sum(taken, lines))
    lines, times = agreed[: rounds + 1], agreed[rounds + 1 :]
    seconds = [times[i * rounds : (i + 1) * rounds] for i in range(len(calls))]
    return Rounds(calls, seconds, list(zip(lines, lines[1:], strict=False)))


def measure(bound, case, agreement, line, seconds, iterations=None):
    """Rounds of the contenders whose calls are in `bound`; takes about `seconds`.

    Takes longer where the CPUs were moved so often that too few rounds count.
    """
    case.clear()
    turns = Turns(bound)
    bursts = [
        _calibrate(turns, contender, agreement, iterations)
        for contender in range(len(turns))
    ]
    calls = [calls for calls, _ in bursts]
    rounds = int(seconds / max(sum(duration for _, duration in bursts), 1e-6))
    rounds = min(max(rounds, _FEWEST_ROUNDS), _MOST_ROUNDS)
    found = Rounds(calls, [[] for _ in calls])
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(_MOST_SERIES):
            series = _series(turns, calls, rounds, agreement, line)
            found.lines += series.lines
            for all_taken, taken in zip(found.seconds, series.seconds, strict=True):
                all_taken += taken
            if sum(place is not None for place in found.places()) >= _FEWEST_ROUNDS:
                break
    finally:
        if collecting:
            gc.enable()
    return found
