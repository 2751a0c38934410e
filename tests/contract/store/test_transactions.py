import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import ConfigurationError, RowRefused, Unavailable
from levelog_store.connect.database import Database
from levelog_store.dialects import now, upsert
from levelog_store.tables import index_entries, key_versions, unreadable


async def write(connection: AsyncConnection, key: str, version: int = 1) -> None:
    values = {"scope": 1, "index": "i", "key": key, "version": version}
    await connection.execute(insert(key_versions).values(values))


async def keys(database: Database) -> list[str]:
    async with database.reading() as connection:
        return list((await connection.execute(select(key_versions.c.key).order_by(key_versions.c.key))).scalars())


@pytest.mark.parametrize("durable", [True, False])
async def test_a_block_that_ends_is_committed(database: Database, durable: bool) -> None:
    async with database.transaction(durable=durable) as connection:
        await write(connection, "a")
    assert await keys(database) == ["a"]


async def test_a_block_that_raises_is_rolled_back_and_the_error_is_seen(database: Database) -> None:
    async def divide() -> None:
        async with database.transaction() as connection:
            await write(connection, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await divide()
    assert await keys(database) == []


async def test_a_connection_is_kept_for_the_next_transaction_but_none_after_an_error(database: Database) -> None:
    async def used() -> AsyncConnection:
        async with database.reading() as connection:
            return connection

    kept = await used()
    assert await used() is kept
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            raise ZeroDivisionError
    assert await used() is not kept
    assert kept.closed


async def test_time_outs_of_the_block_are_not_taken_for_the_databases(database: Database) -> None:
    async def wait() -> None:
        async with database.transaction() as connection, asyncio.timeout(0.01):
            await write(connection, "a")
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
    assert await keys(database) == []


async def test_a_cancelled_task_rolls_back_and_leaves_the_database_usable(database: Database) -> None:
    written = asyncio.Event()

    async def work() -> None:
        async with database.transaction() as connection:
            await write(connection, "a")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await keys(database) == []
    async with database.transaction() as connection:
        await write(connection, "b")
    assert await keys(database) == ["b"]


async def test_a_statement_that_is_cancelled_leaves_the_database_usable(database: Database) -> None:
    for turns in range(20):
        task = asyncio.create_task(keys(database))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])  # it may have ended by then
    async with database.transaction() as connection:
        await write(connection, "b")
    assert await keys(database) == ["b"]


async def test_a_transaction_cancelled_at_any_moment_lets_go_of_its_locks_while_its_traceback_is_held(
    database: Database,
) -> None:
    async with database.transaction() as connection:
        for number in range(1000):
            await write(connection, f"k{number}")

    async def work() -> None:
        while True:
            async with database.transaction() as connection:
                await connection.execute(update(key_versions).values(version=2))
                (await connection.execute(select(key_versions))).all()

    ended: list[asyncio.Task[None]] = []
    for moment in range(80):
        ended.append(asyncio.create_task(work()))
        await asyncio.wait(ended[-1:], timeout=moment / 4000)
        ended[-1].cancel()
        await asyncio.wait(ended[-1:])
        async with asyncio.timeout(60), database.transaction() as connection:
            await connection.execute(update(key_versions).values(version=3))
    assert all(task.cancelled() for task in ended)


async def test_a_snapshot_sees_the_same_commits_throughout(database: Database) -> None:
    statement = select(key_versions.c.key)
    async with database.reading() as connection:
        assert (await connection.execute(statement)).scalars().all() == []
        async with database.transaction() as other:
            await write(other, "a")
        assert (await connection.execute(statement)).scalars().all() == []
    assert await keys(database) == ["a"]


async def test_a_snapshot_cannot_be_written_to(database: Database) -> None:
    with pytest.raises((ConfigurationError, Unavailable), match=r"read.?only"):
        async with database.reading() as connection:
            await write(connection, "a")
    assert await keys(database) == []


