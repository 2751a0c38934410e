"""Daemons in a simulation: they wait in its time, for their objects and for indices, and end as they would live."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from levelog import GiveUp, LabelledResource, LevelogError, LiveIndex, Operator, Retry, Struct
from levelog.daemons import Daemon
from levelog.testing import Simulation
from rigs.kinds import Pod, web
from rigs.simulated import run_with, simulated
from rigs.typed import Web

MINUTE = timedelta(minutes=1)


class Progress(Struct):
    steps: int


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "a", "image": "a"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class LabelledShop(LabelledResource, group="example.com", version="v1", plural="shops"):
    pass


def test_invariant_21_a_run_that_ends_as_its_object_leaves_the_filters_leaves_no_level() -> None:
    op = Operator("shops")

    @op.daemon(LabelledShop, labels={"on": "yes"})
    async def follow(shop: LabelledShop, daemon: Daemon[LabelledShop, None]) -> None:
        await daemon.stopped()

    def shop(on: str) -> dict[str, Any]:
        metadata = {"name": "a", "namespace": "default", "labels": {"on": on}}
        return {"apiVersion": "example.com/v1", "kind": "LabelledShop", "metadata": metadata}

    with simulated(op, shop("yes"), through=[follow]) as simulation:
        assert simulation.level("follow", "default", "a").status == "settling"
        simulation.apply(shop("no"))
        simulation.advance(timedelta(minutes=5))
        assert [each.state for each in simulation.intents] == ["settled"]
        with pytest.raises(KeyError):
            simulation.level("follow", "default", "a")


def test_a_daemon_sleeps_in_the_time_of_the_simulation_and_keeps_its_state() -> None:
    op = Operator("webs")
    told: list[tuple[str, int]] = []

    @op.daemon
    async def follow(web: Web, daemon: Daemon[Web, Progress]) -> None:
        steps = daemon.state.steps if daemon.state else 0
        while steps < daemon.object.spec.replicas and await daemon.sleep(MINUTE):
            steps += 1
            await daemon.save(Progress(steps))
            told.append((web.metadata.name, steps))

    with simulated(op, web("shop", replicas=60), web("cart", replicas=2), through=[follow]) as simulation:
        assert simulation.level("follow", "default", "shop").status == "settling"
        assert told == []
        simulation.advance(timedelta(minutes=5))
        assert sorted(told) == [("cart", 1), ("cart", 2), *(("shop", n) for n in range(1, 6))]
        assert simulation.level("follow", "default", "cart").status == "in_sync"
        simulation.apply(web("shop", replicas=7))
        simulation.advance(timedelta(hours=1))
        assert told[-1] == ("shop", 7)
        assert simulation.level("follow", "default", "shop").status == "in_sync"
        assert simulation.calls["follow_runs"] == 2


def test_it_waits_for_its_object_and_for_an_index() -> None:
    op = Operator("webs")
    told: list[Any] = []

    @op.index
    def pods(pod: Pod) -> Iterator[tuple[str, str]]:
        yield pod.metadata.namespace, pod.metadata.name

    @op.daemon
    async def count(web: Web, daemon: Daemon[Web, None], pods: LiveIndex[str, str]) -> None:
        if not await daemon.until(lambda web: web.spec.replicas > 1):
            return
        told.append("ready")
        async for names in pods.changes(web.metadata.namespace):
            told.append(sorted(names))
            if len(names) == 2:
                break
        async for found in daemon.changes():
            told.append(found.spec.image)  # noqa: PERF401 - it is told at once
        told.append(daemon.reason)

    with simulated(op, web(), through=[count]) as simulation:
        simulation.advance(MINUTE)
        assert told == []
        run_with(simulation, web(replicas=2))
        assert told == ["ready", []]
        run_with(simulation, pod("one"))
        assert told == ["ready", [], ["one"]]
        run_with(simulation, pod("two"))
        assert told[3:] == [["one", "two"], "a"]
        run_with(simulation, web(replicas=2, image="b"), web(replicas=2, image="c"))
        assert told[5:] == ["c"]  # changes that come faster than they are taken are one
        simulation.delete(Web, "shop")
        simulation.run()
        assert told[6:] == ["unwanted"]


def test_what_does_not_end_by_itself_is_cancelled_after_its_grace() -> None:
    op = Operator("webs")
    told: list[str] = []

    @op.daemon(when=lambda web: web.spec.image != "none", grace=timedelta(seconds=30))
    async def stubborn(web: Web, daemon: Daemon[Web, Progress]) -> None:
        told.append(f"begins at {daemon.state.steps if daemon.state else 0}")
        try:
            await daemon.stopped()
            await daemon.save(Progress(7))
            told.append(f"has to end: {daemon.reason}")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    with simulated(op, web(), through=[stubborn]) as simulation:
        simulation.apply(web(image="none"))
        simulation.advance(timedelta(seconds=29))
        assert told == ["begins at 0", "has to end: unwanted"]
        simulation.advance(timedelta(seconds=2))
        assert told[2:] == ["cancelled"]
        simulation.apply(web(image="b"))  # it fits again
        simulation.run()
        assert told[3:] == ["begins at 7"]


def test_invariant_18_one_that_ignores_its_cancellation_does_not_run_again_before_it_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("levelog.calls.caller.CANCELLATION_TIME", timedelta(milliseconds=20))
    op, told, release = Operator("webs"), list[str](), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    @op.daemon(when=lambda web: web.spec.image != "none")
    async def deaf(web: Web, daemon: Daemon[Web, Progress]) -> None:
        told.append(f"begins with {web.spec.image}")
        loops.append(asyncio.get_running_loop())
        await daemon.stopped()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        told.append("returns")

    with simulated(op, web(), through=[deaf]) as simulation:
        simulation.apply(web(image="none"))
        simulation.advance(MINUTE)
        simulation.apply(web(image="b"))  # it fits again
        simulation.run()
        assert told == ["begins with a"]
        loops[0].call_soon_threadsafe(release.set)
        simulation.advance(MINUTE)
        assert told == ["begins with a", "returns", "begins with b"]


def test_one_that_ignores_its_cancellation_holds_up_none_of_another_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelog.calls.caller.CANCELLATION_TIME", timedelta(milliseconds=20))
    told = list[str]()

    def operator(image: str) -> Operator:
        op = Operator(image)

        @op.daemon(when=lambda web: web.spec.image == image)
        async def follow(web: Web, daemon: Daemon[Web, Progress]) -> None:
            told.append(image)
            await daemon.stopped()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

        return op

    one, other = operator("a"), operator("b")
    with Simulation(one, other) as simulation:
        simulation.call_through(*(each.origin for op in (one, other) for each in op.effects.values()))
        run_with(simulation, web(image="a"))
        for image in ("none", "b"):
            simulation.apply(web(image=image))
            simulation.advance(MINUTE)
        assert told == ["a", "b"]


def test_operators_have_daemons_of_one_name_for_one_object() -> None:
    told = list[str]()

    def operator(name: str) -> Operator:
        op = Operator(name)

        @op.daemon
        async def follow(web: Web, daemon: Daemon[Web, Progress]) -> None:
            told.append(f"{name} begins")
            await daemon.stopped()
            told.append(f"{name} ends")

        return op

    operators = operator("a"), operator("b")
    with Simulation(*operators) as simulation:
        simulation.call_through(*(each.origin for op in operators for each in op.effects.values()))
        run_with(simulation, web())
        assert sorted(told) == ["a begins", "b begins"]
        simulation.delete(Web, "shop")
        simulation.run()
        assert sorted(told[2:]) == ["a ends", "b ends"]


def test_a_failure_after_a_long_run_counts_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelog_actuator.effects.STEADY", timedelta(0))  # it is counted by the time of the machine
    op = Operator("webs")
    told: list[datetime] = []

    @op.daemon(retries=1)
    async def follow(web: Web, daemon: Daemon[Web, None]) -> None:
        told.append(simulation.now)
        raise Retry("busy", delay=MINUTE) if len(told) < 3 else GiveUp("never")

    with Simulation(op) as simulation:
        simulation.call_through(follow)
        simulation.apply(web())
        simulation.advance(timedelta(minutes=10))
        assert [each - told[0] for each in told] == [timedelta(0), MINUTE, 2 * MINUTE]
        assert simulation.level("follow", "default", "shop").status == "failed"


def test_a_daemon_that_waits_for_something_outside_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelog_testing.pacing.PATIENCE", timedelta(milliseconds=200))
    op = Operator("webs")

    @op.daemon
    async def follow(web: Web) -> None:
        await asyncio.sleep(3600)

    with Simulation(op) as simulation:
        simulation.call_through(follow)
        simulation.apply(web())
        with pytest.raises(LevelogError, match=r"daemon webs/follow of .*/shop waits for something"):
            simulation.run()
