import asyncio

import pytest
from sqlalchemy import insert, select

from levelog_base.errors import ConfigurationError
from levelog_store.connect.database import Database
from levelog_store.dialects import upsert
from levelog_store.owners.scopes import reset_scope
from levelog_store.rows import Scope
from levelog_store.tables import (
    dependencies,
    index_entries,
    intents,
    key_versions,
    leases,
    levels,
    objects,
    scopes,
    syncs,
    tombstones,
    wakeups,
)
from rigs.leasing import LONG_AGO, PARTITIONS, count, fold, processor, scope_of, sequences
from rigs.tablerows import table_row

FOLDED = (objects, tombstones, index_entries, key_versions, dependencies, wakeups, syncs)


async def test_a_scope_is_made_once_however_many_open_it(database: Database) -> None:
    found = await asyncio.gather(*(scope_of(database) for _ in range(5)))
    assert len(set(found)) == 1
    assert await count(database, leases, found[0]) == PARTITIONS
    assert await sequences(database, found[0]) == dict.fromkeys(range(PARTITIONS), 0)
    async with database.reading() as connection:
        assert len((await connection.execute(select(scopes))).all()) == 1


async def test_applications_have_scopes_of_their_own(database: Database) -> None:
    one, other = await scope_of(database), await scope_of(database, application="other")
    assert one.number != other.number
    assert (await scope_of(database)).number == one.number


async def test_another_number_of_partitions_is_refused_and_changes_nothing(database: Database, scope: Scope) -> None:
    epochs = await processor(database, scope, "a").tend()
    with pytest.raises(ConfigurationError, match="with 8 partitions of cluster cluster, the log has 16 now"):
        await scope_of(database, partitions=16, fingerprint="code-2")
    await fold(database, scope, epochs, 3)


async def test_opening_with_the_same_code_disturbs_nobody(database: Database, scope: Scope) -> None:
    running = processor(database, scope, "a")
    epochs = await running.tend()
    assert await scope_of(database) == scope
    await fold(database, scope, epochs, 3)
    assert await running.tend() == epochs


async def test_a_scope_tells_the_stream_that_it_was_made_for(database: Database, scope: Scope) -> None:
    await reset_scope(database, scope, stream_created="stream-2", reason="made anew")
    assert (await scope_of(database)).stream_created == "stream-2"


async def test_a_reset_deletes_what_was_folded_and_keeps_rounds_and_intents_but_unclaimed_ones(
    database: Database,
) -> None:
    scope, other = await scope_of(database), await scope_of(database, application="other")
    epochs = await processor(database, scope, "a").tend()
    await fold(database, scope, epochs, 42)
    level = {
        "view": "webs/pods",
        "parent": "webs.example.com/default/shop",
        "parent_uid": "u",
        "round": 7,
        "evaluations": 9,
        "status": "in_sync",
        "desired": b"{}",
        "actual": b"{}",
        "drift": b"{}",
        "inputs": "digest",
        "reads_digest": "digest",
        "decided_inputs": "digest",
        "cause": 41,
        "attempts": 2,
        "recheck_at": LONG_AGO,
        "evaluated_at": LONG_AGO,
    }
    held_call = {"view": "webs/audit", "parent": level["parent"], "status": "failed", "position": 7}
    async with database.transaction() as connection:
        for each in (scope, other):
            for table in FOLDED:
                await upsert(connection, table, [table_row(table, each)])
            await connection.execute(insert(levels), [table_row(levels, each, **level)])
        await connection.execute(insert(levels), [table_row(levels, scope, **held_call)])
        for key, receipt, is_folded in (("waiting", b"{}", False), ("done", b"{}", True), ("open", None, False)):
            values = table_row(
                intents, scope, key=key, receipt=receipt, is_folded=is_folded, is_relayed=receipt is not None
            )
            await connection.execute(insert(intents), [values])
        for state in ("pending", "claimed", "settled"):
            await connection.execute(insert(intents), [table_row(intents, other, key=f"other {state}", state=state)])
            await connection.execute(insert(intents), [table_row(intents, scope, key=f"{state} before", state=state)])

    again = await reset_scope(database, scope, stream_created="stream-2", reason="the stream was made anew")

    assert (again.stream_created, again.resets) == ("stream-2", 1)
    assert [await count(database, table, scope) for table in FOLDED] == [0] * len(FOLDED)
    assert [await count(database, table, other) for table in FOLDED] == [1] * len(FOLDED)
    assert set((await sequences(database, scope)).values()) == {0}
    async with database.reading() as connection:
        kept = (await connection.execute(select(levels).where(levels.c.scope == scope.number))).mappings().one()
        untouched = (await connection.execute(select(levels.c.status).where(levels.c.scope == other.number))).scalar()
        rows = await connection.execute(select(intents.c.key, intents.c.state))
        states = dict(rows.all())
        chosen = intents.c.key.in_(("done", "open", "waiting"))
        relayed = await connection.execute(select(intents.c.key, intents.c.is_relayed).where(chosen).order_by("key"))
        assert [tuple(each) for each in relayed] == [("done", True), ("open", False), ("waiting", False)]
    assert [states[f"{each} before"] for each in ("pending", "claimed", "settled")] == [
        "superseded",
        "claimed",
        "settled",
    ]
    assert states["other pending"] == "pending"
    assert (kept["round"], kept["evaluations"], kept["parent_uid"]) == (7, 9, "u")
    assert (kept["status"], kept["reason"]) == ("blocked", "the stream was made anew")
    emptied = ("desired", "actual", "drift", "recheck_at", "evaluated_at")
    assert {kept[name] for name in emptied} == {None}
    assert {kept[name] for name in ("inputs", "reads_digest", "decided_inputs")} == {""}
    assert (kept["cause"], kept["attempts"]) == (0, 0)
    assert untouched == "in_sync"


async def test_several_processes_that_find_the_same_mismatch_reset_once(database: Database, scope: Scope) -> None:
    found = await asyncio.gather(
        *(reset_scope(database, scope, stream_created="stream-2", reason="made anew") for _ in range(4))
    )
    assert {each.resets for each in found} == {1}
    epochs = await processor(database, found[0], "a").tend()
    await fold(database, found[0], epochs, 3)
    late = await reset_scope(database, scope, stream_created="stream-2", reason="made anew")
    assert late == found[0]
    assert set((await sequences(database, scope)).values()) == {3}
