"""The period of a series of moments, though some are missing and others came in between."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import exp, sqrt
from statistics import median
from typing import Final

from msgspec import Struct

LEAST_WAKES: Final = 5
"""Of fewer nothing is said."""
_REACH: Final = 6
"""So many later wakes are compared with each: a period shows though five others came in between."""
_LOOSE: Final = 0.27
_MOST: Final = 0.8
"""The share of intervals that lie so near their median where wakes are regular, jitter or not: of random ones 19 %."""
_STRICT: Final = 0.04
_LEAST_STRICT_SECONDS: Final = 0.1
_SIGMAS: Final = 5.5
"""By so many deviations a period is met more often than by chance; the best of the intervals of random wakes has 4."""
_LEAST_SHARE: Final = 0.3
"""Of the wakes, that have to be followed by another one after a period."""
_SHORTEST_SECONDS: Final = 0.6


class Rhythm(Struct, frozen=True):
    """How regularly wakes come."""

    seconds: float
    jitter_seconds: float
    """Half of the intervals are at most this far from it."""


def rhythm_of(times: Sequence[float]) -> Rhythm | None:
    """The period of wakes that began at these moments, in order; None where they are few or irregular."""
    if len(times) < LEAST_WAKES:
        return None
    intervals = sorted(later - first for first, later in pairwise(times))
    middle = median(intervals)
    near = _within(intervals, middle, middle * _LOOSE)
    if middle >= _SHORTEST_SECONDS and len(near) >= _MOST * len(intervals):
        return _rhythm(near)
    apart = sorted(
        times[later] - times[first]
        for first in range(len(times) - 1)
        for later in range(first + 1, min(first + 1 + _REACH, len(times)))
    )
    tried: list[float] = []
    for each in apart:
        if each >= _SHORTEST_SECONDS and (not tried or each > tried[-1] * (1 + _STRICT / 4)):
            tried.append(each)
    scored = [(_sigmas(times, each), each) for each in tried]
    best = max(scored, default=(0.0, 0.0))[0]
    if best < _SIGMAS:
        return None
    shortest = min(each for score, each in scored if score >= 0.8 * best)
    _, seconds = max((score, each) for score, each in scored if each <= shortest * (1 + 2 * _STRICT))
    return _rhythm(_within(apart, seconds, _off(seconds)))


def _rhythm(intervals: Sequence[float]) -> Rhythm:
    seconds = median(intervals)
    return Rhythm(seconds, median(abs(each - seconds) for each in intervals))


def _off(seconds: float) -> float:
    return max(seconds * _STRICT, _LEAST_STRICT_SECONDS)


def _within(ordered: Sequence[float], seconds: float, off: float) -> Sequence[float]:
    return ordered[bisect_left(ordered, seconds - off) : bisect_right(ordered, seconds + off)]


def _sigmas(times: Sequence[float], seconds: float) -> float:
    """How far the number of wakes with another one so much later is above that of random ones, in deviations."""
    off = _off(seconds)
    asked = bisect_right(times, times[-1] - seconds + off)
    if asked < LEAST_WAKES:
        return 0.0
    met = at = 0
    for each in times[:asked]:
        while at < len(times) and times[at] < each + seconds - off:
            at += 1
        met += at < len(times) and times[at] <= each + seconds + off
    if met < max(LEAST_WAKES - 1, _LEAST_SHARE * asked):
        return 0.0
    chance = min(1 - exp(-2 * off * len(times) / (times[-1] - times[0])), 0.99)
    return (met - asked * chance) / sqrt(asked * chance * (1 - chance))
