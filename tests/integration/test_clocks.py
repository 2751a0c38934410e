"""The clock of the database is another than the machine's: decisions go by it, and so does what came of them."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from levelog import Intent, Level, Operator, Retry
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from rigs.kinds import manifest
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.postgres import SHIFTED
from rigs.together import together
from rigs.typed import Web
from rigs.waiting import until


@asynccontextmanager
async def shifted(postgres_url: str, hours: int) -> AsyncGenerator[str]:
    """The URL of a database whose clock is so many hours ahead."""
    await set_clock(postgres_url, hours)
    yield f"{postgres_url}?search_path=public,pg_catalog"


async def set_clock(postgres_url: str, hours: int) -> None:
    """Set the clock of a database so many hours ahead."""
    async with await Database.open(postgres_url) as database, database.transaction() as connection:
        await connection.execute(text(SHIFTED.format(hours=hours)))


async def make_shop(sandbox: Sandbox) -> None:
    """Install the definition of Webs, and make one."""
    await define_webs(sandbox)
    sandbox.user.create(manifest("Web", "shop", image="a"))


@pytest.mark.parametrize(("hours", "sharp"), [(2, False), (-2, True)])
async def test_invariant_16_a_timer_is_called_when_it_is_due_whatever_the_clock_of_the_actuator_says(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path, hours: int, sharp: bool
) -> None:
    op, hourly, often = Operator("webs"), list[str](), list[str]()

    @op.timer(every=timedelta(hours=1), sharp=sharp)
    async def check(web: Web) -> None:
        hourly.append(web.metadata.name)

    @op.timer(every=timedelta(seconds=1), sharp=sharp)
    async def look(web: Web) -> None:
        often.append(web.metadata.name)

    async with (
        Sandbox(clock=lambda: datetime.now(UTC) - timedelta(hours=3)) as sandbox,
        shifted(postgres_url, hours) as url,
    ):
        await make_shop(sandbox)
        kubeconfig, application = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("webs")
        async with together(kubeconfig, nats_server.url, url, application, Program([op]), [Web]) as stack:

            async def has_looked() -> bool:
                stack.check()
                return len(often) >= 3

            await until(has_looked, "three calls, each a second after the one before")
    assert hourly == ["shop"]


async def test_what_waits_for_its_time_goes_on_after_the_clock_of_the_database_was_set_back(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path
) -> None:
    op, calls = Operator("webs"), Counter[str]()

    @op.timer(every=timedelta(seconds=1))
    async def tick(web: Web) -> None:
        calls["timer"] += 1

    @op.on.create()
    async def create(web: Web) -> None:
        calls["retry"] += 1
        raise Retry("not yet", delay=timedelta(seconds=1))

    @op.view
    def rechecked(web: Web, now: datetime) -> Level[int]:
        calls["recheck"] += 1
        return Level(1, 1, recheck_at=now + timedelta(seconds=1))

    @op.view
    def open_(web: Web) -> Level[int]:
        return Level(1, 0)

    @op.reconcile(open_)
    def close(web: Web, level: Level[int]) -> Iterator[Intent]:
        calls["backoff"] += 1
        yield from ()

    async with Sandbox() as sandbox, shifted(postgres_url, hours=30 * 24) as url:
        await make_shop(sandbox)
        kubeconfig, application = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("webs")
        async with together(kubeconfig, nats_server.url, url, application, Program([op]), [Web]) as stack:

            async def has_gone_on(since: Counter[str]) -> bool:
                stack.check()
                return all(calls[kind] > since[kind] + 1 for kind in ("timer", "retry", "recheck", "backoff"))

            await until(lambda: has_gone_on(Counter()), "two calls of each")
            await set_clock(postgres_url, 0)
            since = Counter(calls)
            await until(lambda: has_gone_on(since), f"two more of each than {since}: {calls}", seconds=45)
