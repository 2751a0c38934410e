"""How many examples a search by Hypothesis tries: a fifth where the long tests are left out."""

import pytest
from hypothesis import settings

_ALL = 100  # Hypothesis' default


def choose_examples(config: pytest.Config) -> None:
    """To be called before tests are imported."""
    if config.option.markexpr == "not long":
        settings.register_profile("few", settings.default, max_examples=_ALL // 5)
        settings.load_profile("few")


def examples(number: int) -> int:
    """So many where all tests run."""
    return max(number * settings().max_examples // _ALL, 3)
