from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import insert, text, update

from levelog import Call, Index, Level, Operator, Struct
from levelog.handlers.indexers import call_entry
from levelog_base.wire.canonical import canonical
from levelog_processors.program import Program
from levelog_processors.sqlviews import sql_views
from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.fold.statewrites import Unwritten, write_state
from levelog_store.look.contact import oldest_contact, read_index_failures, read_inputs
from levelog_store.look.sqlviews import IndexView, JsonColumn, SqlType, replace_views
from levelog_store.owners.scopes import find_scopes
from levelog_store.rows import ERRORS, Entry, LevelRow, SyncRow
from levelog_store.tables import INPUTS, RESERVED, handlers, levels, metadata
from rigs.kinds import Web
from rigs.leasing import scope_of
from rigs.storedobjects import stored_object
from rigs.webs import NOON


class Size(Struct):
    ready_replicas: int
    image: str | None = None


def operator() -> Operator:
    op = Operator("webs")

    @op.index
    def images(web: Web) -> Iterator[tuple[str, tuple[str, int]]]:
        yield "a", ("b", 1)

    @op.effect
    def page(request: Size) -> int:
        return 1

    @op.view
    def sizes(web: Web, images: Index[str, tuple[str, int]]) -> Level[Size]:
        return Level(Size(1), Size(1))

    @op.view
    def counts(web: Web) -> Level[int | None]:
        return Level(1, 1)

    return op


async def rows(database: Database, statement: str) -> list[dict[str, Any]]:
    async with database.reading() as connection:
        return [dict(row) for row in (await connection.execute(text(statement))).mappings()]


def placed(*entries: tuple[str, Entry]) -> dict[tuple[str, str, str, int], Entry | None]:
    """Entries of objects, by place."""
    return {(each.index, each.key, name, each.ordinal): each for name, each in entries}


async def write(database: Database, unwritten: Unwritten) -> None:
    async with database.transaction() as connection:
        [scope] = await find_scopes(connection)
        await write_state(connection, scope, unwritten)


async def filled(database: Database) -> str:
    """Fill the tables and make the views; returns what comes before a view's name in this database."""
    scope = await scope_of(database, application="my-webs", cluster="c1", partitions=4)
    name = "webs.example.com/default/shop"
    web = stored_object(name, uid="u1")
    entry = Entry("webs/images", '"a"', 0, b'["nginx",80]')
    async with database.transaction() as connection:
        await write_state(connection, scope, Unwritten(objects={name: web}, entries=placed((name, entry))))
        for view, desired, actual in (
            ("webs/sizes", b'{"image":"nginx","readyReplicas":3}', b'{"image":null,"readyReplicas":2}'),
            ("webs/counts", b"3", b"null"),
        ):
            row = LevelRow(
                view=view, parent=name, partition=0, parent_uid="u1", status="drifting", desired=desired, actual=actual
            )
            values = {field: getattr(row, field) for field in LevelRow.__struct_fields__}
            await upsert(connection, levels, [{"scope": scope.number, **values}])
    await replace_views(database, "my-webs", sql_views(Program([operator()])))
    return '"my-webs".' if database.is_shared else ""


async def test_a_view_of_structs_has_a_typed_column_for_each_field(database: Database) -> None:
    prefix = await filled(database)
    [row] = await rows(
        database, f"select * from {prefix}sizes where status <> 'in_sync' and desired_ready_replicas > 2"
    )
    assert (row["namespace"], row["name"], row["cluster"]) == ("default", "shop", "c1")
    assert (row["desired_ready_replicas"], row["actual_ready_replicas"]) == (3, 2)
    assert (row["desired_image"], row["actual_image"]) == ("nginx", None)


async def test_a_view_of_a_scalar_has_one_column_for_each_side(database: Database) -> None:
    prefix = await filled(database)
    assert await rows(database, f"select desired, actual from {prefix}counts") == [{"desired": 3, "actual": None}]


async def test_an_index_has_columns_for_the_parts_of_key_and_value(database: Database) -> None:
    prefix = await filled(database)
    found = await rows(database, f"select key, value_1, value_2, namespace, name, error from {prefix}images")
    assert found == [
        {"key": "a", "value_1": "nginx", "value_2": 80, "namespace": "default", "name": "shop", "error": ""}
    ]


