"""How a processor rests between two passes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_processors.waiting import MOST_REST, SPRINT, Pace
from rigs.clocks import Clock


def _passes(lengths: Sequence[float], idle: float) -> list[float]:
    """Time at which each of some passes begins, that each rest and then are idle for as long."""
    clock, begins = Clock(), list[float]()
    pace = Pace(clock)
    for seconds in lengths:
        pace.begin()
        begins.append(clock.now)
        clock.now += seconds
        pace.end()
        clock.now += max(pace.left, 0.0) + idle
    return begins


def test_passes_without_a_break_take_a_third_of_the_time() -> None:
    begins = _passes([0.01] * 300, idle=0.0)
    assert begins[-1] == pytest.approx(300 * 0.03 - SPRINT.total_seconds(), abs=0.05)


def test_lone_passes_never_wait() -> None:
    assert _passes([0.008] * 100, idle=0.042)[-1] == pytest.approx(99 * 0.05)


def test_the_first_passes_after_a_quiet_while_do_not_wait() -> None:
    lengths = [0.01] * 9
    assert _passes(lengths, idle=0.0)[-1] == pytest.approx(sum(lengths[:-1]))


@given(st.lists(st.floats(0.0, 30.0), max_size=50), st.floats(0.0, 1.0))
def test_a_rest_is_short_however_long_the_passes_were(lengths: list[float], idle: float) -> None:
    begins = _passes([*lengths, 0.0], idle)
    rests = [after - before - took - idle for before, after, took in zip(begins, begins[1:], lengths, strict=False)]
    assert all(rest <= MOST_REST.total_seconds() + 1e-6 for rest in rests)
