"""How long functions count as slow."""

from datetime import timedelta

from levelog_processors.decide.functions import PATIENCE, Slowness

SLOW = PATIENCE * 2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def slow_for(slowness: Slowness, clock: Clock) -> float:
    """Seconds until it is over; the clock is there then."""
    began = clock.now
    while not slowness.is_quick:
        clock.now += 0.5
    return clock.now - began


def test_functions_that_keep_to_their_time_are_never_slow() -> None:
    slowness = Slowness()
    slowness.note(PATIENCE)
    assert slowness.is_quick


def test_one_slow_call_counts_for_a_moment() -> None:
    slowness = Slowness(clock := Clock())
    for _ in range(3):
        slowness.note(SLOW)
        assert slow_for(slowness, clock) == 1
        clock.now += 61


def test_what_is_slow_again_and_again_counts_for_up_to_a_minute() -> None:
    slowness = Slowness(clock := Clock())
    waits: list[float] = []
    for _ in range(9):
        slowness.note(SLOW)
        waits.append(slow_for(slowness, clock))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_slow_calls_while_it_counts_as_slow_keep_it_so() -> None:
    slowness = Slowness(clock := Clock())
    slowness.note(SLOW)
    clock.now += 0.5
    slowness.note(timedelta.max)
    assert slow_for(slowness, clock) == 2
