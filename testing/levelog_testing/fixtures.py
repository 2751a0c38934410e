"""The fixture `simulate`: simulations that are closed when the test ends. pytest finds it by itself.

Loaded at each start of pytest where levelog is installed, so that it imports nothing of levelog before a test asks.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from levelog.operator import Operator
    from levelog_testing.simulate import Simulate
    from levelog_testing.simulation import Simulation


@pytest.fixture
def simulate() -> "Iterator[Simulate]":
    """Starts a simulation of operators, `simulate(op)`, as often as it is called; typed by levelog.testing.Simulate."""
    from levelog_testing.simulation import Simulation  # noqa: PLC0415 - takes a second

    with ExitStack() as stack:

        def start(*operators: "Operator", **options: Any) -> "Simulation":
            return stack.enter_context(Simulation(*operators, **options))

        yield start
