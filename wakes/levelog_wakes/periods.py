"""The periods of a series of moments, even if some are missing and others came in between."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import exp, inf, log
from statistics import median
from typing import Final

from msgspec import Struct

LEAST_WAKES: Final = 5
"""Of fewer nothing is said."""
_LOOSE: Final = 0.27
_MOST: Final = 0.8
"""The share of intervals that lie so near their median where wakes are regular, jitter or not: of random ones 19 %."""
_PLAIN: Final = 0.9
_EXACT: Final = (0.04, 0.003)
"""How far a wake may be from its time, as a part of the period; the second where the first explains too little."""
_LEAST_OFF_SECONDS: Final = (0.1, 0.02)
_REACH: Final = 6
"""So many later wakes are compared with each: a period shows though five others came in between."""
_TRIED: Final = 8
"""Intervals that are tried as a period, those that are met most often."""
_MISSED: Final = 3
"""So many wakes in a row may be missing."""
_LEAST_SHARE: Final = 0.6
"""Of the wakes of a period, that have to be there."""
_MOST_CHAINS: Final = 32
_CHANCE: Final = 1e-3
"""That random wakes have such a period."""
_SHORTEST_SECONDS: Final = 0.6


class Rhythm(Struct, frozen=True):
    """The regularity of wakes."""

    seconds: float
    jitter_seconds: float
    """Half of the intervals are at most this far from it."""
    pollers: int = 1
    """Series of wakes at the same time that have this period, each with a start of its own."""
    objects: int = 1
    """That wake so."""


def rhythms_of(times: Sequence[float]) -> list[Rhythm]:
    """The periods of wakes that began at these moments, in order; that of most wakes first.

    Empty where wakes are few or irregular.
    """
    if len(times) < LEAST_WAKES:
        return []
    loose = _loose(times)
    if loose is not None and _is_plain(times, loose.seconds):
        return [loose]
    chains = _chains(times, 0)
    if sum(map(len, chains)) < _LEAST_SHARE * len(times):
        chains = max(chains, _chains(times, 1), key=lambda each: sum(map(len, each)))
    found = _rhythms(chains)
    if loose is None:
        return found or _repeated(times)
    is_most = bool(chains) and len(chains[0]) >= _LEAST_SHARE * len(times)
    is_same = is_most and abs(found[0].seconds - loose.seconds) <= _LOOSE * loose.seconds
    is_tight = bool(found) and found[0].jitter_seconds / found[0].seconds < loose.jitter_seconds / loose.seconds / 4
    return found if is_same or is_tight else [loose]


def _loose(times: Sequence[float]) -> Rhythm | None:
    """A period around which nearly all intervals lie, though far."""
    intervals = sorted(later - first for first, later in pairwise(times))
    middle = median(intervals)
    near = _within(intervals, middle, middle * _LOOSE)
    is_regular = middle >= _SHORTEST_SECONDS and len(near) >= _MOST * len(intervals)
    return _rhythm(near) if is_regular else None


def _is_plain(times: Sequence[float], seconds: float) -> bool:
    """Whether hardly an interval is another one, so that nothing else can be in there."""
    off = _off(seconds, 0)
    return sum(abs(later - first - seconds) <= off for first, later in pairwise(times)) >= _PLAIN * (len(times) - 1)


def _repeated(times: Sequence[float]) -> list[Rhythm]:
    """The longest interval that comes again and again, exactly, though others follow it."""
    intervals = sorted((later - first for first, later in pairwise(times)), reverse=True)
    for each in intervals:
        near = _within(intervals[::-1], each, _off(each, 1))
        unlikely = _unlikely(len(near), len(intervals), 2 * _EXACT[1])
        if each >= _SHORTEST_SECONDS and len(near) >= LEAST_WAKES - 2 and unlikely > log(len(times) / _CHANCE):
            return [_rhythm(near)]
    return []


def _chains(times: Sequence[float], exactness: int) -> list[list[float]]:
    """Series of wakes of which each has a period, the longest first; no wake is in two of them."""
    chains: list[list[float]] = []
    left = list(times)
    while len(left) >= LEAST_WAKES and len(chains) < _MOST_CHAINS:
        tried = _often(left, exactness)
        chain = max((_chain(left, each, _off(each, exactness)) for each in tried), key=len, default=[])
        if not chain:
            break
        chains.append(chain)
        left = sorted(set(left).difference(chain))
    return chains


def _often(times: Sequence[float], exactness: int) -> list[float]:
    """Intervals that are met most often, for their length, between wakes and one of those after them."""
    apart = sorted(
        later - first
        for number, first in enumerate(times)
        for later in times[number + 1 : number + 1 + _REACH]
        if later - first >= _SHORTEST_SECONDS
    )
    scored: list[tuple[float, float]] = []
    for each in apart:
        off = _off(each, exactness)
        near = _within(apart, each, off / 2)
        scored.append((len(near) / off, near[len(near) // 2]))
    found: list[float] = []
    for _, each in sorted(set(scored), reverse=True):
        if all(abs(each - other) > _off(each, exactness) for other in found):
            found.append(each)
            if len(found) == _TRIED:
                break
    return found


def _chain(times: Sequence[float], seconds: float, off: float) -> list[float]:
    """The longest series of wakes that follow each other after a period; empty if chance may have made it.

    Each wake is looked for near the one before it, so a period may drift; some may be missing.
    """
    size = len(times)
    scores, nexts = [1.0] * size, [size] * size
    for number in range(size - 2, -1, -1):
        for steps in range(1, _MISSED + 2):
            best = _nearest(times, times[number] + steps * seconds, off)
            if best < size:
                scores[number], nexts[number] = 1.4 + scores[best] - 0.4 * steps, best
                break
    at, chain = max(range(size), key=scores.__getitem__), list[float]()
    while at < size:
        chain.append(times[at])
        at = nexts[at]
    steps = max(round((chain[-1] - chain[0]) / seconds), len(chain) - 1)
    if len(chain) < LEAST_WAKES or len(chain) - 1 < _LEAST_SHARE * steps:
        return []
    chance = min(1 - exp(-2 * off * size / (times[-1] - times[0])), 0.99)
    return chain if _unlikely(len(chain) - 1, steps, chance) > log(size * _TRIED / _CHANCE) else []


def _nearest(times: Sequence[float], wanted: float, off: float) -> int:
    """The number of the moment that is nearest; that after the last one if all are farther off."""
    at, best, least = bisect_left(times, wanted - off), len(times), inf
    while at < len(times) and times[at] <= wanted + off:
        if abs(times[at] - wanted) < least:
            best, least = at, abs(times[at] - wanted)
        at += 1
    return best


def _unlikely(met: int, tried: int, chance: float) -> float:
    """The logarithm of the chance of so many hits: Chernoff's bound for a binomial distribution."""
    share = met / tried
    if share <= chance:
        return 0.0
    missing = (1 - share) * log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return tried * (share * log(share / chance) + missing)


