"""Edge handlers that yield intents."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from levelog import GiveUp, Intent, Operator, Resource, apply, call, patch
from levelog.intents import delete, event
from levelog.testing import Simulation
from rigs.kinds import ConfigMap, Secret, manifest, web
from rigs.simulated import run_with, simulated
from rigs.typed import Web

MINUTE = timedelta(minutes=1)


class Total(Resource, group="example.com", version="v1", plural="totals"):
    pass


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Ledger:
    """An operator that writes down each edge of a Web in a config map of its own, and counts in a total."""

    def __init__(self) -> None:
        self.op = op = Operator("webs")
        self.told: list[tuple[str, str]] = []

        @op.on.create(writes={ConfigMap: ["apply"], Total: ["patch"]})
        @op.on.update
        @op.on.delete
        def record(web: Web, reason: str) -> Iterator[Intent]:
            self.told.append((reason, web.spec.image))
            yield apply(config_map(f"{web.metadata.name}-{reason}", image=web.spec.image))
            yield patch(Total, "all", [{"op": "add", "path": "/spec/seen/-", "value": web.spec.image}])

        self.record = record


TOTAL: dict[str, Any] = manifest("Total", "all", seen=[])


def seen(simulation: Simulation) -> list[str]:
    [total] = simulation.objects(Total)
    found: list[str] = total["spec"]["seen"]
    return found


def stored(simulation: Simulation) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in simulation.objects(ConfigMap)}


@pytest.fixture
def ledger() -> Iterator[tuple[Ledger, Simulation]]:
    made = Ledger()
    with Simulation(made.op) as simulation:
        simulation.call_through(made.record)
        simulation.apply(TOTAL)
        yield made, simulation


def test_what_a_handler_yields_is_written_once_for_each_call_also_for_that_of_the_end(
    ledger: tuple[Ledger, Simulation],
) -> None:
    made, simulation = ledger
    run_with(simulation, web())
    found = stored(simulation)
    assert found["shop-create"]["data"] == {"image": "a"}
    assert [each["name"] for each in found["shop-create"]["metadata"]["ownerReferences"]] == ["shop"]
    assert seen(simulation) == ["a"]
    for view in ("record", "record_writes"):
        assert simulation.level(view, "default", "shop").status == "in_sync"
    simulation.apply(web(image="b"))
    simulation.advance(timedelta(hours=1))
    assert seen(simulation) == ["a", "b"]
    simulation.delete(Web, "shop")
    simulation.advance(timedelta(hours=1))
    assert "ownerReferences" not in stored(simulation)["shop-delete"]["metadata"], "by what is gone"
    assert seen(simulation) == ["a", "b", "b"]
    assert made.told == [("create", "a"), ("update", "b"), ("delete", "b")]


def test_of_several_writes_only_those_that_failed_are_tried_again(ledger: tuple[Ledger, Simulation]) -> None:
    made, simulation = ledger
    simulation.refuse(422, target="configmaps/default/shop-create", times=2)
    simulation.apply(web())
    simulation.advance(timedelta(hours=1))
    assert stored(simulation)["shop-create"]["data"] == {"image": "a"}
    assert seen(simulation) == ["a"]
    assert simulation.level("record_writes", "default", "shop").status == "in_sync"
    assert made.told == [("create", "a")]


def test_a_handler_waits_for_its_writes_and_not_for_those_that_are_refused(ledger: tuple[Ledger, Simulation]) -> None:
    made, simulation = ledger
    simulation.refuse(503, target="configmaps/default/shop-create", times=1)
    run_with(simulation, web())
    run_with(simulation, web(image="b"))
    assert made.told == [("create", "a")]
    assert "see record_writes" in simulation.level("record", "default", "shop").reason
    simulation.advance(MINUTE)
    assert made.told == [("create", "a"), ("update", "b")]
    simulation.refuse(422, target="configmaps/default/shop-update")
    run_with(simulation, web(image="c"))
    level = simulation.level("record_writes", "default", "shop")
    assert (level.status, "422" in level.reason) == ("failed", True)
    run_with(simulation, web(image="d"))
    assert made.told[2:] == [("update", "c"), ("update", "d")]
    assert seen(simulation) == ["a", "b", "c", "d"]


def test_an_async_handler_may_call_effects_and_leave_events() -> None:
    op = Operator("webs")
    paid: list[str] = []

    @op.on.create(writes={Web: ["event"], ConfigMap: ["delete"]})
    async def bill(web: Web) -> AsyncIterator[Intent]:
        yield call(pay, web.spec.image)
        yield event("Billed", f"{web.spec.image} was billed")
        yield delete(ConfigMap, "unpaid", owned=False)

    @op.effect
    def pay(image: str) -> None:
        paid.append(image)

    with simulated(
        op, config_map("unpaid") | {"metadata": {"name": "unpaid", "namespace": "default"}}, web(), through=[bill, pay]
    ) as simulation:
        simulation.advance(timedelta(hours=1))
        assert paid == ["a"]
        assert [each.reason for each in simulation.events] == ["Billed"]
        assert stored(simulation) == {}
        assert simulation.level("bill_writes", "default", "shop").status == "in_sync"


@pytest.mark.parametrize(
    ("intent", "says"),
    [
        (delete(ConfigMap, "a"), "yielded delete of ConfigMap a, which its writes= do not name: declare it, writes={"),
        (apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}), 'writes={Pod: ["apply"]}'),
        (patch(Secret, "a", {"stringData": {"key": "12345678"}}), "with secret values, which would be recorded"),
        ({"kind": "Pod"}, "yielded dict, which is not an intent"),
    ],
)
def test_what_is_not_declared_or_may_not_be_recorded_fails_the_level(intent: Any, says: str) -> None:
    op = Operator("webs")

    @op.on.create(writes={ConfigMap: ["apply"], Secret: ["patch"]})
    def handler(web: Web) -> Iterator[Intent]:
        yield intent

    with simulated(op, web(), through=[handler]) as simulation:
        level = simulation.level("handler", "default", "shop")
        assert level.status == "failed"
        assert says in level.reason
        assert [each.verb for each in simulation.intents] == ["call"]


def test_a_handler_that_gives_up_yields_nothing() -> None:
    op = Operator("webs")

    @op.on.create(writes={ConfigMap: ["apply"]})
    def provision(web: Web) -> Iterator[Intent]:
        yield apply(config_map("half"))
        raise GiveUp("no")

    with simulated(op, web(), through=[provision]) as simulation:
        simulation.advance(timedelta(hours=1))
        assert stored(simulation) == {}
