"""How many examples a search by Hypothesis tries, a fifth where the long tests are left out, and never by the clock."""

import pytest
from hypothesis import HealthCheck, settings

_ALL = 100  # Hypothesis' default


def choose_examples(config: pytest.Config) -> None:
    """To be called before tests are imported."""
    settings.register_profile(
        "levelog",
        max_examples=_ALL // 5 if config.option.markexpr == "not long" else _ALL,
        deadline=None,  # machines are loaded, and no test asserts a time
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("levelog")


def examples(number: int) -> int:
    """So many where all tests run."""
    return max(number * settings().max_examples // _ALL, 3)
