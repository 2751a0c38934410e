"""The period of wakes: with jitter, with missed ones, with others in between; and none where there is none."""

import random
from itertools import accumulate

import pytest

from levelog_wakes.periods import rhythms_of


def ticks(period: float, jitter: float, number: int = 50, *, missed: float = 0.0, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    times = accumulate(period + chance.uniform(-jitter, jitter) * period for _ in range(number))
    return [each for each in times if chance.random() >= missed]


@pytest.mark.parametrize("period", [1, 5, 15, 60, 600])
@pytest.mark.parametrize(("jitter", "missed"), [(0.001, 0.0), (0.02, 0.0), (0.2, 0.0), (0.02, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_a_period_is_found_though_wakes_are_early_late_or_missed(
    period: float, jitter: float, missed: float, seed: int
) -> None:
    [rhythm] = rhythms_of(ticks(period, jitter, missed=missed, seed=seed))
    assert rhythm.seconds == pytest.approx(period, rel=0.02 + jitter / 2)
    assert rhythm.jitter_seconds <= period * max(jitter, 0.03)


@pytest.mark.parametrize("seed", range(5))
def test_a_period_is_found_among_as_many_other_wakes(seed: int) -> None:
    chance = random.Random(seed)
    others = [chance.uniform(0, 32 * 15) for _ in range(32)]
    [rhythm] = rhythms_of(sorted([*ticks(15, 0.01, 32, seed=seed), *others]))
    assert rhythm.seconds == pytest.approx(15, rel=0.02)


def test_wakes_at_random_hardly_ever_have_a_period() -> None:
    chance = random.Random(7)
    series = [list(accumulate(chance.expovariate(1 / 15) for _ in range(40))) for _ in range(60)]
    assert sum(bool(rhythms_of(times)) for times in series) <= 1


def test_of_few_wakes_nothing_is_said() -> None:
    assert rhythms_of([0, 15, 30, 45]) == []


@pytest.mark.parametrize("periods", [(10, 35), (5, 60), (15, 15, 15, 15), (7, 20, 30)])
@pytest.mark.parametrize("seed", range(4))
def test_pollers_of_one_object_are_found_apart(periods: tuple[int, ...], seed: int) -> None:
    starts = (0, 2.9, 6.3, 9.6)
    series = [
        [start + at for at in ticks(period, 0.004, 600 // period, seed=seed + number)]
        for number, (period, start) in enumerate(zip(periods, starts, strict=False))
    ]
    found = rhythms_of(sorted(at for times in series for at in times))
    told = sorted(each.seconds for each in found for _ in range(each.pollers))
    assert told == pytest.approx(sorted(periods), rel=0.02)
