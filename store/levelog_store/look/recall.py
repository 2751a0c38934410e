"""Reads past decisions with their intents. Reads only."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, Basis, Decision, PastIntent, Read
from levelog_store.dialects import one_of
from levelog_store.fold.changes import Causes, read_causes
from levelog_store.rows import WHOLE_INDEX, Scope, ViewParent
from levelog_store.tables import decisions, dependencies, handlers, index_entries, intents, levels, objects, wakeups

_PAGE: Final = 500
_READS = msgspec.json.Decoder(list[tuple[str, str, int, Raw]])
_BASIS = msgspec.json.Decoder(Basis)
_KEYS = msgspec.json.Decoder(list[str])


IntentT = TypeVar("IntentT", PastIntent, Asked)


async def read_decisions(
    connection: AsyncConnection, scope: Scope, parents: Sequence[str], *, view: str = ""
) -> list[Decision]:
    """Decisions on the levels of parents, by parent, view and order.

    `parents` are names, how names begin if they end with a slash, or how they end if they begin with one; `view` is
    `operator/view` or the view alone. A record that asked again while a decision was written belongs to that one alone.
    """
    table = decisions.c
    query = select(decisions).where(
        table.scope == scope.number, or_(*(_named(table.parent, parent) for parent in parents))
    )
    if view:
        query = query.where(or_(table.view == view, table.view.endswith(f"/{view}", autoescape=True)))
    rows = await connection.execute(query.order_by(table.parent, table.view, table.ordinal))
    found: list[Decision] = []
    for row in rows.mappings():
        before = found[-1] if found and (found[-1].view, found[-1].parent) == (row["view"], row["parent"]) else None
        found.append(_decision(row, before))
    return found


async def read_about(
    database: Database, scope: Scope, names: Sequence[str]
) -> AsyncIterator[list[tuple[Decision, list[Asked]]]]:
    """Decisions on parents of some names, and on those that something of these names was written for.

    Each with its writes, as far as these are kept; in the order of the snapshots that they saw, a page at a time. Names
    are as for `read_decisions`.
    """
    table, written = decisions.c, intents.c
    writers = select(written.parent).where(
        written.scope == scope.number, or_(*(_named(written.target, name) for name in names))
    )
    query = (
        select(decisions)
        .where(
            table.scope == scope.number,
            or_(table.parent.in_(writers), *(_named(table.parent, name) for name in names)),
        )
        .order_by(table.snapshot, table.ordinal)
        .execution_options(yield_per=_PAGE)
    )
    newest: dict[tuple[str, str], Decision] = {}
    async with database.reading() as connection, connection.stream(query) as rows:
        async for page in rows.mappings().partitions():
            found: list[Decision] = []
            for row in page:
                level = row["view"], row["parent"]
                newest[level] = _decision(row, newest.get(level))
                found.append(newest[level])
            keys = [key for each in found for key in each.intents]
            async with database.reading() as another:
                asked = await read_asked(another, scope, keys) if keys else {}
            yield [(each, [asked[key] for key in each.intents if key in asked]) for each in found]


async def read_newest(
    connection: AsyncConnection, scope: Scope, *, is_by: Callable[[Decision], bool], until: datetime | None = None
) -> list[Decision]:
    """The newest decision on each level among those that `is_by` takes, by view and parent.

    `until`: none that was made later is looked at.
    """
    query = select(decisions).where(decisions.c.scope == scope.number)
    if until is not None:
        query = query.where(decisions.c.decided_at <= until)
    newest: dict[tuple[str, str], Decision] = {}
    rows = await connection.stream(query.order_by(decisions.c.ordinal).execution_options(yield_per=_PAGE))
    async for row in rows.mappings():
        decision = _decision(row, None)
        if is_by(decision):
            newest[decision.view, decision.parent] = decision
    return [newest[place] for place in sorted(newest)]


async def read_called(database: Database, scope: Scope) -> AsyncGenerator[Decision]:
    """Every decision for which a view was called, in the order of the snapshots that they saw; a page is in memory."""
    table = decisions.c
    query = (
        select(decisions)
        .where(table.scope == scope.number, table.is_called)
        .order_by(table.snapshot, table.ordinal)
        .execution_options(yield_per=_PAGE)
    )
    async with database.reading() as connection, connection.stream(query) as rows:
        async for row in rows.mappings():
            yield _decision(row, None)


async def read_intents(connection: AsyncConnection, scope: Scope, keys: Sequence[str]) -> dict[str, PastIntent]:
    """Intents by idempotency key, in the order of the keys; those deleted since are missing."""
    return await _read_by_key(connection, scope, keys, PastIntent)


async def read_asked(connection: AsyncConnection, scope: Scope, keys: Sequence[str]) -> dict[str, Asked]:
    """The same, as decisions asked for them."""
    return await _read_by_key(connection, scope, keys, Asked)


async def _read_by_key(
    connection: AsyncConnection, scope: Scope, keys: Sequence[str], kind: type[IntentT]
) -> dict[str, IntentT]:
    columns = [intents.c[name] for name in kind.__struct_fields__]
    rows = await connection.execute(
        select(*columns).where(intents.c.scope == scope.number, one_of(connection.dialect, intents.c.key, keys))
    )
    found = {row["key"]: kind(**row) for row in rows.mappings()}
    return {key: found[key] for key in keys if key in found}


async def read_unconsumed(connection: AsyncConnection, scope: Scope, view: str, parent: str) -> tuple[Causes, Causes]:
    """Records that asked for a level since its last decision: in vain, and those that wait to be looked at."""
    level, wake = levels.c, wakeups.c
    looked = await connection.scalar(
        select(level.suppressed).where(level.scope == scope.number, level.view == view, level.parent == parent)
    )
    waiting = await connection.scalar(
        select(wake.causes).where(wake.scope == scope.number, wake.view == view, wake.parent == parent)
    )
    return read_causes(looked or ""), read_causes(waiting or "")


async def read_objects_read(connection: AsyncConnection, scope: Scope, view: str, parent: str, most: int) -> list[str]:
    """Objects that are under the keys which a level reads, by name."""
    key, entry = dependencies.c, index_entries.c
    rows = await connection.execute(
        select(entry.object)
        .join(dependencies, (key.scope == entry.scope) & (key.index == entry.index))
        .where(
            key.scope == scope.number,
            key.view == view,
            key.parent == parent,
            (key.key == entry.key) | key.key.startswith(WHOLE_INDEX),
        )
        .distinct()
        .limit(most)
    )
    return sorted(rows.scalars())


async def read_levels_reading(connection: AsyncConnection, scope: Scope, name: str, most: int) -> list[ViewParent]:
    """Levels that read what an index has of an object, by view and parent."""
    key, entry = dependencies.c, index_entries.c
    rows = await connection.execute(
        select(key.view, key.parent)
        .join(index_entries, (key.scope == entry.scope) & (key.index == entry.index))
        .where(
            key.scope == scope.number, entry.object == name, (key.key == entry.key) | key.key.startswith(WHOLE_INDEX)
        )
        .distinct()
        .order_by(key.view, key.parent)
        .limit(most)
    )
    return [(row.view, row.parent) for row in rows]


async def read_object_names(connection: AsyncConnection, scope: Scope, resource: str, name: str) -> list[str]:
    """Objects of a resource with that name, in any namespace, that exist or were written."""
    there, written = objects.c, intents.c
    known = await connection.execute(
        select(there.object).where(there.scope == scope.number, there.resource == resource, there.name == name)
    )
    targets = await connection.execute(
        select(written.target)
        .where(
            written.scope == scope.number,
            written.target.startswith(f"{resource}/", autoescape=True),
            written.target.endswith(f"/{name}", autoescape=True),
        )
        .distinct()
    )
    return sorted({*known.scalars(), *targets.scalars()})


async def read_resources(connection: AsyncConnection, scope: Scope) -> dict[str, bool]:
    """Resources that the code as it is reads, by name, and whether views decide on their objects."""
    rows = await connection.execute(
        select(handlers.c.resource, handlers.c.kind).where(handlers.c.scope == scope.number)
    )
    found: dict[str, bool] = {}
    for resource, kind in sorted((row.resource, row.kind) for row in rows):
        found[resource] = found.get(resource, False) or kind == "view"
    return found


async def read_intents_on(connection: AsyncConnection, scope: Scope, target: str) -> list[PastIntent]:
    """Intents that wrote to an object, or to those whose names end so, or were to, oldest first."""
    table = intents.c
    columns = [table[name] for name in PastIntent.__struct_fields__]
    rows = await connection.execute(
        select(*columns)
        .where(table.scope == scope.number, _named(table.target, target))
        .order_by(table.decided_at, table.round, table.ordinal)
    )
    return [PastIntent(**row) for row in rows.mappings()]


def _named(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    if name.startswith("/"):
        return column.endswith(name, autoescape=True)
    return column.startswith(name, autoescape=True) if name.endswith("/") else column == name


def _decision(row: Any, before: Decision | None) -> Decision:
    values: dict[str, Any] = {name: row[name] for name in Decision.__struct_fields__}
    causes, suppressed = read_causes(row["causes"], newest=row["cause"]), read_causes(row["suppressed"])
    known = {*suppressed.sequences, *(before.causes.sequences if before else ())}
    values["causes"] = Causes(tuple(each for each in causes.sequences if each not in known), causes.has_more)
    values["suppressed"] = suppressed
    values["reads"] = [_read(*each) for each in _READS.decode(row["reads"])]
    values["basis"] = _BASIS.decode(row["basis"])
    values["intents"] = _KEYS.decode(row["intents"])
    return Decision(**values)


def _read(index: str, key: str, version: int, kept: Raw) -> Read:
    content = bytes(kept)
    if content == b"null":
        return Read(index, key, version, b"[]" if version <= 0 else None)
    return Read(index, key, version, content)
