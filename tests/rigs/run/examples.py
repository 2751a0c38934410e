"""How many examples a search by Hypothesis tries, a tenth where the long tests are left out, and never by the clock."""

from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

T = TypeVar("T")

_ALL = 100  # Hypothesis' default


def choose_examples(config: pytest.Config) -> None:
    """To be called before tests are imported."""
    settings.register_profile(
        "levelog",
        max_examples=_ALL // 10 if config.option.markexpr == "not long" else _ALL,
        deadline=None,  # machines are loaded, and no test asserts a time
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("levelog")


def examples(number: int) -> int:
    """So many where all tests run."""
    return max(number * settings().max_examples // _ALL, 3)


def short_or_whole(short: T, whole: T) -> T:
    """The one where the long tests are left out, the other where all run: no test runs in both forms."""
    return whole if settings().max_examples == _ALL else short
