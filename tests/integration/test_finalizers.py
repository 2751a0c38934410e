"""Finalizers of handlers: on before anything is done, off once the end is handled, and never left without a handler."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelog import GiveUp, LabelledResource, Operator, Retry
from levelog.handlers.edgehandlers import IS_HANDLED, IS_OPEN
from levelog.testing import Simulation
from rigs.run.examples import examples
from rigs.simulated import run_with, simulated
from rigs.typed import Web, WebSpec

FINALIZER = "levelog/webs"


class LabelledWeb(LabelledResource, group="example.com", version="v1", plural="webs", kind="Web"):
    spec: WebSpec


def web(name: str = "shop", /, *, finalizers: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"} | more
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": {"image": "a"}}


class Handlers:
    """An operator with a handler whose function holds objects up; each tells what finalizers it found on them."""

    def __init__(self, **options: Any) -> None:
        self.op = op = Operator("webs")
        self.told: list[tuple[str, list[str] | None]] = []
        self.failing: dict[str, Exception] = {}
        self.simulation = Simulation(op)

        @op.on.create
        def provision(web: Web) -> None:
            self.tell("provision")

        @op.on.delete(finalizer=True, **options)
        def archive(web: Web) -> None:
            self.tell("archive")

        @op.on.delete
        def mourn(web: Web) -> None:
            self.tell("mourn")

        self.functions: tuple[Callable[..., Any], ...] = (provision, archive, mourn)

    def tell(self, name: str) -> None:
        found = self.cluster()
        self.told.append((name, found.get("shop")))
        if name in self.failing:
            raise self.failing[name]

    def cluster(self) -> dict[str, list[str]]:
        """Finalizers of the objects that the cluster has, by name; read in the simulation's own thread."""
        world = self.simulation._open  # pyright: ignore[reportPrivateUsage] - handlers run in its thread
        found = world.sandbox.user.list("webs.example.com")
        return {each["metadata"]["name"]: each["metadata"].get("finalizers", []) for each in found}


def finalizers(simulation: Simulation) -> dict[str, list[str]]:
    return {each["metadata"]["name"]: each["metadata"].get("finalizers", []) for each in simulation.objects(Web)}


def test_a_finalizer_is_on_before_anything_is_done_and_off_once_the_end_is_handled() -> None:
    handlers = Handlers()
    with handlers.simulation as simulation:
        simulation.call_through(*handlers.functions)
        run_with(simulation, web(finalizers=("example.com/other",)))
        both = ["example.com/other", FINALIZER]
        assert handlers.told == [("provision", both)]
        handlers.failing["archive"] = ValueError("the tape is full")
        simulation.delete(Web, "shop")
        simulation.advance(timedelta(minutes=1))
        assert handlers.told[1:] == [("archive", both)] * (len(handlers.told) - 1)
        assert len(handlers.told) > 3
        level = simulation.level("archive", "default", "shop")
        assert (level.status, level.desired, level.actual) == ("failed", IS_HANDLED, IS_OPEN)
        handlers.failing.clear()
        handlers.told.clear()
        simulation.advance(timedelta(minutes=20))
        assert handlers.told == [("archive", both)]
        assert finalizers(simulation) == {"shop": ["example.com/other"]}
        simulation.patch(Web, "shop", {"metadata": {"finalizers": None}})
        simulation.advance(timedelta(minutes=1))
        assert handlers.told[1:] == [("mourn", None)]
        assert not simulation.objects(Web)


def test_invariant_21_the_write_that_ends_an_object_ends_too() -> None:
    handlers = Handlers()
    with handlers.simulation as simulation:
        simulation.call_through(*handlers.functions)
        for name in ("shop", "mall"):
            simulation.apply(web(name))
        simulation.run()
        simulation.delete(Web, "shop")
        simulation.delete(Web, "mall")
        simulation.run()
        assert not simulation.objects(Web)
        assert {each.state for each in simulation.intents} == {"settled"}


def test_a_handler_that_is_tried_again_is_given_the_newest_state_of_the_object() -> None:
    op, seen, plainly = Operator("webs"), list[str](), list[str]()

    @op.on.delete(finalizer=True)
    def archive(web: Web) -> None:
        seen.append(web.spec.image)
        if web.spec.image != "released":
            raise Retry("not yet", delay=timedelta(hours=1))

    @op.on.delete(finalizer=True, of=Web)
    def archive_plainly(web: Mapping[str, Any]) -> None:
        plainly.append(web["spec"]["image"])
        if web["spec"]["image"] != "released":
            raise Retry("not yet", delay=timedelta(hours=1))

    with simulated(op, web(), through=[archive, archive_plainly]) as simulation:
        simulation.delete(Web, "shop")
        simulation.advance(timedelta(minutes=1))
        assert seen == plainly == ["a"]
        simulation.patch(Web, "shop", {"spec": {"image": "released"}})
        simulation.advance(timedelta(minutes=1))
        assert seen == plainly == ["a", "released"]
        assert not simulation.objects(Web)


