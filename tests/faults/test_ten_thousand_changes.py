"""Actuators and ingesters are killed at random: each object is written as often as what users changed calls for.

Two of each run; a seed, which is printed, chooses changes and kills. What was written is told by the answers of the API
server at the proxies, which are compared with its audit log, and by what the objects hold: one kind of write shows when
it is made twice. A write that was answered with an error of the server, or not at all, may have been made or not.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from rigs.clusterclient import ClusterClient
from rigs.controlplane import ControlPlane
from rigs.crashpoints import SEAMS, CrashPoint, Moment, Seam, SideEffect
from rigs.deployment import Deployment
from rigs.meters import METERS_FILE
from rigs.nats import NatsServer
from rigs.run.examples import short_or_whole
from rigs.script import Script, doubtful, story, versions, written
from rigs.waiting import until

CHANGES: Final = int(os.environ.get("LEVELOG_TEST_CHANGES", "500"))
"""10,000, which take some minutes, are for a night."""
FEW_CHANGES: Final = 50
FEWEST_KILLS: Final = 2
"""Between answer and receipt, for up to a thousand changes."""
ANSWERED: Final = Seam("actuate", Moment.AFTER, SideEffect.WRITE)
OTHERS: Final = [seam for seam in SEAMS if seam.role == "actuate" and seam != ANSWERED]

Report = Callable[[str, object], None]


class Killer:
    """Kills the actuator and the ingester of a deployment, again and again, and starts them again."""

    def __init__(self, deployment: Deployment, chance: random.Random, most: int) -> None:
        """`most`: seams of a kind that it passes over before it kills."""
        self.kills: Counter[str] = Counter()
        self._chance = chance
        self._deployment = deployment
        self._most = most
        self._killing = asyncio.create_task(self._kill_actuators())

    async def ingester(self, *, waits: bool) -> None:
        """Kill the ingester at this moment; another one stands by, and waits for the lease to end or not."""
        self._deployment.kill("ingest")
        self.kills["ingest"] += 1
        if not waits:
            await self._deployment.end_lease_of_ingest()
        self._deployment.start("ingest")

    async def end(self) -> None:
        """Kill no more; raises what went wrong."""
        self._killing.cancel()
        await asyncio.gather(self._killing, return_exceptions=True)
        if not self._killing.cancelled():
            self._killing.result()
        if not self._deployment.running["actuate"].is_running:
            await self._revive()

    async def _kill_actuators(self) -> None:
        while True:
            seam = ANSWERED if self._chance.random() < 0.7 else self._chance.choice(OTHERS)
            point = CrashPoint(self._deployment, seam, self._chance.randint(1, self._most))

            async def has_struck(point: CrashPoint = point) -> bool:
                return point.has_struck

            try:
                await until(has_struck, f"a strike {seam}", seconds=600, pause=0.05)
            finally:
                point.disarm()
            self.kills[str(seam)] += 1
            await self._revive()

    async def _revive(self) -> None:
        """Another actuator, which need not wait for the claims to end: nothing of the dead one is under way."""
        await self._deployment.api["actuate"].until_idle()
        await self._deployment.end_claims_of("actuate")
        self._deployment.start("actuate")


@pytest_asyncio.fixture
async def deployments(
    tmp_path: Path, private_control_plane: ControlPlane, nats_server: NatsServer, postgres_url: str
) -> AsyncIterator[list[Deployment]]:
    """Two ingesters, two actuators, one processor."""
    api = private_control_plane.admin
    await api.create_crd("Meter")
    async with AsyncExitStack() as stack:
        found: list[Deployment] = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            deployment = Deployment(folder, api, nats_server, postgres_url, operator_file=METERS_FILE)
            found.append(await stack.enter_async_context(deployment))
        await found[0].migrate()
        found[0].start()
        found[1].start("ingest", "actuate")
        yield found


@pytest.mark.timeout(1800)
async def test_invariant_7_what_users_change_is_answered_by_just_the_writes_that_it_calls_for(
    private_control_plane: ControlPlane, deployments: list[Deployment], record_testsuite_property: Report
) -> None:
    changes = short_or_whole(FEW_CHANGES, CHANGES)
    fewest = max(FEWEST_KILLS, changes // 500)
    seed = int(os.environ.get("LEVELOG_TEST_SEED", "0")) or random.SystemRandom().randrange(10**6)
    print(f"LEVELOG_TEST_SEED={seed}")
    chance = random.Random(seed)
    admin = private_control_plane.admin
    async with ClusterClient(admin.url, ca_file=admin.ca_file, token=admin.token) as client:
        script = Script(client, chance, min(changes // 4, 200))
        await script.begin()
        await until(script.is_shown, "the first writes", seconds=240, pause=0.2)
        killers = [
            Killer(deployment, random.Random(chance.random()), changes // fewest // 2) for deployment in deployments
        ]
        next_ingester = 0
        while script.changes < changes or sum(killer.kills[str(ANSWERED)] for killer in killers) < fewest:
            await until(script.go_on, "a Meter that shows what it wants", seconds=120, pause=0.1)
            if script.changes >= next_ingester:
                await chance.choice(killers).ingester(waits=changes > FEW_CHANGES)
                next_ingester = script.changes + chance.randint(1, changes // 5)
        for killer in killers:
            await killer.end()
        await until(script.is_shown, "the last writes", seconds=240, pause=0.2)
        await until(deployments[0].is_quiet, "levels in sync and receipts folded", seconds=240, pause=0.2)

        found, unsure = written(deployments, script.own), doubtful(deployments)
        surplus, missing = found - script.calls, script.calls - found
        assert not surplus, story(deployments, {name for _, name in surplus})
        assert missing <= unsure, story(deployments, {name for _, name in missing - unsure})
        for name, (appended, wanted) in (await script.entries()).items():
            assert appended == wanted, name
    audited = await private_control_plane.audit.writes()
    by_levelog = Counter(
        (w.verb, w.name) for w in audited if w.user_agent.startswith("levelog") and w.name in script.names
    )
    seen = Counter((verb, name) for verb, name, _ in versions(deployments))
    # The server goes on with a write that it has answered with 504, and logs it as made.
    assert seen <= by_levelog <= seen + unsure, "the proxies saw what the audit log tells"
    kills = sum((killer.kills for killer in killers), Counter[str]())
    counts = {"changes": script.changes, "effective writes": found.total(), "errors of the server": unsure.total()}
    for what, number in (*counts.items(), *kills.items()):
        record_testsuite_property(what, number)
        print(f"{what}: {number}")
