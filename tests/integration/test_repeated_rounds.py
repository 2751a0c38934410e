"""Somebody else undoes what a level writes: it comes again at once a few times, then more and more seldom."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec import field

from levelog import Index, Intent, Level, Operator, Resource, Struct, apply
from levelog.testing import Simulation


class ShopSpec(Struct):
    colour: str


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = field(default_factory=dict[str, str])


op = Operator("shops")


@op.index
def colours(found: ConfigMap) -> Iterator[tuple[str, str]]:
    yield found.metadata.name, found.data.get("colour", "")


@op.view
def painted(shop: Shop, colours: Index[str, str]) -> Level[str]:
    return Level(desired=shop.spec.colour, actual=next(iter(colours[shop.metadata.name]), "none"))


@op.reconcile(painted, writes={ConfigMap: ["apply"]})
def paint(shop: Shop) -> Iterator[Intent]:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": shop.metadata.name}}
    yield apply(manifest | {"data": {"colour": shop.spec.colour}}, force=True)


def shop(colour: str) -> dict[str, object]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Shop",
        "metadata": {"name": "corner", "namespace": "default"},
        "spec": {"colour": colour},
    }


def undo(simulation: Simulation, colour: str = "grey") -> None:
    simulation.patch(ConfigMap, "corner", {"data": {"colour": colour}})
    simulation.run()


def rounds(simulation: Simulation) -> int:
    return simulation.level("painted", "default", "corner").round


def test_a_field_that_somebody_writes_back_each_time_is_written_at_once_and_then_more_and_more_seldom() -> None:
    with Simulation(op) as simulation:
        simulation.apply(shop("red"))
        simulation.run()
        for number in range(6):  # the first round found no object: it is not one of those that were undone
            assert rounds(simulation) == 1 + number
            undo(simulation)
        assert rounds(simulation) == 7
        undo(simulation)
        level = simulation.level("painted", "default", "corner")
        assert (level.status, level.round) == ("drifting", 7)
        assert level.reason.startswith("written and undone 6 times, the last time by user; the next round is at ")
        for pause in (1, 2, 4, 8):
            before = rounds(simulation)
            simulation.advance(timedelta(seconds=pause) - timedelta(milliseconds=10))
            assert rounds(simulation) == before
            simulation.advance(timedelta(milliseconds=10))
            assert rounds(simulation) == before + 1
            assert simulation.level("painted", "default", "corner").status == "in_sync"
            undo(simulation)
            assert rounds(simulation) == before + 1
        simulation.advance(timedelta(seconds=16))
        undo(simulation)
        level = simulation.level("painted", "default", "corner")
        assert level.reason.startswith("written and undone 11 times, the last time by user; ")


def test_two_levels_of_one_operator_that_undo_each_other_are_told_of_each_other() -> None:
    op = Operator("shops")
    op.index(colours)

    @op.view
    def dressed(shop: Shop, colours: Index[str, str]) -> Level[str]:
        return Level(desired=shop.spec.colour, actual=next(iter(colours["window"]), "none"))

    @op.reconcile(dressed, writes={ConfigMap: ["apply"]})
    def dress(shop: Shop) -> Iterator[Intent]:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "window"}}
        yield apply(manifest | {"data": {"colour": shop.spec.colour}}, owned=False)

    with Simulation(op) as simulation:
        for name, colour in (("corner", "red"), ("market", "blue")):
            simulation.apply({**shop(colour), "metadata": {"name": name, "namespace": "default"}})
        simulation.run()
        reasons = [simulation.level("dressed", "default", name).reason for name in ("corner", "market")]
        [told] = [each for each in reasons if each]
        assert "another write of levelog-shops itself: `levelog why configmaps/default/window` shows both" in told


def test_what_is_wanted_otherwise_is_written_at_once_and_so_is_what_was_in_sync_for_a_while() -> None:
    with Simulation(op) as simulation:
        simulation.apply(shop("red"))
        simulation.run()
        for _ in range(7):
            undo(simulation)
        assert simulation.level("painted", "default", "corner").status == "drifting"
        simulation.apply(shop("blue"))
        simulation.run()
        assert simulation.level("painted", "default", "corner").status == "in_sync"
        for _ in range(5):
            undo(simulation)
        before = rounds(simulation)
        simulation.advance(timedelta(minutes=1))
        for number in range(6):
            undo(simulation)
            assert rounds(simulation) == before + 1 + number


def test_an_object_that_is_deleted_again_and_again_is_made_anew_at_once_five_times() -> None:
    with Simulation(op) as simulation:
        simulation.apply(shop("red"))
        simulation.run()
        for number in range(5):
            simulation.delete(ConfigMap, "corner")
            simulation.run()
            assert rounds(simulation) == 2 + number
        simulation.delete(ConfigMap, "corner")
        simulation.run()
        level = simulation.level("painted", "default", "corner")
        assert level.reason.startswith("written and undone 6 times; the next round is at ")


def test_steps_towards_what_is_wanted_are_none_that_were_undone() -> None:
    with Simulation(op) as simulation:
        simulation.apply(shop("red"))
        simulation.run()
        for number in range(10):
            undo(simulation, f"grey {number}")
            assert rounds(simulation) == 2 + number