async def test_transactions_of_many_tasks_lose_no_update(database: Database) -> None:
    async with database.transaction() as connection:
        await write(connection, "a", 0)

    async def add() -> None:
        async with database.transaction() as connection:
            await connection.execute(update(key_versions).values(version=key_versions.c.version + 1))

    await asyncio.gather(*(add() for _ in range(20)))
    async with database.reading() as connection:
        assert (await connection.execute(select(key_versions.c.version))).scalar() == 20


async def test_defects_stay_sqlalchemys_errors(database: Database) -> None:
    async with database.transaction() as connection:
        await write(connection, "a")
    with pytest.raises(IntegrityError):
        async with database.transaction() as connection:
            await write(connection, "a")


async def test_a_table_that_is_missing_is_said_in_one_sentence(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.run_sync(key_versions.drop)
    with pytest.raises(ConfigurationError, match="key_versions"):
        await keys(database)


async def test_json_comes_back_as_the_bytes_that_it_was(database: Database) -> None:
    body = '{"b": 1.10,  "a":"\\u00e9é😀", "a": [ ]}'.encode()
    row = {"scope": 1, "index": "i", "key": "k", "object": "o", "ordinal": 0, "value": body, "error": ""}
    async with database.transaction() as connection:
        await connection.execute(insert(index_entries), [row])
    async with database.reading() as connection:
        assert (await connection.execute(select(index_entries.c.value))).scalar() == body


async def test_text_sorts_by_its_bytes(database: Database) -> None:
    names = ["B", "Z/a", "Z/b", "a", "a-b", "a/b", "ab", "é"]
    async with database.transaction() as connection:
        for name in reversed(names):
            await write(connection, name)
    assert await keys(database) == sorted(names)


async def test_times_come_back_in_utc_and_compare_with_the_databases_clock(database: Database) -> None:
    local = datetime.now(timezone(timedelta(hours=5)))
    row = {"scope": 1, "partition": 0, "place": "o", "sequence": 1, "error": "", "recorded_at": local}
    async with database.transaction() as connection:
        await connection.execute(insert(unreadable).values(row))
    moment, dialect = unreadable.c.recorded_at, database.dialect
    async with database.reading() as connection:
        stored, is_past, is_long_past, clock = (
            await connection.execute(
                select(
                    moment,
                    moment < now(dialect, timedelta(seconds=30)),
                    moment < now(dialect, timedelta(seconds=-30)),
                    now(dialect),
                )
            )
        ).one()
    assert (stored, stored.tzinfo) == (local, UTC)
    assert (is_past, is_long_past) == (True, False)
    assert abs(clock - local) < timedelta(seconds=30)
    assert clock.tzinfo == UTC


async def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="without a zone"):
        async with database.transaction() as connection:
            await connection.execute(update(unreadable).values(recorded_at=datetime(2026, 1, 1)))  # noqa: DTZ001


async def test_a_database_opened_to_read_refuses_transactions(database: Database, database_url: str) -> None:
    async with database.transaction() as connection:
        await write(connection, "a")
    async with await Database.open(database_url, read_only=True) as opened:
        assert await keys(opened) == ["a"]
        with pytest.raises(ConfigurationError, match="read only"):
            async with opened.transaction():
                pass


@pytest.mark.parametrize("value", ["a\ud800", 2**70], ids=["lone surrogate", "large number"])
async def test_a_value_that_the_database_does_not_take_is_refused_without_being_quoted(
    database: Database, value: object
) -> None:
    column = "key" if isinstance(value, str) else "version"
    row = {"scope": 1, "index": "i", "key": "k", "version": 1} | {column: value}
    with pytest.raises(RowRefused) as refused:
        async with database.transaction() as connection:
            await upsert(connection, key_versions, [row])
    assert str(value).encode(errors="backslashreplace").decode() not in str(refused.value)


async def test_a_text_with_a_nul_is_refused_by_postgresql(shared: Database) -> None:
    with pytest.raises(RowRefused, match="does not take a value"):
        async with shared.transaction() as connection:
            await upsert(connection, key_versions, [{"scope": 1, "index": "i", "key": "a\0", "version": 1}])
