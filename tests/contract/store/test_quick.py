"""Statements that are built once give what SQLAlchemy gives, and fail as they do with it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Delete, Executable, Insert, Update, bindparam, delete, exists, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import Unavailable
from levelog_store.actuate import claims, outcomes
from levelog_store.connect.database import Database
from levelog_store.connect.quick import QuickResult
from levelog_store.dialects import built_once, now, write
from levelog_store.tables import dependencies, intents, key_versions
from rigs.intents import NOON, decide, intent
from rigs.statements import counting_round_trips

SCOPE = {"of_scope": 1}
LATER = NOON + timedelta(hours=1)
ROW = {"scope": 1, "index": "i", "key": "k", "version": 1}


@built_once
def all_intents() -> Executable:
    return select(intents).where(intents.c.scope == bindparam("of_scope")).order_by(intents.c.key)


@built_once
def chosen_states() -> Executable:
    """With values that stand in the statement, and an expression without a name."""
    is_one = intents.c.state.in_(("pending", "claimed"))
    return select(intents.c.key, intents.c.due_at, intents.c.attempts + 1, is_one).where(is_one).order_by(intents.c.key)


@built_once
def add() -> Insert:
    return insert(key_versions)


@built_once
def raise_all() -> Executable:
    return update(key_versions).where(key_versions.c.scope == bindparam("of_scope")).values(version=7)


@built_once
def remove() -> Executable:
    return delete(key_versions).where(key_versions.c.key == bindparam("of")).returning(key_versions.c.version)


async def both(connection: AsyncConnection, statement: Executable, parameters: Mapping[str, Any]) -> list[Any]:
    """Rows and names as our way and as SQLAlchemy's own gives them."""
    found: list[Any] = []
    for execute in (type(connection).execute, AsyncConnection.execute):
        result = await execute(connection, statement, parameters)
        found.append((isinstance(result, QuickResult), list(result.keys()), [tuple(row) for row in result.all()]))
    return found


async def test_rows_are_those_that_sqlalchemy_gives(database: Database) -> None:
    rows = (
        intent("pods/default/a", body={"ü": 1.0}, due_at=NOON, sealed=b"\0\xff"),
        intent("pods/default/b", state="claimed", observed_at=NOON, is_folded=True, target_version=2**62),
        intent("pods/default/c", state="settled", receipt=b'{"a": 1.0}', observed_version=3),
    )
    keys = await decide(database, *rows)
    async with database.transaction() as connection:
        dialect = connection.dialect
        named = SCOPE | {"of_keys": keys, "by": ""}
        for statement, parameters in (
            (all_intents(), SCOPE),
            (chosen_states(), {}),
            (claims.claimable(dialect), {"of_scope": 1, "limit": 10}),
            (outcomes.lock_claimed(dialect), named),
        ):
            ours, theirs = await both(connection, statement, parameters)
            assert (ours[0], theirs[0]) == (True, False)
            assert ours[1:] == theirs[1:]
            assert ours[2]
        found = (await connection.execute(all_intents(), SCOPE)).mappings().all()
    assert [row["key"] for row in found] == keys
    assert (found[0]["due_at"], found[0]["sealed"], found[1]["is_folded"]) == (NOON, b"\0\xff", True)


async def test_what_is_written_is_what_sqlalchemy_writes(database: Database) -> None:
    several = [ROW | {"key": key} for key in "abc"]
    async with database.transaction() as connection:
        await connection.execute(add(), ROW)
        await connection.execute(add(), several)
        assert (await connection.execute(raise_all(), SCOPE)).rowcount == 4
        assert (await connection.execute(remove(), {"of": "k"})).scalars().all() == [7]
        assert (await connection.execute(remove(), {"of": "k"})).first() is None
    async with database.reading() as connection:
        rows = (await connection.execute(select(key_versions.c.key, key_versions.c.version))).all()
    assert sorted(map(tuple, rows)) == [(key, 7) for key in "abc"]


