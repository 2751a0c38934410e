"""Each process is killed at each of its seams, and started again: the same levels, and each write once.

Writes are counted at the API: in the sandbox's request log, and in the audit log of kube-apiserver.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.crashpoints import SEAMS, SEAMS_TOGETHER, CrashPoint, Moment, Seam, SideEffect
from rigs.deployment import ROLES, TOGETHER, Deployment
from rigs.nats import NatsServer
from rigs.shop import Shop, Written, count_in_audit_log, count_in_sandbox
from rigs.waiting import until

FEWEST: Final = {SideEffect.PUBLISH: 2, SideEffect.COMMIT: 2, SideEffect.WRITE: 4}
"""Points that one change passes at least, however much of it is one batch."""

_numbers: Final = itertools.count(1)

Report = Callable[[str, object], None]


class Running:
    """A shop and the processes that keep it."""

    def __init__(self, shop: Shop, deployment: Deployment) -> None:
        self.shop = shop
        self.deployment = deployment

    async def has_converged(self) -> bool:
        """Whether the pods are as the Web wants them, the tables say so, and nothing is left to be done."""
        if not await self.shop.is_as_wanted() or not await self.deployment.is_quiet():
            return False
        levels = await self.deployment.levels()
        return [json.loads(level.actual or "null") for level in levels] == [self.shop.wanted]

    async def converges(self) -> None:
        """Wait for that."""

        async def has_converged() -> bool:
            self.deployment.check()
            return await self.has_converged()

        await until(has_converged, f"{self.shop.wanted}, and levels in sync", seconds=60, pause=0.1)


@asynccontextmanager
async def running(shop: Shop, deployment: Deployment) -> AsyncGenerator[Running]:
    async with deployment:
        await asyncio.gather(shop.open(), deployment.migrate())
        deployment.start()
        setup = Running(shop, deployment)
        await setup.converges()
        assert await shop.written() == Written(("apply", name) for name in shop.names)
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
        async with running(Shop(api, count_in_sandbox(sandbox)), deployment) as setup:
            yield setup


@pytest_asyncio.fixture
async def real(
    tmp_path: Path, private_control_plane: ControlPlane, nats_server: NatsServer, postgres_url: str
) -> AsyncIterator[Running]:
    api = private_control_plane.admin
    deployment = Deployment(tmp_path, api, nats_server, postgres_url)
    async with running(Shop(api, count_in_audit_log(private_control_plane)), deployment) as setup:
        yield setup


TIMEOUT: Final = pytest.mark.timeout(900)  # a second or so for each point, more on a machine that is busy
WRITE_SEAMS: Final = [seam for seam in SEAMS if seam.side_effect is SideEffect.WRITE]


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


@pytest.mark.long
@TIMEOUT
@pytest.mark.parametrize("seam", WRITE_SEAMS, ids=str)
async def test_an_actuator_killed_at_each_write_to_a_real_api_server_writes_nothing_twice(
    real: Running, seam: Seam, record_testsuite_property: Report
) -> None:
    await is_killed_at_each(real, seam, record_testsuite_property)
    await check_versions(real)


async def check_versions(real: Running) -> None:
    writes = real.deployment.api["actuate"].log.effective_writes()
    by_version = Written(("apply" if write.verb == "patch" else write.verb, write.name) for write in writes)
    assert by_version == real.shop.counted + await real.shop.written(), "answers have versions of other writes too"


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
    await setup.shop.change(f"image-{next(_numbers)}")

    async def is_decided() -> bool:
        return point.has_struck or await setup.has_converged()

    await until(is_decided, f"the end of {seam.role}, or convergence", seconds=60, pause=0.1)
    point.disarm()
    if point.has_struck:
        await deployment.end_leases()
        deployment.start(seam.role)
        await setup.converges()
    assert await setup.shop.written() == setup.shop.one_of_each, f"{seam} number {nth}"
    return point.has_struck


async def test_all_processes_killed_at_once_go_on(sandboxed: Running) -> None:
    shop, deployment = sandboxed.shop, sandboxed.deployment
    point = CrashPoint(deployment, Seam("actuate", Moment.AFTER, SideEffect.WRITE), 1)
    await shop.change("image-1")
    await until(lambda: point.has_struck, "the end of the actuator")
    for role in ROLES:
        deployment.kill(role)
    await deployment.end_leases()
    deployment.start()
    await sandboxed.converges()
    assert await shop.written() == shop.one_of_each
