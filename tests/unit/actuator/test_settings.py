from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_actuator import ActuatorSettings
from levelog_base.errors import ConfigurationError

SETTINGS = ActuatorSettings(first_delay=timedelta(seconds=1), most_delay=timedelta(seconds=60))


def test_delays_double_up_to_the_longest() -> None:
    delays = [SETTINGS.delay(attempt, jitter=lambda: 0.0).total_seconds() for attempt in range(1, 10)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_at_most_half_of_a_delay_is_left_to_chance(attempt: int, chance: float) -> None:
    whole = SETTINGS.delay(attempt, jitter=lambda: 0.0)
    assert whole / 2 <= SETTINGS.delay(attempt, jitter=lambda: chance) <= whole


def test_a_server_that_names_a_time_is_not_asked_before() -> None:
    assert SETTINGS.delay(1, retry_after=timedelta(seconds=90)) == timedelta(seconds=90)
    assert SETTINGS.delay(5, retry_after=timedelta(seconds=1), jitter=lambda: 0.0) == timedelta(seconds=16)


def test_a_claim_shorter_than_its_requests_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a claim of 10 s is too short for requests that may take 6 s"):
        ActuatorSettings(lease=timedelta(seconds=10), request=timedelta(seconds=6))


def test_all_attempts_together_take_two_to_three_minutes() -> None:
    settings = ActuatorSettings()
    waits = [settings.delay(attempt, jitter=lambda: 0.5) for attempt in range(1, settings.attempts)]
    assert timedelta(minutes=2) < sum(waits, timedelta()) < timedelta(minutes=3)
