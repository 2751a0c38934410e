"""Children that a function cannot tell, or would delete by mistake: they stay."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from levelog import Manifest, Operator, Resource, Struct
from levelog.testing import Simulation
from rigs.kinds import ConfigMap, manifest
from rigs.simulated import run_with, simulated


class ShopSpec(Struct):
    parts: tuple[str, ...] = ()
    zone: str = "east"


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec


class StatefulSet(Resource, group="apps", version="v1", plural="statefulsets"):
    pass


def shop(*parts: str, zone: str = "east") -> Manifest:
    return manifest("Shop", "shop", parts=parts, zone=zone)


def manifests(shop: Shop) -> list[Manifest]:
    labels = {"app": "shop"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "db", "image": "db"}]}}
    sets = {"selector": {"matchLabels": labels}, "serviceName": "db", "template": template}
    kinds: dict[str, tuple[str, str, Manifest]] = {
        "s": ("apps/v1", "StatefulSet", {"spec": sets}),
        "c": ("v1", "ConfigMap", {"data": {"a": "b"}}),
    }
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": part}, **rest}
        for part in shop.spec.parts
        for version, kind, rest in [kinds[part[0]]]
    ]


def children(simulation: Simulation) -> list[str]:
    return sorted(each["metadata"]["name"] for cls in (StatefulSet, ConfigMap) for each in simulation.objects(cls))


def operator(function: Callable[[Shop], Any], **options: Any) -> Operator:
    op = Operator("shops")
    op.children(Shop, of=[StatefulSet, ConfigMap], **options)(function)
    return op


def raised() -> None:
    raise ValueError("no map of the west")


@pytest.mark.parametrize(
    ("west", "status", "reason"),
    [
        (lambda: Operator.KEEP, "in_sync", ""),
        (raised, "failed", "no map of the west"),
        (lambda: None, "failed", "nothing is returned"),
    ],
)
def test_children_stay_as_they_are_where_the_function_cannot_tell_them(
    west: Callable[[], Any], status: str, reason: str
) -> None:
    def parts(shop: Shop) -> Any:
        return manifests(shop) if shop.spec.zone == "east" else west()

    with simulated(operator(parts), shop("s1", "c1")) as simulation:
        assert children(simulation) == ["c1", "s1"]
        simulation.apply(shop("s1", "c1", zone="west"))
        simulation.advance(timedelta(hours=1))
        assert children(simulation) == ["c1", "s1"]
        level = simulation.level("parts", "default", "shop")
        assert level.status == status
        assert reason in level.reason


def confirm(simulation: Simulation, reason: str) -> None:
    """Do what the reason says."""
    command = reason[reason.index("`kubectl") + 1 : reason.rindex("`")]
    assert command.startswith("kubectl annotate --overwrite shops.example.com shop -n default ")
    name, value = command.rpartition(" ")[2].split("=")
    simulation.patch(Shop, "shop", {"metadata": {"annotations": {name: value}}})
    simulation.run()


def test_more_deletions_than_may_be_at_once_wait_until_they_are_confirmed() -> None:
    def parts(shop: Shop) -> list[Manifest]:
        return manifests(shop)

    with simulated(operator(parts, max_deletions=1), shop("s1", "s2", "c1", "c2")) as simulation:
        run_with(simulation, shop("s1", "s2", "c1"))
        assert children(simulation) == ["c1", "s1", "s2"]
        simulation.apply(shop())
        simulation.advance(timedelta(hours=1))
        assert children(simulation) == ["c1", "s1", "s2"]
        held = simulation.level("parts", "default", "shop")
        assert held.status == "failed"
        assert "3 children would be deleted, and 1 may be at once: ConfigMap/c1, StatefulSet/s1, Stat" in held.reason
        simulation.patch(Shop, "shop", {"metadata": {"annotations": {"levelog/confirm-deletions": "3"}}})
        simulation.run()
        assert len(children(simulation)) == 3, "not what it asks for"
        confirm(simulation, held.reason)
        assert children(simulation) == []
        assert simulation.level("parts", "default", "shop").status == "in_sync"
        run_with(simulation, shop("s1", "s2", "c1"))
        run_with(simulation, shop())
        assert children(simulation) == ["c1", "s1", "s2"], "what was confirmed is over"