async def test_an_effect_has_a_row_for_each_call_with_its_parent_request_and_result(database: Database) -> None:
    prefix = await filled(database)
    name = "webs.example.com/default/shop"

    def entry(call: str, ready: int) -> tuple[str, Entry]:
        done = Call(request=Size(ready), result=ready + 1, name=call, idempotency_key=f"k{ready}", called_at=NOON)
        return call_entry(name, call), Entry("webs/page", '"u1"', 0, canonical(done))

    await write(database, Unwritten(entries=placed(entry("", 1), entry("a/ü", 2))))
    found = await rows(database, f"select * from {prefix}page order by result")
    about = {"namespace": "default", "name": "shop", "request_image": None, "cluster": "c1"}
    assert [{**row, "called_at": row["called_at"][:16]} for row in found] == [
        {**about, "call": call, "request_ready_replicas": n, "result": n + 1, "idempotency_key": f"k{n}"}
        | {"called_at": "2026-01-01T12:00"}
        for call, n in (("", 1), ("a/ü", 2))
    ]


async def test_an_index_shows_its_errors_with_the_keys_that_they_concern(database: Database) -> None:
    prefix = await filled(database)
    name = "webs.example.com/default/shop"
    noted = [
        (name, Entry("webs/images", ERRORS, 0, b'{"object":"x","error":"KeyError"}', "KeyError")),
        (name, Entry("webs/images", f'{ERRORS}"b"', 0, b'{"object":"x","error":"ValueError"}', "ValueError")),
    ]
    await write(database, Unwritten(entries=placed(*noted)))
    found = await rows(database, f"select key, value_2, name, error from {prefix}images where error <> '' order by 4")
    assert found == [
        {"key": None, "value_2": None, "name": "shop", "error": "KeyError"},
        {"key": "b", "value_2": None, "name": "shop", "error": "ValueError"},
    ]
    async with database.reading() as connection:
        [scope] = await find_scopes(connection)
        assert await read_index_failures(connection, scope) == [("webs/images", name, "KeyError")]
    found = await rows(database, f"select name from {prefix}images where key = 'a' and value_2 > 79")
    assert found == [{"name": "shop"}]


async def written(database: Database, values: list[bytes]) -> None:
    """More entries of the object's, numbered."""
    name = "webs.example.com/default/shop"
    entries = [(name, Entry("webs/images", str(number), 0, value)) for number, value in enumerate(values)]
    await write(database, Unwritten(entries=placed(*entries)))


async def test_invariant_14_a_nul_in_one_row_hides_none_of_the_others(database: Database) -> None:
    prefix = await filled(database)
    odd = rb'["a\u0000b\u0000\u0000",1]', rb'["\\\u0000",2]', rb'["\\u0000",3]', rb'["","\u0000"]'
    await written(database, list(odd))
    async with database.transaction() as connection:
        nul = rb'{"image":"\u0000","readyReplicas":3}'
        await connection.execute(update(levels).values(desired=nul, actual=nul, drift=rb'{"extra":["\u0000"]}'))
    found = await rows(database, f"select value_1, value_2 from {prefix}images where key <> 'a'")
    # PostgreSQL's texts hold no NUL, and SQLite's functions end a text there.
    shown = "\N{REPLACEMENT CHARACTER}" if database.is_shared else ""
    texts = [f"a{shown}b{shown}{shown}" if database.is_shared else "a", f"\\{shown}", r"\u0000", ""]
    numbers = [1, 2, 3, None if database.is_shared else ""]
    assert [(row["value_1"], row["value_2"]) for row in found] == list(zip(texts, numbers, strict=True))
    [row] = await rows(database, f"select * from {prefix}sizes")
    assert (row["desired_image"], row["actual_ready_replicas"]) == (shown, 3)
    assert await rows(database, f"select count(*) as n from {prefix}counts where drift is not null") == [{"n": 1}]
    if database.is_shared:
        assert await rows(database, f"select drift->'extra'->>0 as key from {prefix}counts") == [{"key": shown}]


async def test_invariant_14_a_value_of_another_type_than_its_column_is_null_in_its_own_row_alone(
    shared: Database,
) -> None:
    prefix = await filled(shared)
    whole = {"3": 3, "-7": -7, str(8 * 10**18): 8 * 10**18, str(-(2**63)): None, "1.5": None, '"x"': None, "null": None}
    floats = {"1.5": 1.5, "-0.25": -0.25, "2.5e-299": 2.5e-299, "1e+299": 1e299, "3": 3.0, '"1e999"': None, "[1]": None}
    floats |= {str(10**400): None, '"NaN"': None, "null": None}
    booleans = {"true": True, "false": False, '"maybe"': None, "1": None}
    kinds: dict[SqlType, Mapping[str, object]] = {"integer": whole, "float": floats, "boolean": booleans}
    for kind, expected in kinds.items():
        await written(shared, [value.encode() for value in expected])
        number, value = (JsonColumn("", "integer"),), (JsonColumn("", kind),)
        await replace_views(shared, "my-webs", [IndexView(kind, "webs/images", number, value)])
        found = await rows(shared, f'select value from {prefix}"{kind}" where key < {len(expected)} order by key')
        assert [row["value"] for row in found] == list(expected.values())


