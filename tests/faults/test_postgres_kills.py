"""PostgreSQL is killed at random, under load: no record is lost, no level is wrong, nothing is written twice.

Two processors and an actuator go on by themselves. A seed, which is printed, chooses the changes and the kills: at
which process's commit, after how many, and whether that one still reaches the server. Writes are counted as in
`test_ten_thousand_changes`. What the kernel has buffered survives: this is a crash of the server, not of its machine.
"""

import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy.engine import make_url

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.clusterclient import ClusterClient
from rigs.deployment import Deployment, Role
from rigs.meters import METERS_FILE
from rigs.nats import NatsServer
from rigs.postgres import PostgresServer
from rigs.script import Script, written
from rigs.tcpconnection import TcpConnection
from rigs.waiting import until

KILLS: Final = int(os.environ.get("LEVELOG_TEST_KILLS", "15"))
"""50 and more are for a night."""
MOST_KILLS: Final = max(KILLS, 50)
"""It goes on until a kill has lost a commit, as about one of eight does."""
METERS: Final = 30
MOST_COMMITS: Final = 16
"""Of one process, between a start of the server and the next kill."""
SETTINGS: Final = {"wal_writer_delay": "10s"}
"""What does not wait for the disk is written with what does, or after so long: more is lost than by default."""

Report = Callable[[str, object], None]


class Stack(NamedTuple):
    """What runs: `first` has one process of each role, `second` another processor."""

    api: Api
    server: PostgresServer
    first: Deployment
    second: Deployment

    async def loses(self, chance: random.Random, script: Script) -> bool:
        """Kill the server at one of the next commits, while users go on, and start it again.

        Whether it lost a commit that somebody had seen.
        """
        has_struck, seen = False, 0

        def strike(_: TcpConnection) -> None:
            nonlocal has_struck
            has_struck = True
            self.server.crash()

        places: list[tuple[Deployment, Role]]
        places = [(self.first, "process"), (self.second, "process"), (self.first, "actuate")]
        deployment, role = chance.choice(places)
        proxy = deployment.sql[role]
        trigger = proxy.on(
            b"COMMIT;\0",
            "client",
            strike,
            where=lambda connection: connection not in deployment.readers,
            is_passed=chance.random() < 0.5,
            nth=chance.randint(1, MOST_COMMITS),
        )

        async def is_struck() -> bool:
            self.first.check()
            self.second.check()
            await script.go_on()
            nonlocal seen
            try:
                seen = await commits(self.first.database_url)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                if not has_struck:
                    raise
            return has_struck

        await until(is_struck, f"a commit of {role}", seconds=120, pause=0.05)
        proxy.remove(trigger)
        await self.server.start()
        return await commits(self.first.database_url) < seen


def plain(url: str) -> str:
    """The URL of a database, as asyncpg takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def commits(url: str) -> int:
    """How many commits the partitions have seen."""
    connection = await asyncpg.connect(plain(url), timeout=10)
    try:
        return int(await connection.fetchval("SELECT sum(commits) FROM checkpoints"))
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def stack(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[Stack]:
    async with AsyncExitStack() as opened:
        sandbox = await opened.enter_async_context(Sandbox())
        server = await opened.enter_async_context(PostgresServer(is_durable=True, settings=SETTINGS))
        url = server.url_of(await server.create_database())
        api = Api(sandbox.url)
        await api.create_crd("Meter")
        found: list[Deployment] = []
        for name in ("first", "second"):
            folder = tmp_path / name
            folder.mkdir()
            deployment = Deployment(folder, api, nats_server, url, operator_file=METERS_FILE)
            found.append(await opened.enter_async_context(deployment))
        await found[0].migrate()
        found[0].start()
        found[1].start("process")

        async def is_started() -> bool:  # a process that finds no server when it starts ends, and says so
            return all('"message":"owns ' in each.running["process"].log.read_text() for each in found)

        await until(is_started, "two processors that share the partitions", seconds=60)
        yield Stack(api, server, *found)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_kills_of_postgresql_lose_no_record_and_write_nothing_twice(
    stack: Stack, record_testsuite_property: Report
) -> None:
    seed = int(os.environ.get("LEVELOG_TEST_SEED", "0")) or random.SystemRandom().randrange(10**6)
    print(f"LEVELOG_TEST_SEED={seed}")
    chance = random.Random(seed)
    first, second = stack.first, stack.second
    async with ClusterClient(stack.api.url) as client:
        script = Script(client, chance, METERS)
        await script.begin()
        lossy: list[bool] = []
        while len(lossy) < KILLS or (not any(lossy) and len(lossy) < MOST_KILLS):
            lossy.append(await stack.loses(chance, script))
        await until(script.is_shown, "the last writes", seconds=240, pause=0.2)
        await until(first.is_quiet, "levels in sync and receipts folded", seconds=240, pause=0.2)

        assert written([first], script.own) == script.calls
        for name, (appended, wanted) in (await script.entries()).items():
            assert appended == wanted, name
    await first.stop()
    await first.use_database(stack.server.url_of(await stack.server.create_database()))
    first.start("process")
    differences: list[str] = []

    async def is_same() -> bool:  # `second` goes on: what a processor has folded when it ends may not be written
        differences[:] = compared(await tables(second.database_url), await tables(first.database_url))
        return not differences

    try:
        await until(is_same, "the same objects, entries and levels in an empty database", seconds=180, pause=0.2)
    finally:
        print("\n".join(differences))
    assert any(lossy), "each commit had reached the disk: it was not tested what happens to those that had not"
    counts = {
        "kills": len(lossy),
        "kills that lost commits": sum(lossy),
        "changes": script.changes,
        "effective writes": script.calls.total(),
    }
    for what, number in counts.items():
        record_testsuite_property(what, number)
        print(f"{what}: {number}")


async def tables(url: str) -> dict[str, list[Any]]:
    """What is folded from the log, and decided."""
    columns = {
        "objects": "object, uid, version, body",
        "index_entries": '"index", key, object, ordinal, value',
        "levels": "view, parent, parent_uid, status, desired, actual",
    }
    connection = await asyncpg.connect(plain(url), timeout=10)
    try:
        return {
            name: sorted(await connection.fetch(f"SELECT {listed} FROM {name}"), key=str)
            for name, listed in columns.items()
        }
    finally:
        await connection.close()


def compared(kept: dict[str, list[Any]], found: dict[str, list[Any]]) -> list[str]:
    """A line for each row that only one of two databases has."""
    lines: list[str] = []
    for name, rows in kept.items():
        before, after = Counter(map(str, rows)), Counter(map(str, found[name]))
        lines += [f"only before: {name} {row}" for row in before - after]
        lines += [f"only in the empty database: {name} {row}" for row in after - before]
    return lines