@built_once
def decided() -> Insert:
    return insert(intents)


@built_once
def due_by() -> Executable:
    """With times as a parameter and as a constant, which databases know in other forms than Python."""
    is_later = intents.c.decided_at == LATER
    due_at = bindparam("at", type_=intents.c.due_at.type)
    return select(intents.c.key, intents.c.due_at == due_at).where(is_later, intents.c.due_at <= due_at)


async def test_values_go_to_the_database_as_sqlalchemy_gives_them(database: Database) -> None:
    """They are read back as the database holds them, which no converter of columns makes equal."""
    values: dict[str, Any] = {"body": {"ü": 1.0}, "due_at": NOON, "decided_at": LATER, "sealed": b"\0\xff"}
    first, *others = (intent(f"pods/default/{name}", is_folded=True, **values) for name in "abcd")
    keys = [each["key"] for each in (first, *others)]
    async with database.transaction() as connection:
        await connection.execute(decided(), first)
        await connection.execute(decided(), others[:2])
        await AsyncConnection.execute(connection, decided(), others[2])
        held = "SELECT due_at, decided_at, body, options, sealed, is_folded, receipt FROM intents ORDER BY key"
        rows = [tuple(map(repr, row)) for row in await connection.execute(text(held))]
        assert len(rows) == len(keys)
        assert set(rows) == {rows[-1]}
        ours, theirs = await both(connection, due_by(), {"at": NOON})
    assert ours == (True, *theirs[1:])
    assert [(key, bool(is_equal)) for key, is_equal in ours[2]] == [(key, True) for key in keys]


DEPENDENCY = {"scope": 1, "view": "v", "parent": "p", "index": "i", "key": "k", "partition": 0}


@built_once
def depend() -> Insert:
    return insert(dependencies)


@built_once
def move_dependency() -> Update:
    return update(dependencies).where(dependencies.c.view == bindparam("of")).values(partition=bindparam("to"))


async def test_a_write_that_nobody_waits_for_is_done_before_what_follows_it(database: Database) -> None:
    """Whatever follows: another one to the same table, a read, a statement that is not built once, or the commit."""
    async with database.transaction() as connection:
        await write(connection, depend(), [DEPENDENCY])
        await write(connection, move_dependency(), [{"of": "v", "to": 1}])
        assert (await connection.execute(select(dependencies.c.partition))).scalars().all() == [1]
        await write(connection, add(), [ROW])
        assert (await connection.execute(raise_all(), SCOPE)).rowcount == 1
        await write(connection, move_dependency(), [{"of": "v", "to": 2}])
        await write(connection, add(), [ROW | {"key": key} for key in "ab"])
        await write(connection, move_dependency(), [])
        assert (await connection.execute(remove(), {"of": "k"})).scalars().all() == [7]
        await write(connection, add(), [ROW | {"key": "c"}])
    async with database.reading() as connection:
        rows = (await connection.execute(select(key_versions.c.key).order_by(key_versions.c.key))).scalars().all()
        assert rows == ["a", "b", "c"]
        assert await connection.scalar(select(dependencies.c.partition)) == 2


@built_once
def remove_unread() -> Delete:
    is_read = exists().where(dependencies.c.key == key_versions.c.key)
    return delete(key_versions).where(key_versions.c.scope == bindparam("of_scope"), ~is_read)


