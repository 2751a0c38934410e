"""A deleted object is kept under another name until its deletion is handled or given up, and is forgotten then."""

from typing import Any

from sqlalchemy import Table, insert, select

from levelog import Operator
from levelog.handlers.indexers import call_entry
from levelog_processors.engine import Engine
from levelog_processors.keys import calls_key
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import PendingWake
from levelog_store.dialects import rows_of
from levelog_store.fold.statewrites import Unwritten, write_state, write_wakes_of
from levelog_store.rows import Entry, LevelRow, Scope
from levelog_store.tables import index_entries, intents, levels, objects
from rigs.intents import NOON, intent
from rigs.kinds import Web
from rigs.leasing import processor, scope_of
from rigs.storedobjects import stored_object

VIEW, CALLED = "webs/archive_deleted", "webs/archive_handled"
LEVELS: dict[str, dict[str, Any]] = {
    "handled": {"status": "in_sync"},
    "given-up": {"status": "failed"},
    "tried-again": {"status": "failed", "recheck_at": NOON},
    "under-way": {"status": "settling"},
    "woken": {"status": "in_sync"},
    "called": {"status": "in_sync"},
}
"""How the level of each deleted object stands."""


def operator() -> Operator:
    op = Operator("webs")

    @op.on.delete
    def archive(web: Web) -> None: ...

    return op


def ended(name: str) -> str:
    return f"webs.example.com:deleted/default/{name}:{name}"


async def fill(database: Database, scope: Scope) -> None:
    entries = {
        (CALLED, calls_key(name), call_entry(f"webs.example.com/default/{name}", ""), 0): Entry(
            CALLED, calls_key(name), 0, b"{}"
        )
        for name in LEVELS
    }
    told = Unwritten(
        objects={ended(name): stored_object(ended(name), uid=name) for name in LEVELS}, entries={**entries}
    )
    wake = PendingWake(view=VIEW, parent=ended("woken"), partition=0, cause=1, generation=1, due_at=None)
    rows = [
        LevelRow(view=VIEW, parent=ended(name), partition=0, parent_uid=name, evaluated_at=NOON, **given)
        for name, given in LEVELS.items()
    ]
    call = intent(
        "archive.effects/default/called",
        verb="call",
        parent=ended("called"),
        parent_uid="called",
        view=VIEW,
        state="claimed",
        scope=scope.number,
    )
    async with database.transaction() as connection:
        await write_state(connection, scope, told)
        await write_wakes_of(connection, scope, {(VIEW, wake.parent): wake}, {})
        await connection.execute(insert(levels), rows_of(scope, rows))
        await connection.execute(insert(intents), [call])


async def test_deletions_that_are_handled_or_given_up_are_forgotten_with_their_levels_and_calls(
    database_url: str,
) -> None:
    program = Program([operator()])
    async with await Database.open(database_url) as database:
        scope = await scope_of(database, partitions=1, fingerprint=program.fingerprint)
        await fill(database, scope)
        engine = Engine(SqlTables(database, scope), program, patience=None)
        await engine.load(await processor(database, scope, "test").tend())
        assert await engine.forget(before=0) == 2
        left = [name for name in LEVELS if name not in ("handled", "given-up")]

        async def names(table: Table, column: str) -> set[str]:
            async with database.reading() as connection:
                return set(await connection.scalars(select(table.c[column])))

        parents = {ended(name) for name in left}
        assert engine.state.objects.keys() == await names(objects, "object") == parents
        assert {parent for _, parent in engine.state.levels} == await names(levels, "parent") == parents
        calls = {call_entry(f"webs.example.com/default/{name}", "") for name in left}
        held = {name for name, entries in engine.state.buckets.by_object.items() if entries}
        assert held == await names(index_entries, "object") == calls
        assert await engine.forget(before=0) == 0
        await engine.close()
