from datetime import timedelta

import pytest

from levelog_processors.fold.backfilling import PAGE, Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_page_is_done_at_once_and_the_next_when_the_rate_allows_it() -> None:
    clock = Clock()
    pace = Pace(500, clock)
    assert pace.page == PAGE
    assert pace.wait == timedelta(0)
    pace.take(100)
    assert pace.wait == timedelta(seconds=0.2)
    clock.now += 0.1
    assert pace.wait.total_seconds() == pytest.approx(0.1)
    clock.now += 0.1
    assert pace.wait.total_seconds() == pytest.approx(0, abs=1e-6)


def test_what_is_not_used_is_not_saved_beyond_one_page() -> None:
    clock = Clock()
    pace = Pace(500, clock)
    clock.now += 60
    pace.take(100)
    assert pace.wait == timedelta(seconds=0.2)


@pytest.mark.parametrize(("rate", "page"), [(1_000_000, 100), (500, 100), (50, 10), (1, 1), (0.001, 1)])
def test_pages_are_smaller_at_lower_rates(rate: float, page: int) -> None:
    assert Pace(rate, Clock()).page == page


def test_a_rate_that_would_never_end_is_refused() -> None:
    with pytest.raises(ValueError, match="would never end"):
        Pace(0, Clock())
