"""Somebody else undoes what a level writes: it comes again at once a few times, then more and more seldom."""

from collections.abc import Iterator
from datetime import timedelta

from msgspec import field

from levelog import Index, Intent, Level, Manifest, Operator, Resource, Struct, apply, delete
from levelog.testing import Simulation
from rigs.kinds import manifest
from rigs.simulated import run_with, simulated


class ShopSpec(Struct):
    colour: str


class Shop(Resource, group="example.com", version="v1", plural="shops"):
    spec: ShopSpec


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = field(default_factory=dict[str, str])


def config_map(name: str, shop: Shop) -> Manifest:
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"colour": shop.spec.colour}}


op = Operator("shops")


@op.index
def colours(found: ConfigMap) -> Iterator[tuple[str, str]]:
    yield found.metadata.name, found.data.get("colour", "")


@op.view
def painted(shop: Shop, colours: Index[str, str]) -> Level[str]:
    return Level(desired=shop.spec.colour, actual=next(iter(colours[shop.metadata.name]), "none"))


@op.reconcile(painted, writes={ConfigMap: ["apply"]})
def paint(shop: Shop) -> Iterator[Intent]:
    yield apply(config_map(shop.metadata.name, shop), force=True)


def shop(colour: str, name: str = "corner") -> Manifest:
    return manifest("Shop", name, colour=colour)


def undo(simulation: Simulation, colour: str = "grey") -> None:
    simulation.patch(ConfigMap, "corner", {"data": {"colour": colour}})
    simulation.run()


def rounds(simulation: Simulation) -> int:
    return simulation.level("painted", "default", "corner").round


def test_a_field_that_somebody_writes_back_each_time_is_written_at_once_and_then_more_and_more_seldom() -> None:
    with simulated(op, shop("red")) as simulation:
        for number in range(6):  # the first round found no object: it is not one of those that were undone
            assert rounds(simulation) == 1 + number
            undo(simulation)
        assert rounds(simulation) == 7
        undo(simulation)
        level = simulation.level("painted", "default", "corner")
        assert (level.status, level.round, level.reason) == ("failed", 7, "undone 6 times by user")
        for pause in (1, 2, 4, 8):
            before = rounds(simulation)
            simulation.advance(timedelta(seconds=pause) - timedelta(milliseconds=10))
            assert rounds(simulation) == before
            simulation.advance(timedelta(milliseconds=10))
            assert rounds(simulation) == before + 1
            level = simulation.level("painted", "default", "corner")
            assert (bool(level.drift), level.status) == (False, "failed")
            undo(simulation)
            assert rounds(simulation) == before + 1
        simulation.advance(timedelta(seconds=16))
        undo(simulation)
        level = simulation.level("painted", "default", "corner")
        assert level.reason == "undone 11 times by user"


def status(simulation: Simulation) -> tuple[str, str]:
    level = simulation.level("painted", "default", "corner")
    return level.status, level.reason


def test_a_level_that_is_undone_again_and_again_is_not_in_sync_before_it_is_left_alone() -> None:
    told = Operator("shops")
    told.index(colours)
    told.reconcile(told.view(painted), writes={ConfigMap: ["apply"]})(paint)
    told.conditions(Shop)
    with simulated(told, shop("red")) as simulation:
        for _ in range(3):
            undo(simulation)
            assert status(simulation) == ("in_sync", "")
        undo(simulation)
        assert status(simulation) == ("failed", "undone 3 times by user")
        [event] = simulation.events
        assert event.note == "painted: undone 3 times by user"
        simulation.advance(timedelta(minutes=2))
        assert status(simulation) == ("in_sync", "")


def test_somebody_who_undoes_every_few_minutes_is_noticed_too() -> None:
    with simulated(op, shop("red")) as simulation:
        for number in range(6):
            undo(simulation)
            assert rounds(simulation) == 2 + number
            assert status(simulation)[0] == ("in_sync" if number < 4 else "failed")
            simulation.advance(timedelta(minutes=5))
        simulation.advance(timedelta(minutes=6))
        assert status(simulation) == ("in_sync", "")


