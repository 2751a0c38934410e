"""Databases that are thrown away: SQLite on the loop's own thread keeps what others keep."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import insert, select

from levelog_base.errors import ConfigurationError
from levelog_store.connect import engines
from levelog_store.connect.database import Database
from levelog_store.tables import metadata, scopes


@pytest_asyncio.fixture
async def scratch(tmp_path: Path) -> AsyncIterator[Database]:
    async with await Database.open(f"sqlite:///{tmp_path / 'scratch.db'}", is_scratch=True) as database:
        async with database.transaction() as connection:
            await connection.run_sync(metadata.create_all, checkfirst=False)
        yield database


def row(application: str) -> dict[str, object]:
    return {
        "cluster": "c",
        "application": application,
        "partitions": 1,
        "fingerprint": "",
        "stream_created": "",
        "resets": 0,
    }


async def applications(database: Database) -> list[str]:
    async with database.reading() as connection:
        return list((await connection.execute(select(scopes.c.application).order_by(scopes.c.scope))).scalars())


async def test_a_scratch_database_needs_no_thread(scratch: Database) -> None:
    before = set(threading.enumerate())
    async with scratch.transaction() as connection:
        await connection.execute(insert(scopes), [row("one"), row("two")])
    assert await applications(scratch) == ["one", "two"]
    assert set(threading.enumerate()) == before


async def test_a_transaction_in_a_scratch_database_that_raises_leaves_nothing(scratch: Database) -> None:
    async def fail() -> None:
        async with scratch.transaction() as connection:
            await connection.execute(insert(scopes), row("one"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await applications(scratch) == []


async def test_a_snapshot_of_a_scratch_database_sees_one_moment_also_while_it_is_streamed(scratch: Database) -> None:
    async with scratch.transaction() as connection:
        await connection.execute(insert(scopes), [row(f"{n:03}") for n in range(500)])
    found: list[str] = []
    async with scratch.reading() as reader, reader.stream(select(scopes.c.application)) as rows:
        async for (name,) in rows:
            if not found:
                async with scratch.transaction() as connection:
                    await connection.execute(insert(scopes), row("later"))
            found.append(name)
    assert found == [f"{n:03}" for n in range(500)]
    assert (await applications(scratch))[-1] == "later"


async def test_the_next_database_compiles_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: dict[Any, Any] = {}
    monkeypatch.setattr(engines, "_compiled", compiled)
    counts: list[int] = []
    for name in "ab":
        async with await Database.open(f"sqlite:///{tmp_path}/{name}", is_scratch=True) as database:
            async with database.transaction() as connection:
                await connection.run_sync(metadata.create_all)
                await connection.execute(insert(scopes), row("one"))
            assert await applications(database) == ["one"]
        counts.append(len(compiled))
    assert counts == [len(compiled)] * 2
    assert compiled


async def test_errors_of_a_scratch_database_are_levelogs(scratch: Database) -> None:
    async with scratch.transaction() as connection:
        await connection.exec_driver_sql("DROP TABLE scopes")
    with pytest.raises(ConfigurationError, match="no such table"):
        await applications(scratch)
