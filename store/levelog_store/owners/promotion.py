"""Promotes code: deletes the rows of removed functions, and stores what the changed ones have to compute anew.

No row of a level is touched for that: whoever loads a State takes what `backfills` names for unknown. By the same rules
`promoted` and `superseded` give what the tables would hold, for a plan, which writes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy import Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.wire.canonical import canonical
from levelog_store.decide.inputreads import KeptIntent
from levelog_store.dialects import change, fields, mappings, one_of, read_as, remove, rows_of, there_is
from levelog_store.fold.statereads import StoredState
from levelog_store.owners.handlers import Backfill, Differences, Handler, differences
from levelog_store.rows import Scope
from levelog_store.tables import (
    backfills,
    call_positions,
    checkpoints,
    dependencies,
    handlers,
    index_entries,
    intents,
    key_versions,
    levels,
    wakeups,
)


async def read_handlers(connection: AsyncConnection, scope: Scope) -> list[Handler]:
    """Handlers of the code whose results the tables hold."""
    query = select(*fields(Handler, handlers)).where(handlers.c.scope == scope.number)
    found = mappings(await connection.execute(query))
    for row in found:
        row["reads"] = tuple(msgspec.json.decode(row["reads"]))
    return [Handler(**row) for row in found]


async def promote(connection: AsyncConnection, scope: Scope, code: Sequence[Handler]) -> Differences:
    """Have the tables go on with `code`: what removed functions left is deleted, what others give is still to come.

    The caller has revoked all leases in the same transaction. Unclaimed intents of what changed are superseded.
    """
    found = differences(await read_handlers(connection, scope), code)
    if not found:
        return found
    await _delete(connection, scope, (index_entries, key_versions, dependencies), "index", found.emptied)
    await _delete(connection, scope, (levels, dependencies, wakeups), "view", found.forgotten)
    await _delete(connection, scope, (call_positions,), "handler", found.forgotten)
    if found.changed:
        is_unsent = one_of(connection.dialect, intents.c.view, found.changed), intents.c.state == "pending"
        await change(connection, scope, intents, *is_unsent, state="superseded")
    has_folded = checkpoints.c.scope == scope.number, checkpoints.c.sequence > 0
    left = found.left_after(await read_as(Backfill, connection, scope, backfills), scope.partitions)
    await remove(connection, scope, backfills)
    if (await connection.scalar(select(there_is(*has_folded)))) and (rows := rows_of(scope, left)):
        await connection.execute(insert(backfills), rows)
    await remove(connection, scope, handlers)
    rows = [{"scope": scope.number, **asdict(each), "reads": canonical(each.reads)} for each in code]
    if rows:
        await connection.execute(insert(handlers), rows)
    return found


async def _delete(
    connection: AsyncConnection, scope: Scope, tables: Sequence[Table], column: str, names: Collection[str]
) -> None:
    for table in tables if names else ():
        await remove(connection, scope, table, one_of(connection.dialect, table.c[column], names))


def promoted(stored: StoredState, found: Differences) -> StoredState:
    """What the tables would hold: without what removed functions left, and with what is left to compute anew."""
    emptied, forgotten = found.emptied, found.forgotten
    return replace(
        stored,
        entries=[(name, entry) for name, entry in stored.entries if entry.index not in emptied],
        keys={place: version for place, version in stored.keys.items() if place[0] not in emptied},
        levels=[row for row in stored.levels if row.view not in forgotten],
        reads=[read for read in stored.reads if read[0] not in forgotten and read[2] not in emptied],
        wakes=[wake for wake in stored.wakes if wake.view not in forgotten],
        unfinished=found.left_after(stored.unfinished, len(stored.folded_to)),
    )


def superseded(intents: Iterable[KeptIntent], found: Differences) -> Iterator[KeptIntent]:
    """The intents, where unclaimed ones of views that changed are withdrawn."""
    for each in intents:
        is_left = each.intent.state == "pending" and each.intent.view in found.changed
        yield replace(each, intent=replace(each.intent, state="superseded")) if is_left else each
