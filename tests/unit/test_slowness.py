"""When functions count as slow."""

from datetime import timedelta

from levelog_processors.decide.functions import MOST_COUNTED, PATIENCE, Slowness

MOMENT = timedelta(milliseconds=1)


def noted(slowness: Slowness, longest: timedelta, cuts: int) -> list[bool]:
    """Whether functions are quick after each of so many cuts."""
    found: list[bool] = []
    for _ in range(cuts):
        slowness.note(longest)
        found.append(slowness.is_quick)
    return found


def test_functions_that_keep_to_their_time_are_never_slow() -> None:
    assert all(noted(Slowness(), PATIENCE, 1000))


def test_functions_that_are_slow_now_and_then_on_a_busy_machine_are_not_slow() -> None:
    slowness = Slowness()
    for _ in range(100):
        assert all(noted(slowness, MOMENT, 8))
        assert all(noted(slowness, timedelta.max, 1))


def test_functions_that_are_always_slow_soon_are_and_stay_so() -> None:
    slowness = Slowness()
    is_quick = noted(slowness, PATIENCE * 2, 100)
    assert is_quick.index(False) < 8
    assert not any(is_quick[8:])


def test_functions_that_are_quick_again_soon_are_however_long_they_hung() -> None:
    slowness = Slowness()
    noted(slowness, timedelta.max, 1000)
    assert not slowness.is_quick
    assert all(noted(slowness, MOMENT, 20)[12:])


def test_a_cut_counts_for_so_much_at_most() -> None:
    hung, slow = Slowness(), Slowness()
    assert noted(hung, timedelta.max, 30) == noted(slow, MOST_COUNTED, 30)
