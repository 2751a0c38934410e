"""A new application is not let into a database that holds others, unless somebody says that they trust each other."""

from collections.abc import AsyncIterator

import pytest_asyncio

from levelog_base.wire.objects import Application, Cluster
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from levelog_store.owners.scopes import open_scope
from rigs.levelog import WEBS_FILE, Levelog, define_webs


async def with_pages(url: str) -> None:
    """Make an application that is called pages."""
    async with await Database.open(url) as database:
        await open_scope(
            database,
            cluster=Cluster("other"),
            application=Application("pages"),
            partitions=1,
            stream_created="2026-01-01T00:00:00Z",
            fingerprint="",
        )


async def runs(levelog: Levelog, *arguments: str) -> None:
    """Run until it processes, and stop it."""
    with levelog.start("run", WEBS_FILE, *arguments) as running:
        await running.says("owns 16 of 16 partitions")
        assert await running.stops() == 0


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as started:
        await define_webs(started)
        yield started


async def test_an_application_is_not_made_beside_another_unless_that_is_said(
    levelog: Levelog, postgres_url: str
) -> None:
    await with_pages(postgres_url)
    levelog.env["LEVELOG_DATABASE_URL"] = postgres_url
    await runs(levelog, "--application", "pages")  # on any cluster
    said = await levelog.refused("run", WEBS_FILE, status=2)
    assert "holds application pages" in said
    assert said.endswith("give webs a database of its own, or, if they trust each other, --shared-database")
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications" not in examined.stdout

    for arguments in (("--shared-database",), ()):  # once it is there, it goes on
        await runs(levelog, *arguments)
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications pages, webs: who may write rows of one" in examined.stdout.replace("\n" + " " * 20, " ")
    examined = await levelog.ends("doctor", WEBS_FILE, "--shared-database")
    assert "holds applications" not in examined.stdout


async def test_a_file_of_sqlite_takes_several(levelog: Levelog) -> None:
    for name in ("pages", "webs"):
        await runs(levelog, "--application", name)
    examined = await levelog.ends("doctor", WEBS_FILE)
    assert "holds applications" not in examined.stdout
