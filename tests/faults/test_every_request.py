"""Each request of the actuator fails once in each way: nothing is lost, and nothing is done twice.

A story is told once without faults, which numbers the requests; then once for each request and fault, each for a Meter
of its own, all in one run. Effective writes are counted at the proxy, by the versions that the API server answered.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from levelog_migrations import upgrade
from rigs.apirequests import ApiRequest, Point, at
from rigs.controlplane import ControlPlane
from rigs.faults import (
    Action,
    FailAfter,
    FailBefore,
    ForwardTwice,
    Hold,
    Refuse,
    Rule,
)
from rigs.meters import METERS, VERBS
from rigs.meterstack import Effects, MeterStack, of_meter
from rigs.nats import NatsServer

Faults = dict[str, tuple[Action, ...]]

IS_FULL: Final = float(os.environ.get("LEVELOG_TEST_EXAMPLES", "1")) > 1
REQUESTS: Final[Faults] = {
    "fails before": (FailBefore(), Refuse(code=503)),
    "fails after": (FailAfter(),),
    "times out": (Hold(stage="request"), Hold(stage="answer")),
    "answered twice": (ForwardTwice(),),
}
MORE_REQUESTS: Final[Faults] = {
    "fails before": (FailBefore(how="reset"), Refuse(code=500), Refuse(code=504), Refuse(code=429, retry_after=1)),
    "fails after": (FailAfter(how="reset"),),
}
FEWEST_WRITES: Final = {"status": 2, "merge": 2, "append": 2, "apply": 5, "create": 3}
"""Requests that a Meter of each kind takes at least: two writes, or two, their looks, and a deletion."""

Report = Callable[[str, object], None]


def faults(*tables: Faults) -> list[Action]:
    return [action for table in tables for actions in table.values() for action in actions]


def expected(name: str, verb: str) -> Effects:
    if verb in {"apply", "create"}:
        made = "patch" if verb == "apply" else "create"
        return Counter([(made, f"{name}-1"), (made, f"{name}-2"), ("delete", f"{name}-1")])
    return Counter({("patch", name): 2})


@pytest.fixture
async def namespace(control_plane: ControlPlane) -> str:
    return await prepared(control_plane)


async def prepared(control_plane: ControlPlane) -> str:
    """A namespace on a server that has Meters."""
    admin = control_plane.admin
    if not await admin.is_ok("/apis/example.com/v1/meters"):
        await admin.create_crd(group="example.com", plural=METERS.partition(".")[0], kind="Meter")
    return await admin.create_namespace()


async def tell(stack: MeterStack, meters: dict[str, str]) -> None:
    """The story: Meters are made, and then want something else."""
    await asyncio.gather(*(stack.create(name, verb) for name, verb in meters.items()))
    await stack.converges()
    await asyncio.gather(*(stack.change(name, 2) for name in meters))
    await stack.converges()


async def check(stack: MeterStack, meters: dict[str, str]) -> None:
    effects, now = stack.effects(), await stack.meters()
    for name, verb in meters.items():
        done = Counter(
            {key: count for key, count in effects.items() if key[1] == name or key[1].startswith(f"{name}-")}
        )
        assert done == expected(name, verb), f"{name} by {verb}"
        if verb == "append":
            assert now[name]["spec"]["entries"] == [1, 2], name


@pytest.mark.timeout(900)
async def test_invariant_7_each_request_of_the_actuator_may_fail_in_each_way(
    control_plane: ControlPlane,
    namespace: str,
    nats_server: NatsServer,
    tmp_path: Path,
    record_testsuite_property: Report,
) -> None:
    url = f"sqlite:///{tmp_path}/levelog.db"
    await upgrade(url)
    async with MeterStack(control_plane.admin, nats_server.url, url, tmp_path, namespace) as stack:
        undisturbed = {f"m-{verb}": verb for verb in VERBS}
        await tell(stack, undisturbed)
        await check(stack, undisturbed)
        points = {verb: stack.actuate.log.points(of_meter(f"m-{verb}")) for verb in VERBS}
        for verb, least in FEWEST_WRITES.items():
            assert len(points[verb]) >= least, f"{verb}: {points[verb]}"
        actions = faults(REQUESTS, MORE_REQUESTS) if IS_FULL else faults(REQUESTS)
        disturbed: dict[str, str] = {}
        rules: dict[str, Rule] = {}
        for verb, found in points.items():
            for point in found:
                for action in actions:
                    name = f"n{len(disturbed)}"
                    disturbed[name] = verb
                    rules[f"{verb}: {point}: {action}"] = stack.actuate.add(action, alike(point, f"m-{verb}", name))
        await tell(stack, disturbed)
        assert [what for what, rule in rules.items() if not rule.applied] == []
        await check(stack, disturbed)
    told(record_testsuite_property, "actuator", [p for found in points.values() for p in found], len(rules))


def alike(point: Point, model: str, name: str) -> Callable[[ApiRequest], bool]:
    """Whether a request is at the same point of another Meter's story."""
    return at(point._replace(name=name + point.name.removeprefix(model)))


def told(report: Report, who: str, points: Sequence[Point], runs: int) -> None:
    report(f"points {who}", len(points))
    report(f"faults {who}", runs)
    print(f"{who}: {len(points)} points, {runs} faults: {', '.join(map(str, points))}")