def test_a_handler_that_waits_for_the_finalizer_says_so() -> None:
    handlers = Handlers()
    with handlers.simulation as simulation:
        simulation.call_through(*handlers.functions)
        simulation.refuse(403, target="webs.example.com/default/shop", times=1)
        run_with(simulation, web())
        assert not handlers.told
        level = simulation.level("provision", "default", "shop")
        assert (level.status, level.reason) == ("drifting", "waits for its finalizer to be put on")
        assert simulation.level("webs_finalizer", "default", "shop").status == "failed"
        simulation.advance(timedelta(minutes=20))
        assert handlers.told == [("provision", [FINALIZER])]


def test_another_write_to_the_object_does_not_refuse_the_finalizer() -> None:
    handlers = Handlers()
    with handlers.simulation as simulation:
        simulation.call_through(*handlers.functions)
        simulation.refuse(429, target="webs.example.com/default/shop", times=1)
        run_with(simulation, web())
        simulation.patch_status(Web, "shop", {"seen": True})
        simulation.advance(timedelta(minutes=1))
        assert [(each.state, each.attempts) for each in simulation.intents if each.verb == "patch"] == [("settled", 2)]
        assert finalizers(simulation) == {"shop": [FINALIZER]}


@pytest.mark.parametrize("error", [GiveUp("no such tape"), ValueError("the tape is full")])
def test_a_handler_that_gives_up_lets_the_object_go_and_is_not_called_again(error: Exception) -> None:
    handlers = Handlers(retries=2, backoff=timedelta(minutes=1))
    with handlers.simulation as simulation:
        simulation.call_through(*handlers.functions)
        run_with(simulation, web())
        handlers.failing["archive"] = error
        simulation.delete(Web, "shop")
        simulation.advance(timedelta(hours=1))
        attempts = 1 if isinstance(error, GiveUp) else 3
        assert handlers.told[1:] == [*[("archive", [FINALIZER])] * attempts, ("mourn", None)]
        assert not simulation.objects(Web)


def test_what_the_filters_leave_out_is_not_held() -> None:
    op = Operator("webs")
    told: list[str] = []

    @op.on.delete(finalizer=True, labels={"tape": "yes"}, when=lambda web: web.spec.image == "a")
    def archive(web: LabelledWeb) -> None:
        told.append(web.metadata.name)

    with simulated(op, web("kept", labels={"tape": "yes"}), web("free"), through=[archive]) as simulation:
        assert finalizers(simulation) == {"free": [], "kept": [FINALIZER]}
        run_with(simulation, web("kept", labels={"tape": "no"}))
        assert finalizers(simulation) == {"free": [], "kept": []}
        simulation.delete(Web, "kept")
        simulation.delete(Web, "free")
        simulation.run()
        assert told == [], "the last state of neither fits"


@pytest.mark.parametrize(("has_handler", "is_released"), [(True, False), (False, True), (True, True)])
def test_what_is_left_is_taken_off_a_class_that_no_handler_holds_up_any_more(
    *, has_handler: bool, is_released: bool
) -> None:
    op, told = Operator("webs"), list[str]()

    def provision(web: Web) -> None:
        told.append(web.metadata.name)

    if has_handler:
        op.on.create(provision)
    if is_released:
        op.remove_finalizer(Web)
    left = web(finalizers=(FINALIZER, "levelog/others"))
    with simulated(op, left, web("plain"), through=[provision] * has_handler) as simulation:
        simulation.delete(Web, "shop")
        simulation.run()
        assert finalizers(simulation) == {"plain": [], "shop": ["levelog/others"]}
        assert sorted(told) == ["plain", "shop"] * has_handler
        with pytest.raises(KeyError):
            simulation.level("webs_finalizer", "default", "plain")


STEPS = st.lists(st.sampled_from(["apply", "delete", "run", "minute", "fail", "mend", "strip"]), max_size=12)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_whatever_happens_each_end_is_handled_and_no_finalizer_is_left(steps: list[str]) -> None:
    op = Operator("webs")
    told: list[tuple[str, str]] = []
    failing: list[str] = []

    @op.on.create
    @op.on.delete(finalizer=True)
    async def provision(web: Web, reason: str) -> None:
        if failing:
            raise ValueError("away")
        told.append((reason, web.metadata.uid))

    with Simulation(op) as simulation:
        simulation.call_through(provision)

        def rest() -> None:
            failing.clear()
            simulation.advance(timedelta(hours=1))

        for step in steps:
            there = finalizers(simulation)
            if step == "apply":
                simulation.apply(web())
            elif step == "delete" and there:
                simulation.delete(Web, "shop")
            elif step == "strip" and there:
                simulation.patch(Web, "shop", {"metadata": {"finalizers": None}})
            elif step == "run":
                simulation.run()
            elif step == "minute":
                simulation.advance(timedelta(minutes=1))
            elif step == "fail":
                failing[:] = ["provision"]
            else:
                failing.clear()
        rest()
        assert finalizers(simulation) in ({}, {"shop": [FINALIZER]})
        living = [each["metadata"]["uid"] for each in simulation.objects(Web)]
        assert {uid for reason, uid in told if reason == "create"} >= set(living)
        if living:
            simulation.delete(Web, "shop")
            rest()
        assert not finalizers(simulation)
        made = {uid for reason, uid in told if reason == "create"}
        assert {uid for reason, uid in told if reason == "delete"} >= made
        assert len(told) == len(set(told))  # each once
