"""Each request of the actuator about an object fails once in each way: nothing is lost, and nothing is done twice.

A story is told once without faults, which numbers the requests; then once for each request and fault, each for a Meter
of its own, all in one run. Effective writes are counted at the proxy, by the versions that the API server answered.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import pytest_asyncio

from rigs.apirequests import ApiRequest, Point, at
from rigs.controlplane import ControlPlane
from rigs.faultproxy import FaultProxy
from rigs.faults import Action, FailAfter, FailBefore, ForwardTwice, Hold, Refuse, Rule
from rigs.meters import VERBS
from rigs.meterstack import MeterStack, of_meter
from rigs.migrated import migrate
from rigs.nats import NatsServer
from rigs.run.examples import short_or_whole

IS_FULL: Final = float(os.environ.get("LEVELOG_TEST_EXAMPLES", "1")) > 1
FEW: Final = ("status", "append")
"""Verbs of the short form: one of which a repetition shows nowhere but in the count, and one of which it shows."""
LOST: Final = (FailBefore(), Refuse(code=503), FailAfter())
WRITES: Final = (*LOST, Hold(stage="request"), Hold(stage="answer"), ForwardTwice())
MORE_WRITES: Final = (
    FailBefore(how="reset"),
    FailAfter(how="reset"),
    Refuse(code=500),
    Refuse(code=504),
    Refuse(code=429, retry_after=1),
)
READS: Final = (*LOST, Hold(stage="answer"), ForwardTwice())
BEGINNINGS: Final[dict[str, Action | None]] = {"m": None, "doubt": FailAfter(), "conflict": Refuse(code=409)}
"""What the first write of a Meter meets: the actuator then reads the target, which may fail too."""

Report = Callable[[str, object], None]


@pytest_asyncio.fixture
async def control_plane_with_meters(control_plane: ControlPlane) -> ControlPlane:
    admin = control_plane.admin
    if not await admin.is_ok("/apis/example.com/v1/meters"):
        await admin.create_crd("Meter")
    return control_plane


@pytest.fixture
async def tables(tmp_path: Path) -> Path:
    """An empty database to copy."""
    path = tmp_path / "tables.db"
    await migrate(f"sqlite:///{path}")
    return path


class Place(NamedTuple):
    """A request in the story of a Meter that begins and is written in one of the ways."""

    beginning: str
    verb: str
    point: Point

    @property
    def model(self) -> str:
        return f"{self.beginning}-{self.verb}"

    def of(self, name: str) -> Callable[[ApiRequest], bool]:
        """Whether a request is at the same place of another Meter's story."""
        return at(self.point._replace(name=name + self.point.name.removeprefix(self.model)))


async def tell(stack: MeterStack, meters: dict[str, str]) -> None:
    """The story: Meters are made, and then want something else."""
    await asyncio.gather(*(stack.create(name, verb) for name, verb in meters.items()))
    await stack.converges()
    await asyncio.gather(*(stack.change(name, 2) for name in meters))
    await stack.converges()


async def check(stack: MeterStack, meters: dict[str, str]) -> None:
    effects, now = stack.effects(), await stack.meters()
    for name, verb in meters.items():
        done = {key: count for key, count in effects.items() if of_object(name, key[1])}
        if verb in {"apply", "create"}:
            made = "patch" if verb == "apply" else "create"
            assert done == {(made, f"{name}-1"): 1, (made, f"{name}-2"): 1, ("delete", f"{name}-1"): 1}, name
        else:
            assert done == {("patch", name): 2}, f"{name} by {verb}"
        if verb == "append":
            assert now[name]["spec"]["entries"] == [1, 2], name


def of_object(name: str, other: str) -> bool:
    return other == name or other.startswith(f"{name}-")


def first_write(name: str) -> Callable[[ApiRequest], bool]:
    return lambda request: request.is_write and of_object(name, request.name)


@pytest.mark.timeout(900)
async def test_invariant_7_each_request_about_an_object_may_fail_in_each_way(
    control_plane_with_meters: ControlPlane,
    nats_server: NatsServer,
    tables: Path,
    tmp_path: Path,
    record_testsuite_property: Report,
) -> None:
    verbs = short_or_whole(FEW, VERBS)
    admin = control_plane_with_meters.admin
    namespace, url = await admin.create_namespace(), f"sqlite:///{tables}"
    async with MeterStack(admin, nats_server.url, url, tmp_path, namespace) as stack:
        undisturbed = {f"{beginning}-{verb}": verb for beginning in BEGINNINGS for verb in verbs}
        for name in undisturbed:
            begin(stack.actuate, name, BEGINNINGS[name.partition("-")[0]])
        await tell(stack, undisturbed)
        await check(stack, undisturbed)
        places = [
            Place(name.partition("-")[0], verb, point)
            for name, verb in undisturbed.items()
            for point in asked_by(stack.actuate, name)
        ]
        assert {place.verb for place in places if place.point.verb == "get"} == set(verbs)
        actions = (*WRITES, *MORE_WRITES) if IS_FULL else WRITES
        disturbed: dict[str, str] = {}
        rules: dict[str, Rule] = {}
        for place in places:
            for action in actions if place.point.verb != "get" else READS:
                name = f"n{len(disturbed)}"
                disturbed[name] = place.verb
                rules[f"{place.model}: {place.point}: {action}"] = stack.actuate.add(action, place.of(name))
                begin(stack.actuate, name, BEGINNINGS[place.beginning])
        await tell(stack, disturbed)
        for what, rule in rules.items():  # what its client has given up waiting for is seen through
            await rule.until_applied(where=what)
        await check(stack, disturbed)
    record_testsuite_property("points actuator", len(places))
    record_testsuite_property("faults actuator", len(rules))
    print(f"{len(places)} points, {len(rules)} faults: {', '.join(str(place.point) for place in places)}")


def asked_by(proxy: FaultProxy, name: str) -> list[Point]:
    """Where the story of a Meter can fail; if its first write did already, what is asked next."""
    asked = [exchange for exchange in proxy.log if of_meter(name)(exchange.request)]
    begun = next((number for number, exchange in enumerate(asked) if exchange.action is not None), None)
    return [exchange.request.point for exchange in (asked if begun is None else asked[begun + 1 : begun + 3])]


def begin(proxy: FaultProxy, name: str, action: Action | None) -> None:
    if action is not None:
        proxy.add(action, first_write(name))
