"""The type of the fixture `simulate`, for tests that are type-checked."""

from datetime import datetime
from typing import Protocol

from levelog.operator import Operator
from levelog_testing.simulation import BEGIN, Simulation


class Simulate(Protocol):
    """What the fixture `simulate` gives: it starts simulations, which end with the test."""

    def __call__(self, *operators: Operator, echo: bool = True, now: datetime = BEGIN) -> Simulation:
        """Start a simulation of operators; the options are those of Simulation."""
        ...
