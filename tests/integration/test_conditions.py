"""Conditions in an object's status, which sum up its levels, and views that are given how levels stand."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field

from levelog import GiveUp, Index, Intent, Level, Operator, Owner, Resource, Struct, apply
from levelog.conditions import MOST_MESSAGE, Condition
from levelog.daemons import Daemon
from levelog.levels import Levels
from levelog.testing import Simulation
from rigs.kinds import Pod, web
from rigs.run.examples import examples
from rigs.simulated import run_with, simulated
from rigs.typed import Web


class ShopStatus(Struct):
    conditions: list[Condition] = field(default_factory=list[Condition])


SECOND: Final = timedelta(seconds=1)


def made(*, conditions: bool = True, events: bool = True) -> Operator:
    op = Operator("webs")

    @op.index
    def names(pod: Pod) -> Iterator[tuple[Owner, str]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, pod.metadata.name

    @op.view
    def pods(web: Web, names: Index[Owner, str]) -> Level[set[str]]:
        wanted = {f"{web.metadata.name}-{n}" for n in range(web.spec.replicas)}
        return Level(desired=wanted, actual=set(names[web.as_owner]))

    @op.reconcile(pods)
    def converge(web: Web, level: Level[set[str]]) -> Iterator[Intent]:
        for name in sorted(level.drift.missing):
            spec = {"containers": [{"name": "web", "image": "a"}]}
            yield apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    @op.view
    def finding(web: Web) -> Level[bool]:
        return Level(desired=True, actual=web.spec.replicas < 3)

    @op.view
    def stands(web: Web, levels: Levels) -> Level[dict[str, str]]:
        return Level(desired={}, actual={name: each.status for name, each in levels.items()})

    if conditions:
        op.conditions(Web, events=events)
    return op


def conditions_of(
    simulation: Simulation, name: str = "shop", *, cls: type[Resource] | None = None
) -> dict[str, dict[str, Any]]:
    [found] = [each for each in simulation.objects(cls or Web) if each["metadata"]["name"] == name]
    return {each["type"]: each for each in found.get("status", {}).get("conditions", [])}


def statuses_of(simulation: Simulation, name: str = "shop", *, cls: type[Resource] | None = None) -> dict[str, str]:
    return {kind: each["status"] for kind, each in conditions_of(simulation, name, cls=cls).items()}


READY: Final = {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
STALLED: Final = {"Ready": "False", "Reconciling": "False", "Stalled": "True"}
RECONCILING: Final = {"Ready": "False", "Reconciling": "True", "Stalled": "False"}


def status_writes(simulation: Simulation) -> int:
    return sum(intent.verb == "patch_status" for intent in simulation.intents)


def test_a_change_that_is_done_at_once_costs_one_write_of_the_status_and_wakes_nobody() -> None:
    with simulated(made(), web()) as simulation:
        assert statuses_of(simulation) == READY
        assert conditions_of(simulation)["Ready"]["message"] == "in sync: pods"
        assert status_writes(simulation) == 1
        calls = dict(simulation.calls)
        simulation.advance(timedelta(hours=1))
        assert simulation.calls == calls
        run_with(simulation, web(replicas=2))
        assert statuses_of(simulation) == READY
        assert {each["observedGeneration"] for each in conditions_of(simulation).values()} == {2}
        assert status_writes(simulation) == 2
        assert simulation.calls["pods"] == calls["pods"] + 2, "for the change, and for its result"


class Typed(Resource, group="example.com", version="v1", plural="shops", kind="Shop"):
    status: ShopStatus = ShopStatus()

    def types(self) -> list[str]:
        return [each.type for each in self.status.conditions]


class Plain(Resource, group="example.com", version="v1", plural="shops", kind="Shop"):
    status: dict[str, Any] = field(default_factory=dict[str, Any])

    def types(self) -> list[str]:
        return [each["type"] for each in self.status["conditions"]]


@pytest.mark.parametrize("cls", [Typed, Plain])
def test_a_class_that_lists_its_conditions_is_not_woken_by_those_that_sum_up_its_levels(
    cls: type[Typed] | type[Plain],
) -> None:
    op, seen = Operator("shops"), list[list[str]]()

    def others(shop: Typed | Plain) -> Level[list[str]]:
        seen.append(shop.types())
        return Level(desired=[], actual=[])

    def nothing(_: Typed | Plain) -> list[Intent]:
        return []

    others.__annotations__["shop"] = nothing.__annotations__["_"] = cls
    op.reconcile(op.view(others))(nothing)
    op.conditions(cls)
    own = [{"type": kind, "status": "True"} for kind in ("Open", "Full")]
    with Simulation(op) as simulation:
        simulation.apply({**web(), "kind": "Shop"})
        simulation.patch_status(cls, "shop", {"conditions": own[:1]})
        simulation.run()
        [shown] = simulation.objects(cls)
        assert {each["type"] for each in shown["status"]["conditions"]} == {"Open", *READY}
        assert seen == [["Open"]]
        simulation.patch_status(cls, "shop", {"conditions": [*shown["status"]["conditions"], own[1]]})
        simulation.run()
        assert seen == [["Open"], ["Open", "Full"]]


@pytest.mark.parametrize("of", [None, Typed])
def test_an_object_is_ready_while_its_daemon_runs_and_stalled_once_that_has_given_up(of: type[Typed] | None) -> None:
    op, runs = Operator("shops"), list[Any]()

    async def follow(shop: Any, daemon: Daemon[Any, int]) -> None:
        runs.append(shop)
        await daemon.sleep(timedelta(minutes=1))
        raise GiveUp("no such job")

    follow.__annotations__ |= (
        {"shop": Typed, "daemon": Daemon[Typed, int]}
        if of is None
        else {"shop": Mapping[str, Any], "daemon": Daemon[Mapping[str, Any], int]}
    )
    op.daemon(of=of)(follow) if of is not None else op.daemon(follow)
    op.conditions(Typed)
    with simulated(op, {**web(), "kind": "Shop"}, through=[follow]) as simulation:
        simulation.advance(timedelta(seconds=30))
        assert statuses_of(simulation, cls=Typed) == READY
        simulation.advance(timedelta(minutes=5))
        assert statuses_of(simulation, cls=Typed) == {"Ready": "False", "Reconciling": "False", "Stalled": "True"}
        assert len(runs) == 1, "that it is stalled is no reason to run it again"


@pytest.mark.parametrize("give_up_after", [None, timedelta(days=1)])
def test_a_deletion_that_hangs_says_for_which_handler_and_then_its_last_error_in_the_condition_and_in_an_event(
    give_up_after: timedelta | None,
) -> None:
    op, errors = Operator("shops"), list[Exception]()

    @op.on.delete(finalizer=True, backoff=timedelta(minutes=1), give_up_after=give_up_after)
    def archive(shop: Typed) -> None:
        if errors:
            raise errors[0]

    op.conditions(Typed)
    shops = ({**web(name), "kind": "Shop"} for name in ("quick", "slow"))
    with simulated(op, *shops, through=[archive]) as simulation:
        writes = status_writes(simulation)
        assert statuses_of(simulation, "slow", cls=Typed) == READY
        simulation.delete(Typed, "quick")
        simulation.run()
        assert status_writes(simulation) == writes, "it was let go at once"
        errors.append(ValueError("the archive is full"))
        simulation.delete(Typed, "slow")
        simulation.advance(timedelta(seconds=1.2))
        assert conditions_of(simulation, "slow", cls=Typed)["Ready"]["message"] == "archive: waits for handler archive"
        simulation.advance(timedelta(seconds=90))
        assert (statuses_of(simulation, "slow", cls=Typed), simulation.events) == (RECONCILING, []), "two attempts"
        for count, error in enumerate(["the archive is full", "no archive"], start=1):
            errors[0] = ValueError(error)
            simulation.advance(timedelta(minutes=10))
            assert statuses_of(simulation, "slow", cls=Typed) == STALLED
            stalled = conditions_of(simulation, "slow", cls=Typed)["Stalled"]["message"]
            assert stalled.endswith(f"archive: ValueError: {error}")
            assert len(simulation.events) == count
            assert any(each.note.endswith(f"ValueError: {error}") for each in simulation.events)
        errors.clear()
        simulation.advance(timedelta(minutes=2))
        assert simulation.objects(Typed) == []


def test_what_no_write_can_close_counts_where_it_is_asked_for_and_says_what_is_missing() -> None:
    op = Operator("webs")

    @op.index
    def running(pod: Pod) -> Iterator[tuple[Owner, bool]]:
        if owner := pod.metadata.controlled_by(Web):
            yield owner, True

    @op.view
    def ready(web: Web, running: Index[Owner, bool]) -> Level[int]:
        there, wanted = len(list(running[web.as_owner])), web.spec.replicas
        return Level(desired=wanted, actual=there, reason=f"{there} of {wanted} pods ready")

    op.conditions(Web, also=[ready])
    with Simulation(op) as simulation:
        made = simulation.apply(web(replicas=2))
        simulation.run()
        assert simulation.level("ready", "default", "shop").reason == "0 of 2 pods ready"
        assert statuses_of(simulation) == RECONCILING
        assert conditions_of(simulation)["Ready"]["message"] == "ready: 0 of 2 pods ready"
        owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "controller": True}
        for name, message in (("a", "ready: 1 of 2 pods ready"), ("b", "in sync: ready")):
            owners = [owner | {"uid": made["metadata"]["uid"]}]
            metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
            spec = {"containers": [{"name": "web", "image": "a"}]}
            run_with(simulation, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            assert conditions_of(simulation)["Ready"]["message"] == message
        assert statuses_of(simulation) == READY


def test_an_object_that_is_being_deleted_is_not_said_to_be_ready_by_views_that_leave_it_alone() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(403, target="pods/default/shop-0")
        held = web()
        held["metadata"]["finalizers"] = ["example.com/another"]
        run_with(simulation, held)
        assert statuses_of(simulation) == STALLED
        told = conditions_of(simulation)
        simulation.delete(Web, "shop")
        simulation.advance(timedelta(minutes=1))
        assert simulation.level("pods", "default", "shop").status == "deleting"
        assert conditions_of(simulation) == told


def test_an_object_stays_stalled_while_what_has_failed_is_tried_again() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(503, target="pods/default/shop-0", times=25)  # a round makes ten attempts
        run_with(simulation, web())
        seen: list[dict[str, str]] = []
        for _ in range(60):
            simulation.advance(timedelta(seconds=30))
            if (now := statuses_of(simulation)) not in seen[-1:]:
                seen.append(now)
        assert seen == [RECONCILING, STALLED, READY]
        assert [each.count for each in simulation.events] == [1]


def test_an_object_of_another_generation_is_stalled_no_more() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(503, target="pods/default/shop-0")
        run_with(simulation, web())
        simulation.advance(timedelta(minutes=5))
        assert statuses_of(simulation) == STALLED
        run_with(simulation, web(replicas=2))
        simulation.advance(timedelta(seconds=2))
        assert statuses_of(simulation) == RECONCILING


def test_a_long_error_leaves_room_for_the_others_which_have_their_events() -> None:
    op = Operator("webs")

    @op.view
    def long(web: Web) -> Level[int]:
        raise ValueError("x" * 2 * MOST_MESSAGE)

    @op.view
    def short(web: Web) -> Level[int]:
        raise ValueError("the other one")

    @op.reconcile(long)
    @op.reconcile(short)
    def nothing(web: Web, level: Level[int]) -> Iterator[Intent]:
        yield from ()

    op.conditions(Web)
    with simulated(op, web()) as simulation:
        message = conditions_of(simulation)["Stalled"]["message"]
        assert len(message) == MOST_MESSAGE
        assert message.endswith("; short: view webs/short: ValueError: the other one")
        assert sum(intent.verb == "event" for intent in simulation.intents) == 2


def test_a_refused_write_stalls_the_object_and_says_why_and_times_move_with_the_status_alone() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(403, target="pods/default/shop-0", times=1)
        run_with(simulation, web())
        assert statuses_of(simulation) == STALLED
        stalled = conditions_of(simulation)["Ready"]
        assert stalled["reason"] == "Failed"
        assert "pods: " in stalled["message"]
        assert "403" in stalled["message"]
        before = simulation.now
        simulation.advance(timedelta(hours=1))
        assert statuses_of(simulation) == READY
        ready = conditions_of(simulation)
        assert ready["Ready"]["lastTransitionTime"] > f"{before:%Y-%m-%dT%H:%M:%SZ}"
        assert ready["Reconciling"]["lastTransitionTime"] <= f"{before:%Y-%m-%dT%H:%M:%SZ}", "it was False all the time"


def test_what_takes_longer_than_a_second_is_reconciling() -> None:
    with Simulation(made(), echo=False) as simulation:
        run_with(simulation, web())
        assert conditions_of(simulation) == {}
        simulation.advance(2 * SECOND)
        assert [intent.verb for intent in simulation.intents] == ["apply", "patch_status"]
        assert statuses_of(simulation) == RECONCILING
        assert conditions_of(simulation)["Ready"]["reason"] == "Settling"
        simulation.echo = True
        simulation.run()
        assert statuses_of(simulation) == READY


def test_a_failed_level_leaves_one_event_that_counts_how_often_its_object_has_stalled() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(403, target="pods/default/shop-0", times=2)
        run_with(simulation, web())
        [told] = simulation.events
        assert (told.type, told.reason, told.kind, told.name) == ("Warning", "Failed", "Web", "shop")
        assert told.note == f"pods: {simulation.level('pods', 'default', 'shop').reason}"
        simulation.advance(timedelta(hours=1))
        assert simulation.calls["converge"] == 3, "it failed as before, and was done then"
        assert statuses_of(simulation) == READY
        assert simulation.events == [told], "neither is a failure that is new"
        simulation.refuse(403, target="pods/default/shop-0", times=1)
        simulation.delete(Pod, "shop-0")
        simulation.run()
        assert statuses_of(simulation) == STALLED
        assert [(each.note, each.count) for each in simulation.events] == [(told.note, 2)]


def test_another_error_is_another_event_and_a_new_generation_is_none() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(403, target="pods/default/shop-0", times=1)
        run_with(simulation, web())
        simulation.refuse(422, target="pods/default/shop-0")
        simulation.advance(timedelta(hours=1))
        assert sorted(each.count for each in simulation.events) == [1, 1]
        assert {code for code in ("403", "422") for each in simulation.events if code in each.note} == {"403", "422"}
        writes = status_writes(simulation)
        run_with(simulation, web(replicas=2))
        assert {each["observedGeneration"] for each in conditions_of(simulation).values()} == {2}
        assert status_writes(simulation) > writes
        assert [each.count for each in simulation.events] == [1, 1]


def test_a_status_that_has_to_be_patched_again_does_not_tell_twice() -> None:
    with Simulation(made()) as simulation:
        simulation.refuse(403, target="pods/default/shop-0")
        simulation.refuse(422, target="webs.example.com/default/shop", times=2)
        simulation.apply(web())
        simulation.advance(timedelta(hours=2))
        assert status_writes(simulation) >= 3
        assert statuses_of(simulation) == STALLED
        assert sum(intent.verb == "event" for intent in simulation.intents) >= 3, "each patch has it"
        assert [each.count for each in simulation.events] == [1]


def test_a_view_that_raises_leaves_an_event_too_and_without_events_nothing_does() -> None:
    for events in (True, False):
        op = Operator("webs")

        @op.view
        def broken(web: Web) -> Level[int]:
            raise ValueError(f"no room for {web.metadata.name}")

        @op.reconcile(broken)
        def never(web: Web) -> Iterator[Intent]:
            yield from ()

        op.conditions(Web, events=events)
        with simulated(op, web()) as simulation:
            assert statuses_of(simulation) == STALLED
            assert ["no room for shop" in each.note for each in simulation.events] == [True] * events


def test_levels_come_in_the_order_of_their_names_as_a_replay_of_the_decision_has_them() -> None:
    op = Operator("webs")

    @op.view
    def second(web: Web) -> Level[int]:
        return Level(desired=1, actual=1)

    @op.view
    def first(web: Web) -> Level[int]:
        return Level(desired=1, actual=2)

    @op.view
    def listed(web: Web, levels: Levels) -> Level[list[str]]:
        return Level(desired=[], actual=list(levels))

    with simulated(op, web()) as simulation:
        assert simulation.level("listed", "default", "shop").actual == ["first", "second"]


STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), st.sampled_from(["shop", "other"]), st.integers(0, 3)),
        st.tuples(st.just("refuse"), st.sampled_from(["shop-0", "other-1"]), st.sampled_from([403, 422, 503])),
        st.tuples(st.just("delete"), st.sampled_from(["shop-0", "shop-1", "other-0"]), st.none()),
        st.tuples(st.just("echo"), st.booleans(), st.none()),
        st.tuples(st.just("pass"), st.sampled_from([0.5, 3, 90]), st.none()),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS)
def test_whatever_happened_a_view_at_rest_has_seen_the_levels_as_they_are(steps: list[tuple[str, Any, Any]]) -> None:
    with Simulation(made()) as simulation:
        simulation.apply(web())
        for what, first, second in steps:
            match what:
                case "apply":
                    simulation.apply(web(first, replicas=second))
                case "refuse":
                    simulation.refuse(second, target=f"pods/default/{first}", times=1)
                case "delete":
                    if first in [each["metadata"]["name"] for each in simulation.objects(Pod)]:
                        simulation.delete(Pod, first)
                case "echo":
                    simulation.echo = first
                case _:
                    simulation.advance(timedelta(seconds=first))
            simulation.run()
            for each in simulation.objects(Web):
                place = "default", each["metadata"]["name"]
                standing = {name: simulation.level(name, *place).status for name in ("pods", "finding")}
                assert simulation.level("stands", *place).actual == standing
        simulation.echo = True
        simulation.advance(timedelta(hours=1))
        for each in simulation.objects(Web):
            conditions = conditions_of(simulation, each["metadata"]["name"])
            is_ready = simulation.level("pods", "default", each["metadata"]["name"]).status == "in_sync"
            assert conditions["Ready"]["status"] == ("True" if is_ready else "False")
            assert conditions["Ready"]["observedGeneration"] == each["metadata"]["generation"]
