"""Simulations that have come to rest once."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from levelog import Manifest, Operator
from levelog.testing import Simulation


@contextmanager
def simulated(
    operator: Operator, *manifests: Manifest, through: Iterable[Callable[..., Any]] = ()
) -> Generator[Simulation]:
    """A simulation that has run with these objects, and called these functions."""
    with Simulation(operator) as simulation:
        simulation.call_through(*through)
        run_with(simulation, *manifests)
        yield simulation


def run_with(simulation: Simulation, *manifests: Manifest) -> None:
    """Apply these objects, and let the simulation come to rest."""
    for each in manifests:
        simulation.apply(each)
    simulation.run()
