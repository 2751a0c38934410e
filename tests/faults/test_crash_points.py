"""Each process is killed at each of its seams, and started again: the same levels, and each write once.

Writes are counted at the sandbox. On a real API server actuators are killed by test_ten_thousand_changes.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.crashpoints import SEAMS, SEAMS_TOGETHER, CrashPoint, Moment, Seam, SideEffect
from rigs.deployment import ROLES, TOGETHER, Deployment
from rigs.kinds import web
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.waiting import until

FEWEST: Final = {SideEffect.PUBLISH: 2, SideEffect.COMMIT: 2, SideEffect.WRITE: 4}
"""Points that one change passes at least, however much of it is one batch."""

_numbers: Final = itertools.count(1)

Report = Callable[[str, object], None]


Written = Counter[tuple[str, str]]
"""Effective writes of levelog's to pods, by verb and name."""


class Shop:
    """The Web `shop` of examples/webs, each of whose two pods is deleted and created when its image changes."""

    names: Final = ("shop-0", "shop-1")

    def __init__(self, sandbox: Sandbox) -> None:
        self.wanted = dict.fromkeys(self.names, "image-0")
        """Images of its pods."""
        self._sandbox = sandbox
        self._before = Written()

    @property
    def one_of_each(self) -> Written:
        """What one change of the image calls for."""
        return Written((verb, name) for verb in ("delete", "apply") for name in self.names)

    async def open(self) -> None:
        """Create it."""
        await define_webs(self._sandbox)
        self._sandbox.user.create(web("shop", image="image-0", replicas=len(self.names)))

    def change(self, image: str) -> None:
        """Ask for an image; what is written from now on counts for it."""
        self._before = self._written()
        self.wanted = dict.fromkeys(self.names, image)
        self._sandbox.user.patch("webs.example.com", "shop", {"spec": {"image": image}})

    def is_as_wanted(self) -> bool:
        """Whether there are these pods and no others, with this image."""
        pods = self._sandbox.user.list("pods")
        return self.wanted == {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods}

    def written(self) -> Written:
        """Since the last change."""
        return self._written() - self._before

    def _written(self) -> Written:
        writes = self._sandbox.requests.writes(resource="pods", user_agent="levelog")
        return Written((write.verb, write.name) for write in writes)


class Running:
    """A shop and the processes that keep it."""

    def __init__(self, shop: Shop, deployment: Deployment) -> None:
        self.shop = shop
        self.deployment = deployment

    async def has_converged(self) -> bool:
        """Whether the pods are as the Web wants them, the tables say so, and nothing is left to be done."""
        if not self.shop.is_as_wanted() or not await self.deployment.is_quiet():
            return False
        levels = await self.deployment.levels()
        return [json.loads(level.actual or "null") for level in levels] == [self.shop.wanted]

    async def converges(self) -> None:
        """Wait for that."""

        async def has_converged() -> bool:
            self.deployment.check()
            return await self.has_converged()

        await until(has_converged, f"{self.shop.wanted}, and levels in sync", pause=0.1)


@asynccontextmanager
async def running(shop: Shop, deployment: Deployment) -> AsyncGenerator[Running]:
    async with deployment:
        await asyncio.gather(shop.open(), deployment.migrate())
        deployment.start()
        setup = Running(shop, deployment)
        await setup.converges()
        assert shop.written() == Written(("apply", name) for name in shop.names)
        yield setup


@pytest_asyncio.fixture
async def sandboxed(
    request: pytest.FixtureRequest, tmp_path: Path, nats_server: NatsServer, postgres_url: str
) -> AsyncIterator[Running]:
    """By a process for each role unless a test asks for `TOGETHER`.

    One process claims intents as it decides them, and takes two commits for a change.
    """
    async with Sandbox() as sandbox:
        api = Api(sandbox.url)
        deployment = Deployment(tmp_path, api, nats_server, postgres_url, roles=getattr(request, "param", ROLES))
        async with running(Shop(sandbox), deployment) as setup:
            yield setup


TIMEOUT: Final = pytest.mark.timeout(900)  # a second or so for each point, more on a machine that is busy


@TIMEOUT
@pytest.mark.parametrize(
    ("sandboxed", "seams"),
    [
        pytest.param(ROLES, SEAMS, id="apart"),
        pytest.param(TOGETHER, SEAMS_TOGETHER, marks=pytest.mark.long, id="together"),
    ],
    indirect=["sandboxed"],
)
async def test_a_process_killed_at_a_seam_goes_on_and_writes_nothing_twice(
    sandboxed: Running, seams: Sequence[Seam], subtests: pytest.Subtests
) -> None:
    for seam in seams:
        with subtests.test(seam=str(seam)):
            assert await is_killed_at(sandboxed, seam, 1)


@pytest.mark.long
@TIMEOUT
@pytest.mark.parametrize(
    ("sandboxed", "seam"),
    [*((ROLES, seam) for seam in SEAMS), *((TOGETHER, seam) for seam in SEAMS_TOGETHER)],
    indirect=["sandboxed"],
    ids=map(str, (*SEAMS, *SEAMS_TOGETHER)),
)
async def test_a_process_killed_at_each_point_of_a_seam_goes_on_and_writes_nothing_twice(
    sandboxed: Running, seam: Seam, record_testsuite_property: Report
) -> None:
    await is_killed_at_each(sandboxed, seam, record_testsuite_property)


async def is_killed_at_each(setup: Running, seam: Seam, report: Report) -> None:
    """Go on until a change passes the seam fewer times than it would take to be killed there."""
    points = 0
    for nth in itertools.count(1):
        if not await is_killed_at(setup, seam, nth):
            break
        points += 1
    report(f"points {seam}", points)
    print(f"{points} points {seam}")
    assert points >= FEWEST[seam.side_effect], f"only {points} points {seam}"


async def is_killed_at(setup: Running, seam: Seam, nth: int) -> bool:
    """Change something, kill the process the nth time that it passes the seam, start it again; whether it got there."""
    deployment = setup.deployment
    point = CrashPoint(deployment, seam, nth)
    setup.shop.change(f"image-{next(_numbers)}")

    async def is_decided() -> bool:
        return point.has_struck or await setup.has_converged()

    await until(is_decided, f"the end of {seam.role}, or convergence", pause=0.1)
    point.disarm()
    if point.has_struck:
        await deployment.end_leases()
        deployment.start(seam.role)
        await setup.converges()
    assert setup.shop.written() == setup.shop.one_of_each, f"{seam} number {nth}"
    return point.has_struck


async def test_all_processes_killed_at_once_go_on(sandboxed: Running) -> None:
    shop, deployment = sandboxed.shop, sandboxed.deployment
    point = CrashPoint(deployment, Seam("actuate", Moment.AFTER, SideEffect.WRITE), 1)
    shop.change("image-1")
    await until(lambda: point.has_struck, "the end of the actuator")
    for role in ROLES:
        deployment.kill(role)
    await deployment.end_leases()
    deployment.start()
    await sandboxed.converges()
    assert shop.written() == shop.one_of_each
