# SPDX-License-Identifier: BSD-3-Clause
"""How it is measured: short bursts of calls, the contenders taking turns.

A shared machine changes under the benchmark, so figures of different minutes say
little. In each round every contender has one burst, first one, then the other way
round; the ratio is the median of the rounds' ratios. A burst takes as long as its
slowest rank.
"""

import gc
import statistics
import time
from dataclasses import dataclass

_BURST_SECONDS = 0.001
_MOST_CALLS = 2000
_FEWEST_ROUNDS = 5
_MOST_ROUNDS = 300
_WARM_UP_CALLS = 10


@dataclass
class Timing:
    """Seconds per call of one contender, one value a round."""

    calls: int
    seconds: list

    def median(self):
        return statistics.median(self.seconds)

    def at(self, share):
        """The value below which this share of the rounds lies."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def ratio(ours, theirs):
    """The median, over the rounds, of our time by theirs."""
    pairs = zip(ours.seconds, theirs.seconds, strict=True)
    return statistics.median(a / b for a, b in pairs)


def first_call(contender, case, agreement):
    """The call, tried once, and whether every rank then had the right result.

    A peer that refuses the case has neither: None twice.
    """
    case.fill()
    call = contender.bind(case)
    try:
        call()
    except (RuntimeError, ValueError, TypeError):
        if not contender.may_refuse:
            raise
        return None, None
    return call, agreement.all_true(case.is_right())


def _burst(call, calls, agreement):
    agreement.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _calibrate(call, agreement, iterations):
    """Calls of a burst, and the seconds that a burst takes at the slowest rank."""
    estimate = agreement.largest([_burst(call, 1, agreement)])[0]
    if estimate < _BURST_SECONDS:
        _burst(call, _WARM_UP_CALLS, agreement)
        estimate = agreement.largest([_burst(call, _WARM_UP_CALLS, agreement)])[0]
    calls = iterations or min(max(int(_BURST_SECONDS / estimate), 1), _MOST_CALLS)
    return calls, calls * estimate


def measure(calls, case, agreement, seconds, iterations=None):
    """A Timing for each of `calls`, all taken within about `seconds`."""
    case.clear()
    bursts = [_calibrate(call, agreement, iterations) for call in calls]
    rounds = int(seconds / max(sum(duration for _, duration in bursts), 1e-6))
    rounds = min(max(rounds, _FEWEST_ROUNDS), _MOST_ROUNDS)
    taken = [[] for _ in calls]
    turns = list(range(len(calls)))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for turn in turns:
                taken[turn].append(_burst(calls[turn], bursts[turn][0], agreement))
            turns.reverse()
    finally:
        if collecting:
            gc.enable()
    slowest = agreement.largest(sum(taken, []))
    return [
        Timing(bursts[i][0], slowest[i * rounds : (i + 1) * rounds])
        for i in range(len(calls))
    ]