async def test_the_inputs_show_what_is_listed_what_is_stale_and_when_it_was_heard_of(database: Database) -> None:
    prefix = await filled(database)
    begun = SyncRow(
        partition=0,
        resource="webs.example.com",
        started_sequence=1,
        namespaces="shops",
        heard_at=NOON,
    )

    async def shown(*rows_of_partitions: SyncRow) -> tuple[Any, ...]:
        syncs = {(row.partition, row.resource): row for row in rows_of_partitions}
        await write(database, Unwritten(syncs=syncs))
        [row] = await rows(database, f"select * from {prefix}inputs")
        assert (row["resource"], row["namespaces"], row["cluster"]) == ("webs.example.com", "shops", "c1")
        assert str(row["last_contact"]).startswith("2026-01-01 12:00")
        return bool(row["is_listed"]), bool(row["is_stale"])

    parts = [replace(begun, partition=n) for n in range(4)]
    done = [replace(row, finished_sequence=5) for row in parts]
    assert await shown(*parts) == (False, False)
    assert await shown(*done[:3]) == (False, False)
    assert await shown(*done) == (True, False)
    assert await shown(replace(done[1], gap_sequence=6)) == (True, True)
    assert await shown(replace(done[1], gap_sequence=6, finished_sequence=7)) == (True, False)
    assert await shown(replace(done[2], started_sequence=8)) == (True, True)


async def test_the_oldest_contact_is_of_a_resource_that_is_read_and_watched_and_does_not_fail(
    database: Database,
) -> None:
    await filled(database)
    heard = {"pods": 3, "webs.example.com": 2, "nodes": 1, "pagers.external": 0, "secrets": 0}

    def row(resource: str, partition: int, error: str = "") -> SyncRow:
        at = NOON + timedelta(minutes=heard[resource], seconds=partition)
        return SyncRow(partition=partition, resource=resource, started_sequence=1, heard_at=at, error=error)

    async with database.reading() as connection:
        [scope] = await find_scopes(connection)
        assert oldest_contact(await read_inputs(connection, scope)) is None
    rows = [row(resource, partition, "refused" * (resource == "nodes")) for resource in heard for partition in (0, 1)]
    async with database.transaction() as connection:
        syncs = {(each.partition, each.resource): each for each in rows}
        await write_state(connection, scope, Unwritten(syncs=syncs))
        read = [
            {"kind": "index", "name": name, "resource": name, "scope": scope.number, "fingerprint": "", "reads": b"[]"}
            for name in heard
            if name != "secrets"
        ]
        await connection.execute(insert(handlers), read)
    async with database.reading() as connection:
        contact = oldest_contact(await read_inputs(connection, scope))
    assert contact == ("webs.example.com", NOON + timedelta(minutes=2, seconds=1))


async def test_views_of_handlers_that_are_gone_go_with_the_next_start(database: Database) -> None:
    prefix = await filled(database)
    op = Operator("webs")

    @op.view
    def others(web: Web) -> Level[int]:
        return Level(1, 1)

    await replace_views(database, "my-webs", sql_views(Program([op])))
    await replace_views(database, "my-webs", sql_views(Program([op])))
    assert await rows(database, f"select * from {prefix}others") == []
    catalogue = (
        "sqlite_master where type = 'view'" if not database.is_shared else "pg_views where schemaname = 'my-webs'"
    )
    assert await rows(database, f"select count(*) as views from {catalogue}") == [{"views": 2}]


async def test_a_view_of_somebodys_own_that_selects_from_the_tables_stays(database: Database) -> None:
    prefix = await filled(database)
    own = f"create view {prefix}own as select status from levels join objects on objects.object = levels.parent"
    async with database.transaction() as connection:
        await connection.execute(text(own))
    await replace_views(database, "my-webs", [])
    assert await rows(database, f"select status from {prefix}own") == [{"status": "drifting"}] * 2


def test_every_table_has_a_reserved_name() -> None:
    assert set(metadata.tables) | {"alembic_version", INPUTS} == RESERVED
