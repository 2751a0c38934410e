"""A small layer on levelog: its handlers take a name and a spec, and what they return is in the status."""

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

import levelog
from levelog import Operator, OperatorError, Resource, layers
from levelog.edges import Edge
from levelog.layers import Adapter, CallResult, Edges, Unfinished
from levelog.testing import Simulation
from rigs.simulated import run_with, simulated

MINUTE: Final = timedelta(minutes=1)


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    pass


class Greeter(Adapter):
    """Calls `function(name, spec)`, and again a minute later if it raises LookupError."""

    def call(self, request: Edge, retry: int, started: datetime) -> CallResult:
        before = request.carried or Unfinished(began=started)
        try:
            said = self.function(request.object["metadata"]["name"], request.object["spec"])
        except LookupError as error:
            left = Unfinished(
                began=before.began, retry=before.retry + 1, error=str(error), delay=MINUTE, awaits=("/status/price",)
            )
            return CallResult(patch={"status": {"tries": left.retry}}, left=left)
        return CallResult(patch={"status": {"said": said}})


def greets(op: Operator, **limits: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The one decorator of the layer."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        edges = Edges(reasons=frozenset({"create", "update"}))
        op.adopt(function.__name__, Greeter(function, Shop), edges, **limits)
        return function

    return register


def shop(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": spec}


def status(simulation: Simulation) -> dict[str, Any]:
    [found] = simulation.objects(Shop)
    return dict(found["status"])


def test_a_handler_of_another_layer_is_called_in_its_own_way_and_its_result_is_written() -> None:
    op, told = Operator("shops"), []

    @greets(op)
    def greet(name: str, spec: dict[str, Any]) -> str:
        told.append((name, spec["size"]))
        return f"{name} has {spec['size']}"

    with simulated(op, shop(size=1), through=[greet]) as simulation:
        assert status(simulation) == {"said": "a has 1"}
        run_with(simulation, shop(size=2))
        assert status(simulation) == {"said": "a has 2"}
    assert told == [("a", 1), ("a", 2)]  # and not for the status that was written


def test_an_unfinished_call_is_recorded_and_the_next_one_goes_on_from_it() -> None:
    op, prices = Operator("shops"), dict[str, str]()

    @greets(op)
    def greet(name: str, spec: dict[str, Any]) -> str:
        return prices[name]

    with simulated(op, shop(size=1), through=[greet]) as simulation:
        simulation.advance(MINUTE)
        assert status(simulation) == {"tries": 2}
        assert "attempt 3: 'a'" in simulation.level("greet", "default", "a").reason
        prices["a"] = "cheap"
        simulation.advance(MINUTE)
        assert status(simulation) == {"tries": 2, "said": "cheap"}


def test_an_unfinished_call_is_made_again_without_a_delay_once_a_field_is_there_that_it_awaits() -> None:
    op = Operator("shops")

    @greets(op)
    def greet(name: str, spec: dict[str, Any]) -> str:
        raise LookupError(f"no price of {name} {spec}")

    with simulated(op, shop(size=1), through=[greet]) as simulation:
        assert status(simulation) == {"tries": 1}
        simulation.patch_status(Shop, "a", {"price": 1})
        simulation.run()
        assert status(simulation)["tries"] == 2


def test_a_call_that_is_unfinished_for_longer_than_its_limit_is_given_up() -> None:
    op = Operator("shops")

    @greets(op, give_up_after=timedelta(seconds=90))
    def greet(name: str, spec: dict[str, Any]) -> str:
        raise LookupError(f"no price of {name} {spec}")

    with simulated(op, shop(size=1), through=[greet]) as simulation:
        simulation.advance(timedelta(hours=1))
        assert status(simulation) == {"tries": 2}
        level = simulation.level("greet", "default", "a")
        assert level.status == "failed"
        assert "given up 0:01:30 after it was decided: no price of a" in level.reason


def test_an_adapter_may_be_adopted_again_and_its_name_is_its_own() -> None:
    op = Operator("shops")
    adapter, edges = Greeter(lambda *_: "hello", Shop), Edges(reasons=frozenset({"create"}))
    op.adopt("greet", adapter, edges)
    op.adopt("greet", adapter, Edges(reasons=frozenset({"create"}), finalizer=True))
    with pytest.raises(OperatorError, match="has the handler 'greet' already"):
        op.adopt("greet", Greeter(lambda *_: "hello", Shop), edges)


def test_what_layers_take_is_sorted_and_says_what_it_is() -> None:
    assert sorted(layers.__all__) == layers.__all__
    assert [
        name for name in layers.__all__ if inspect.isclass(found := getattr(layers, name)) and not found.__doc__
    ] == []


def test_nothing_below_the_kopf_layer_speaks_of_it() -> None:
    package = Path(levelog.__file__).parent
    files = [file for file in package.rglob("*.py") if "compat" not in file.parts]
    assert [file.name for file in files if "kopf" in file.read_text().lower()] == []
