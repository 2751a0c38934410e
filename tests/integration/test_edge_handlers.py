"""Edge handlers and timers: called for what differs from what they handled, for nothing else, and not too often."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import pairwise
from threading import Event
from typing import Any

import pytest

from levelog import ABSENT, Intent, Operator, Retry, delete
from levelog.edges import Diff, FieldChange
from levelog.testing import Simulation
from rigs.kinds import web
from rigs.simulated import run_with, simulated
from rigs.typed import Web

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_handler_that_waits_to_be_tried_again_sees_the_newest_state_and_holds_up_no_other() -> None:
    op, told, failing = Operator("webs"), list[tuple[Any, ...]](), list[Exception]()
    attempts: list[str] = []

    @op.on.create
    async def provision(web: Web, reason: str) -> None:
        attempts.append(reason)
        if failing:
            raise failing[0]
        told.append(("provision", reason, web.spec.image))

    @op.on.update
    def compare(web: Web, old: Web, diff: Diff, reason: str) -> None:
        told.append(("compare", reason, old.spec.image, web.spec.image, diff))

    @op.on.field("spec.image")
    async def pull(web: Web, old: str | None, new: str | None, reason: str) -> None:
        told.append(("pull", reason, old, new))

    failing.append(ValueError("the cloud is away"))
    with simulated(op, web(), through=[provision, compare, pull]) as simulation:
        simulation.advance(timedelta(minutes=1))
        level = simulation.level("provision", "default", "shop")
        assert (level.status, level.actual) == ("settling", None)
        assert len(attempts) > 3
        run_with(simulation, web(image="b"))
        changed = (FieldChange(op="change", path="/spec/image", old="a", new="b"),)
        expected = [
            ("pull", "create", None, "a"),
            ("pull", "update", "a", "b"),
            ("compare", "update", "a", "b", changed),
        ]
        assert sorted(told[:1]) + sorted(told[1:], reverse=True) == expected
        failing.clear()
        simulation.advance(timedelta(minutes=20))
        assert told[3:] == [("provision", "create", "b")]
        assert simulation.level("provision", "default", "shop").status == "in_sync"


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators of users do that know nothing of async functions."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def test_an_async_function_in_a_plain_wrapper_is_awaited() -> None:
    op = Operator("webs")
    told: list[str] = []

    @op.on.create
    @wrapped
    async def provision(web: Web) -> None:
        told.append("provision")

    @op.timer(every=timedelta(hours=1))
    @wrapped
    async def rotate(web: Web) -> None:
        told.append("rotate")

    with simulated(op, web(), through=[provision, rotate]):
        assert sorted(told) == ["provision", "rotate"]


def test_intents_that_are_returned_and_not_yielded_fail_the_level() -> None:
    op = Operator("webs")

    @op.on.create
    def listed(web: Web) -> Any:
        return [delete(web)]

    @op.on.create
    async def single(web: Web) -> Any:
        return delete(web)

    @op.on.create
    @wrapped
    def generated(web: Web) -> Any:
        yield delete(web)

    @op.timer(every=timedelta(hours=1))
    def rotate(web: Web) -> list[Intent]:
        return [delete(web)]

    with simulated(op, web(), through=[listed, single, generated, rotate]) as simulation:
        for name in ("listed", "single", "generated", "rotate"):
            level = simulation.level(name, "default", "shop")
            assert (level.status, "it has to yield intents" in level.reason) == ("failed", True), level
        assert simulation.objects(Web)


def test_true_and_1_are_an_edge() -> None:
    op = Operator("webs")
    told: list[tuple[Any, ...]] = []

    @op.on.create(of=Web)
    @op.on.update(Web)
    def provision(found: Mapping[str, Any], diff: Diff) -> None:
        told.extend((change.path, change.old, change.new) for change in diff)

    with Simulation(op) as simulation:
        simulation.call_through(provision)
        for value in (1, True, [{"a": 1}], [{"a": True}], [{"a": True}]):
            run_with(simulation, web(note=value))
        expected = [1, True, [{"a": 1}], [{"a": True}]]
        assert repr(told) == repr([("/spec/note", old, new) for old, new in pairwise(expected)])


def test_methods_of_one_object_are_handlers() -> None:
    op = Operator("webs")

    class Cloud:
        def __init__(self) -> None:
            self.told: list[str] = []

        def provision(self, web: Web, reason: str) -> None:
            self.told.append(reason)

    cloud = Cloud()
    op.on.create(op.on.update(cloud.provision))
    with Simulation(op) as simulation:
        simulation.call_through(cloud.provision)
        for replicas in (1, 2):
            run_with(simulation, web(replicas=replicas))
        assert cloud.told == ["create", "update"]


def test_a_function_that_cannot_be_ended_uses_up_no_retries_while_it_goes_on() -> None:
    op = Operator("webs")
    is_free = Event()
    told: list[int] = []

    @op.on.create(timeout=timedelta(seconds=1), retries=1)
    def provision(web: Web, retry: int) -> None:
        told.append(retry)
        if not retry:
            is_free.wait(60)

    with simulated(op, web(), through=[provision]) as simulation:
        simulation.advance(timedelta(minutes=10))
        level = simulation.level("provision", "default", "shop")
        assert (level.status, told) == ("settling", [0]), level
        is_free.set()
        for _ in range(200):  # a thread ends by the time of the machine
            simulation.advance(timedelta(minutes=1))
            if len(told) > 1:
                break
        assert told == [0, 1]
        assert simulation.level("provision", "default", "shop").status == "in_sync"


def test_filters_say_which_objects_and_which_edges_are_handled() -> None:
    op = Operator("webs")
    told: list[tuple[Any, ...]] = []

    @op.on.create(when=lambda found: found.spec.replicas > 1)
    async def large(web: Web) -> None:
        told.append(("large", web.spec.replicas))

    @op.on.field("spec.replicas", new=lambda replicas: replicas > 3)
    async def huge(web: Web, old: int | None, new: int) -> None:
        told.append(("huge", old, new))

    @op.on.field("/spec/note", of=Web, value=lambda note: note is not None)
    async def noted(web: Mapping[str, Any], new: str) -> None:
        told.append(("noted", web["metadata"]["name"], new))

    @op.on.field("/spec/note", of=Web, new=ABSENT)
    async def blank(web: Mapping[str, Any], old: str | None) -> None:
        told.append(("blank", old))

    def taken() -> list[tuple[Any, ...]]:
        found, told[:] = sorted(told, key=str), []
        return found

    with Simulation(op) as simulation:
        simulation.call_through(large, huge, noted, blank)
        steps: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
            ({"replicas": 1}, [("blank", None)]),
            ({"replicas": 2}, [("large", 2)]),
            ({"replicas": 5}, [("huge", 2, 5)]),
            ({"replicas": 1}, []),
            ({"replicas": 4, "note": "x"}, [("huge", 1, 4), ("noted", "shop", "x")]),
            ({"replicas": 4}, [("blank", "x")]),
        ]
        for spec, expected in steps:
            run_with(simulation, web(**spec))
            assert taken() == expected, spec


def test_objects_from_before_the_handler_are_for_resume_and_are_else_only_noted() -> None:
    op = Operator("webs")
    told: list[tuple[str, str, str]] = []
    since = BEGIN + timedelta(hours=1)

    @op.on.create
    @op.on.update
    @op.on.resume(since=since)
    async def all_of_them(web: Web, reason: str, old: Web | None) -> None:
        assert (old is None) == (reason != "update")
        told.append(("all_of_them", reason, web.metadata.name))

    @op.on.create(since=since)
    @op.on.update
    async def from_now(web: Web, reason: str) -> None:
        told.append(("from_now", reason, web.metadata.name))

    @op.on.create(since=since)
    async def new_ones(web: Web, reason: str) -> None:
        told.append(("new_ones", reason, web.metadata.name))

    @op.on.resume(since=since, of=Web)
    async def old_ones(web: Mapping[str, Any], reason: str) -> None:
        told.append(("old_ones", reason, web["metadata"]["name"]))

    def taken() -> set[tuple[str, str, str]]:
        found = set(told)
        assert len(found) == len(told)
        told.clear()
        return found

    with simulated(op, web("old"), through=[all_of_them, from_now, new_ones, old_ones]) as simulation:
        simulation.advance(timedelta(hours=1))
        assert taken() == {("all_of_them", "resume", "old"), ("old_ones", "resume", "old")}
        assert "new_ones_handled" not in simulation.calls
        run_with(simulation, web("young"), web("old", image="b"))
        created = {(name, "create", "young") for name in ("all_of_them", "from_now", "new_ones")}
        assert taken() == created | {(name, "update", "old") for name in ("all_of_them", "from_now")}
        for view in ("all_of_them", "from_now", "new_ones", "old_ones"):
            assert simulation.level(view, "default", "old").status == "in_sync"


def test_a_timer_is_due_by_its_last_call_and_what_was_missed_is_called_once() -> None:
    op = Operator("webs")
    told: list[datetime] = []
    is_failing = False

    @op.timer(every=timedelta(minutes=10), initial_delay=timedelta(minutes=1))
    async def rotate(web: Web, retry: int) -> None:
        if is_failing:
            raise Retry("away", delay=timedelta(minutes=35))
        told.append(simulation.now)

    with Simulation(op) as simulation:
        simulation.call_through(rotate)
        simulation.apply(web())
        simulation.advance(timedelta(minutes=22))
        assert told == [BEGIN + timedelta(minutes=minutes) for minutes in (1, 11, 21)]
        is_failing = True
        simulation.advance(timedelta(minutes=30))
        is_failing = False
        simulation.apply(web(replicas=7))
        simulation.advance(timedelta(minutes=30))
        assert told[3:] == [BEGIN + timedelta(minutes=minutes) for minutes in (52, 62, 72, 82)]


@pytest.mark.parametrize("sharp", [False, True])
def test_an_idle_timer_counts_from_the_last_change_of_what_it_reads(sharp: bool) -> None:
    op = Operator("webs")
    told: list[datetime] = []
    is_failing = False

    @op.timer(every=timedelta(minutes=10), idle=timedelta(minutes=4), sharp=sharp)
    async def settle(web: Web) -> None:
        if is_failing:
            raise Retry("away", delay=timedelta(minutes=1))
        told.append(simulation.now)

    def minutes() -> list[float]:
        found = [(each - BEGIN) / timedelta(minutes=1) for each in told]
        told.clear()
        return found

    with Simulation(op) as simulation:
        simulation.call_through(settle)
        simulation.apply(web())
        simulation.advance(timedelta(minutes=18))  # until 18
        assert minutes() == ([10] if sharp else [4, 14])
        simulation.apply(web(replicas=2))
        simulation.apply(web(replicas=2) | {"status": {"is": "ready"}})
        simulation.advance(timedelta(minutes=5))  # until 23
        assert minutes() == []
        simulation.apply(web(replicas=2) | {"status": {"is": "idle"}})
        simulation.apply(web(replicas=2))  # no change of what it reads
        simulation.advance(timedelta(minutes=8))  # until 31
        assert minutes() == ([30] if sharp else [24])
        is_failing = True
        simulation.advance(timedelta(minutes=10))  # until 41: it fails, and is to be tried again
        is_failing = False
        simulation.apply(web(replicas=3))
        simulation.advance(timedelta(minutes=3))  # until 44: it waits all the same
        assert minutes() == []
        simulation.advance(timedelta(minutes=7))  # until 51
        assert minutes() == ([50] if sharp else [45])


@pytest.mark.parametrize("takes", [Web, Mapping[str, Any]], ids=["decoded", "plain"])
def test_a_decorator_names_the_class_whose_objects_the_function_takes(takes: Any) -> None:
    op, told = Operator("webs"), set[str]()
    day = timedelta(days=1)
    decorators: dict[str, Callable[..., Any]] = {
        "create": op.on.create(Web),
        "update": op.on.update(Web, retries=3),
        "delete": op.on.delete(Web),
        "field": op.on.field("spec", of=Web),
        "resume": op.on.resume(Web, since=BEGIN + timedelta(days=3650)),
        "event": op.on.event(Web),
        "timer": op.timer(Web, every=day),
        "unrecorded": op.timer(Web, every=day, recorded=False),
        "daemon": op.daemon(Web),
    }

    def function(name: str) -> Callable[..., Any]:
        async def called(web: Any) -> None:
            assert (web.spec.image if takes is Web else web["spec"]["image"]) in ("a", "b")
            told.add(name)

        called.__name__, called.__annotations__["web"] = name, takes
        return called

    functions = [decorate(function(name)) for name, decorate in decorators.items()]
    with simulated(op, web(image="a"), through=functions) as simulation:
        run_with(simulation, web(image="b"))
        simulation.delete(Web, "shop")
        simulation.run()
        assert told == set(decorators)
