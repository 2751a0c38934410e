from typing import Any

from sqlalchemy import select

from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.tables import objects, syncs
from rigs.leasing import SCOPE
from rigs.tablerows import table_row


def sync(partition: int, **changed: Any) -> dict[str, Any]:
    return table_row(syncs, SCOPE, partition=partition, resource="pods", **changed)


async def read(database: Database) -> list[tuple[Any, ...]]:
    columns = (syncs.c.partition, syncs.c.unfinished, syncs.c.version)
    async with database.reading() as connection:
        return [tuple(row) for row in await connection.execute(select(*columns).order_by(syncs.c.partition))]


async def test_rows_are_written_whether_new_or_not(database: Database) -> None:
    async with database.transaction() as connection:
        await upsert(connection, syncs, [sync(1, unfinished="a")])
        await upsert(connection, syncs, [sync(1, unfinished="b", version=7), sync(2, unfinished="c")])
    assert await read(database) == [(1, "b", 7), (2, "c", 0)]


async def test_only_the_named_columns_of_old_rows_change(database: Database) -> None:
    async with database.transaction() as connection:
        await upsert(connection, syncs, [sync(1, unfinished="a", version=3)])
        await upsert(connection, syncs, [sync(1, unfinished="b", version=7)], update=("version",))
        await upsert(connection, syncs, [sync(1, unfinished="z", version=9), sync(2, unfinished="new")], update=())
    assert await read(database) == [(1, "a", 7), (2, "new", 0)]


async def test_of_rows_with_one_key_the_last_counts(database: Database) -> None:
    async with database.transaction() as connection:
        await upsert(connection, syncs, [sync(1, version=n) for n in range(5)])
    assert await read(database) == [(1, "", 4)]


async def test_no_rows_are_no_statement(database: Database) -> None:
    async with database.transaction() as connection:
        await upsert(connection, syncs, [])
    assert await read(database) == []


async def test_thousands_of_large_rows_go_at_once(database: Database) -> None:
    body = b'{"data":"' + b"x" * 3000 + b'"}'
    rows = [
        table_row(objects, SCOPE, object=f"webs.example.com/default/web-{n}", name=f"web-{n}", body=body)
        for n in range(3000)
    ]
    async with database.transaction() as connection:
        await upsert(connection, objects, rows)
        await upsert(connection, objects, [{**row, "is_deleting": True} for row in rows])
    async with database.reading() as connection:
        found = (await connection.execute(select(objects.c.name, objects.c.body).where(objects.c.is_deleting))).all()
    assert {name for name, _ in found} == {f"web-{n}" for n in range(3000)}
    assert {bytes(text) for _, text in found} == {body}