def test_two_levels_of_one_operator_that_undo_each_other_are_told_of_each_other() -> None:
    op = Operator("shops")
    op.index(colours)

    @op.view
    def dressed(shop: Shop, colours: Index[str, str]) -> Level[str]:
        return Level(desired=shop.spec.colour, actual=next(iter(colours["window"]), "none"))

    @op.reconcile(dressed, writes={ConfigMap: ["apply"]})
    def dress(shop: Shop) -> Iterator[Intent]:
        yield apply(config_map("window", shop), owned=False)

    with Simulation(op) as simulation:
        for name, colour in (("corner", "red"), ("market", "blue")):
            simulation.apply(shop(colour, name))
        simulation.run()
        reasons = [simulation.level("dressed", "default", name).reason for name in ("corner", "market")]
        told = "another write of levelog-shops itself: `levelog why configmaps/default/window` shows both"
        assert [told in each for each in reasons] == [True, True], "neither is in sync, whoever wrote last"


def test_what_is_wanted_otherwise_is_written_at_once_and_so_is_what_was_in_sync_for_a_while() -> None:
    with simulated(op, shop("red")) as simulation:
        for _ in range(7):
            undo(simulation)
        assert simulation.level("painted", "default", "corner").status == "failed"
        run_with(simulation, shop("blue"))
        assert simulation.level("painted", "default", "corner").status == "in_sync"
        for _ in range(5):
            undo(simulation)
        before = rounds(simulation)
        simulation.advance(timedelta(minutes=1))
        for number in range(6):
            undo(simulation)
            assert rounds(simulation) == before + 1 + number


def test_two_wishes_that_take_turns_are_each_written_at_once_though_neither_comes_true() -> None:
    op = Operator("shops")

    @op.view
    def signed(shop: Shop) -> Level[str]:
        return Level(desired=shop.spec.colour, actual="none")

    @op.reconcile(signed, writes={ConfigMap: ["apply"]})
    def sign(shop: Shop) -> Iterator[Intent]:
        yield apply(config_map(shop.metadata.name, shop))

    with simulated(op, shop("red")) as simulation:
        for number in range(10):
            assert simulation.level("signed", "default", "corner").round == 1 + number
            run_with(simulation, shop("red" if number % 2 else "blue"))


def test_an_object_that_is_deleted_again_and_again_is_made_anew_at_once_five_times() -> None:
    with simulated(op, shop("red")) as simulation:
        for number in range(5):
            simulation.delete(ConfigMap, "corner")
            simulation.run()
            assert rounds(simulation) == 2 + number
        simulation.delete(ConfigMap, "corner")
        simulation.run()
        level = simulation.level("painted", "default", "corner")
        assert level.reason == "undone 6 times"


def test_steps_towards_what_is_wanted_are_none_that_were_undone() -> None:
    with simulated(op, shop("red")) as simulation:
        for number in range(10):
            undo(simulation, f"grey {number}")
            assert rounds(simulation) == 2 + number


def test_rounds_that_undo_each_other_come_at_once_and_then_more_and_more_seldom() -> None:
    op = Operator("shops")

    @op.index
    def names(found: ConfigMap) -> Iterator[tuple[str, str]]:
        yield found.metadata.namespace, found.metadata.name

    @op.view
    def made(shop: Shop, names: Index[str, str]) -> Level[set[str]]:
        return Level(desired={shop.metadata.name}, actual=set(names["default"]))

    @op.reconcile(made, writes={ConfigMap: ["apply", "delete"]})
    def make(shop: Shop, level: Level[set[str]]) -> Iterator[Intent]:
        if not level.drift.extra:
            yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{shop.metadata.name}-typo"}})
        for name in level.drift.extra:
            yield delete(ConfigMap, name)

    with simulated(op, shop("red")) as simulation:
        level = simulation.level("made", "default", "corner")
        assert (level.status, level.round, level.reason) == ("failed", 7, "undone 6 times by its own rounds")
        for number, pause in enumerate((1, 2, 4, 8)):
            simulation.advance(timedelta(seconds=pause) - timedelta(milliseconds=10))
            assert simulation.level("made", "default", "corner").round == 7 + number
            simulation.advance(timedelta(milliseconds=10))
            assert simulation.level("made", "default", "corner").round == 8 + number
        simulation.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "corner", "namespace": "default"}}
        )
        simulation.run()
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("made", "default", "corner").status == "in_sync"
