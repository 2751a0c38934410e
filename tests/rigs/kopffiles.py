"""Kopf files as tests write them, loaded as `levelog run` loads them, and their handlers called in a simulation."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

from levelog import Operator
from levelog.compat.kopf.kopftargets import target
from levelog.testing import Simulation
from levelog_actuator.requests import Order
from levelog_actuator.results import Result
from levelog_cli.loading import load_operators

SHOPS = ("example.com", "v1", "shops")
Shop = target("tests", SHOPS, {})
_HEAD = """
from levelog.compat import kopf
told = []
"""


class KopfRun:
    """A simulation of one file, whose handlers put what they are called with into `told`."""

    def __init__(self, operator: Operator, simulation: Simulation, told: list[Any]) -> None:
        self.operator = operator
        self.simulation = simulation
        self._told = told
        self.sent: list[Order] = []
        """Writes that were part of calls."""
        patcher = simulation._open.caller.patcher  # pyright: ignore[reportPrivateUsage]
        assert patcher is not None
        self._send, patcher.send = patcher.send, self._note

    async def _note(self, order: Order) -> Result:
        self.sent.append(order)
        return await self._send(order)

    def told(self) -> list[Any]:
        """What was told since the last look."""
        found = list(self._told)
        self._told.clear()
        return found

    def apply(self, name: str = "a", /, metadata: dict[str, Any] | None = None, **spec: Any) -> list[Any]:
        """Apply a shop, run, and give what was told."""
        self.simulation.apply(shop(name, metadata=metadata, **spec))
        self.simulation.run()
        return self.told()

    def after(self, **time: float) -> list[Any]:
        """Let seconds, minutes or hours pass, and give what was told."""
        self.simulation.advance(timedelta(**time))
        return self.told()

    def delete(self, name: str = "a") -> list[Any]:
        """Delete a shop, run, and give what was told."""
        self.simulation.delete(Shop, name, namespace="default")
        self.simulation.run()
        return self.told()

    def start(self, *shops: dict[str, Any]) -> list[Any]:
        """Start the operator again, as ingest notes it, a second later; run, and give what was told.

        `shops` were applied while it did not run.
        """
        [source] = self.operator.sources.values()
        cls: Any = source.cls
        self.simulation.advance(timedelta(seconds=1))
        self.simulation.observe(cls, [cls(name="started", started=self.simulation.now)])
        for each in shops:
            self.simulation.apply(each)
        self.simulation.run()
        return self.told()

    def read(self, name: str = "a") -> dict[str, Any]:
        """A shop as the cluster has it."""
        [found] = [each for each in self.simulation.objects(Shop) if each["metadata"]["name"] == name]
        return found

    def writes(self) -> list[Any]:
        """Bodies of the writes so far: those of intents, then those of calls."""
        intents = [intent.body for intent in self.simulation.intents if intent.verb != "call"]
        return intents + [order.body for order in self.sent]


def shop(name: str = "a", /, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    found = {"name": name, "namespace": "default", **(metadata or {})}
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": found, "spec": spec}


def load_kopf(folder: Path, source: str, name: str = "shops") -> Operator:
    """The operator of a file with this source, below the import of Kopf and an empty list `told`."""
    file = folder / f"{name}.py"
    file.write_text(_HEAD + dedent(source))
    [operator] = load_operators([file])
    return operator


@contextmanager
def kopf_run(folder: Path, source: str, *, with_daemons: bool = False) -> Generator[KopfRun]:
    operator = load_kopf(folder, source)
    with Simulation(operator) as simulation:
        origins = [effect.origin for effect in operator.effects.values() if with_daemons or effect.daemon is None]
        origins += [handler.origin for handler in operator.record_handlers.values()]
        simulation.call_through(*origins)
        yield KopfRun(operator, simulation, _told_of(origins))


def _told_of(functions: Iterable[Any]) -> list[Any]:
    for function in functions:
        if "told" in function.__globals__:
            found: list[Any] = function.__globals__["told"]
            return found
    raise AssertionError("the file has no handlers")