async def test_a_write_that_reads_another_table_sees_what_was_written_to_that(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(add(), [ROW, ROW | {"key": "other"}])
        await write(connection, depend(), [DEPENDENCY])
        await write(connection, remove_unread(), [SCOPE])
        assert (await connection.execute(remove(), {"of": "k"})).scalars().all() == [1]
        assert (await connection.execute(remove(), {"of": "other"})).all() == []


async def test_writes_to_several_tables_are_one_statement_with_the_rows_of_the_last(shared: Database) -> None:
    async with shared.transaction() as connection:
        await connection.execute(add(), [ROW, ROW | {"key": "other"}])
        with counting_round_trips() as count:
            await write(connection, depend(), [DEPENDENCY])
            assert (await connection.execute(remove(), {"of": "other"})).scalars().all() == [1]
            assert count.statements == 1
            await write(connection, move_dependency(), [{"of": "v", "to": 3}])
            assert (await connection.execute(raise_all(), SCOPE)).rowcount == 1
            assert count.statements == 2
    async with shared.reading() as connection:
        assert await connection.scalar(select(dependencies.c.partition)) == 3


async def test_tables_that_are_locked_in_one_order_are_written_one_after_the_other(shared: Database) -> None:
    async with shared.transaction() as connection:
        with counting_round_trips() as count:
            await write(connection, add(), [ROW])
            await write(connection, decided(), [intent("pods/default/a")])
            await write(connection, depend(), [DEPENDENCY])
            assert count.statements == 1
    async with shared.reading() as connection:
        for table in (key_versions, intents, dependencies):
            assert len((await connection.execute(select(table))).all()) == 1


@pytest.mark.parametrize("is_followed", [False, True])
async def test_what_is_refused_later_fails_and_undoes_the_transaction(database: Database, is_followed: bool) -> None:
    async def fail() -> None:
        async with database.transaction() as connection:
            await connection.execute(add(), ROW)
            await write(connection, depend(), [DEPENDENCY])
            await write(connection, add(), [ROW])
            if is_followed:
                await connection.execute(all_intents(), SCOPE)

    with pytest.raises(IntegrityError) as raised:
        await fail()
    assert "INSERT INTO key_versions" in str(raised.value.statement)
    async with database.transaction() as connection:
        assert (await connection.execute(select(key_versions.c.key))).all() == []
        assert (await connection.execute(select(dependencies.c.view))).all() == []


@pytest.mark.parametrize("rows", [[ROW], [ROW, ROW | {"key": "other"}]])
async def test_a_defect_is_sqlalchemys_error_and_undoes_the_transaction(
    database: Database, rows: Sequence[dict[str, Any]]
) -> None:
    async with database.transaction() as connection:
        await connection.execute(add(), ROW)

    async def fail() -> None:
        async with database.transaction() as connection:
            await connection.execute(add(), ROW | {"key": "first"})
            await connection.execute(add(), list(rows))

    with pytest.raises(IntegrityError):
        await fail()
    async with database.reading() as connection:
        assert (await connection.execute(select(key_versions.c.key))).scalars().all() == ["k"]


async def test_a_connection_that_is_lost_is_told_as_such_and_the_next_one_works(shared: Database) -> None:
    async def lose() -> None:
        async with shared.transaction() as connection:
            pid = await connection.scalar(text("SELECT pg_backend_pid()"))
            async with shared.transaction() as other:
                await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            await connection.execute(add(), ROW)

    with pytest.raises(Unavailable):
        await lose()
    async with shared.transaction() as connection:
        await connection.execute(add(), ROW)


async def test_a_statement_that_is_cancelled_leaves_no_connection_that_cannot_be_used(shared: Database) -> None:
    async with shared.transaction() as connection:
        await connection.execute(add(), ROW)
    for _ in range(20):  # as many as there are connections, and more
        async with shared.transaction() as holder:
            await holder.execute(raise_all(), SCOPE)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), shared.transaction() as waiting:
                    await waiting.execute(raise_all(), SCOPE)
    async with shared.reading() as connection:
        assert await connection.scalar(select(key_versions.c.version)) == 7


async def test_a_time_is_the_databases(database: Database) -> None:
    @built_once
    def later() -> Executable:
        return select(now(dialect), now(dialect, timedelta(minutes=1)))

    async with database.reading() as connection:
        dialect = connection.dialect
        (row,) = (await connection.execute(later())).all()
    assert row[1] - row[0] == timedelta(minutes=1)