def _rhythms(chains: Sequence[Sequence[float]]) -> list[Rhythm]:
    """Chains of the same period are one rhythm, of as many pollers as there mostly are at the same time."""
    found: list[Rhythm] = []
    left = [(_rhythm_of(chain), chain) for chain in chains]
    while left:
        seconds = left[0][0].seconds
        same = [(each, chain) for each, chain in left if abs(each.seconds - seconds) <= 2 * _off(seconds, 0)]
        left = [pair for pair in left if pair not in same]
        lasted = max(chain[-1] for _, chain in same) - min(chain[0] for _, chain in same)
        pollers = round(sum(len(chain) for _, chain in same) * seconds / (lasted + seconds))
        found.append(Rhythm(seconds, median(each.jitter_seconds for each, _ in same), max(pollers, 1)))
    return found


def _rhythm_of(chain: Sequence[float]) -> Rhythm:
    apart = sorted(later - first for first, later in pairwise(chain))
    return _rhythm(_within(apart, apart[0], 2 * _off(apart[0], 0)))


def _rhythm(intervals: Sequence[float]) -> Rhythm:
    seconds = median(intervals)
    return Rhythm(seconds, median(abs(each - seconds) for each in intervals))


def _off(seconds: float, exactness: int) -> float:
    return max(seconds * _EXACT[exactness], _LEAST_OFF_SECONDS[exactness])


def _within(ordered: Sequence[float], seconds: float, off: float) -> Sequence[float]:
    return ordered[bisect_left(ordered, seconds - off) : bisect_right(ordered, seconds + off)]
