"""How many levels a processor decides on at once."""

from typing import Any

from levelog_processors.decide.tally import BATCH, EvaluationBatch
from levelog_processors.waiting import LEAST, LONG_SECONDS, Portion
from rigs.webs import NOON

LEVEL: Any = object()


class Timed:
    """A portion, and a clock that goes on by what levels take."""

    def __init__(self) -> None:
        self._now = 0.0
        self._portion = Portion(lambda: self._now)

    def decided(self, of_one: float, batches: int, *, due: int = BATCH) -> list[int]:
        """How many levels are decided on in each of so many batches, if one takes so many seconds."""
        found: list[int] = []
        for _ in range(batches):
            most = self._portion.begin()
            found.append(min(most, due))
            self._now += found[-1] * of_one
            self._portion.end(EvaluationBatch([LEVEL] * found[-1], NOON))
        return found


def test_levels_that_take_no_time_are_decided_in_batches_that_grow_to_the_largest() -> None:
    assert Timed().decided(0, 5) == [LEAST, 2 * LEAST, 4 * LEAST, BATCH, BATCH]


def test_levels_that_take_long_are_decided_few_at_a_time() -> None:
    assert set(Timed().decided(LONG_SECONDS, 5)) == {LEAST}


def test_a_batch_that_took_too_long_is_followed_by_half_of_it() -> None:
    timed = Timed()
    timed.decided(0, 5)
    assert timed.decided(LONG_SECONDS / 100, 4) == [BATCH, BATCH // 2, BATCH // 4, BATCH // 4]


def test_batches_that_are_not_full_say_nothing_about_larger_ones() -> None:
    timed = Timed()
    timed.decided(0, 5, due=LEAST - 1)
    assert timed.decided(0, 1) == [LEAST]
