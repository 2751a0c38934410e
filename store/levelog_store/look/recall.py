"""Reads past decisions with their intents. Reads only."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct
from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, Basis, Decision, PastIntent, Read, WithWrites
from levelog_store.dialects import PAGED, is_of_resource, one_of, read_as
from levelog_store.fold.changes import Causes, read_causes
from levelog_store.rows import WHOLE_INDEX, Scope
from levelog_store.tables import decisions, dependencies, index_entries, intents, levels, objects, wakeups

_READS = msgspec.json.Decoder(list[tuple[str, str, int, Raw]])
_BASIS = msgspec.json.Decoder(Basis)
_KEYS = msgspec.json.Decoder(list[str])
_IS_OF_INDEX: Final = and_(dependencies.c.scope == index_entries.c.scope, dependencies.c.index == index_entries.c.index)
_IS_READ: Final = or_(dependencies.c.key == index_entries.c.key, dependencies.c.key.startswith(WHOLE_INDEX))
"""Some level depends on the key of an entry, or on all of its index."""

IntentT = TypeVar("IntentT", PastIntent, Asked)


async def read_decisions(connection: AsyncConnection, scope: Scope, parents: Sequence[str]) -> list[Decision]:
    """Decisions on the levels of parents, by parent, view and order.

    `parents` are names, how names begin if they end with a slash, or how they end if they begin with one; the same one
    may come for each of its writes. A record that asked again while a decision was written belongs to that one alone.
    """
    table = decisions.c
    are_named = or_(*(_named(table.parent, parent) for parent in {*parents}))
    query = select(decisions).where(table.scope == scope.number, are_named)
    rows = await connection.execute(query.order_by(table.parent, table.view, table.ordinal))
    found: list[Decision] = []
    for row in rows.mappings():
        before = found[-1] if found and (found[-1].view, found[-1].parent) == (row["view"], row["parent"]) else None
        found.append(decision_of(row, before))
    return found


async def read_about(database: Database, scope: Scope, names: Sequence[str]) -> AsyncGenerator[WithWrites]:
    """Decisions on parents of some names, and on those that something of these names was written for.

    In the order of the snapshots that they saw. Names are as for `read_decisions`.
    """
    table, written = decisions.c, intents.c
    are_targets = or_(*(_named(written.target, name) for name in names))
    writers = select(written.parent).where(written.scope == scope.number, are_targets)
    are_asked = or_(table.parent.in_(writers), *(_named(table.parent, name) for name in names))
    newest: dict[tuple[str, str], Decision] = {}

    def decided(row: Mapping[Any, Any]) -> Decision:
        level = row["view"], row["parent"]
        newest[level] = decision_of(row, newest.get(level))
        return newest[level]

    async with aclosing(_with_writes(database, scope, are_asked, decided)) as found:
        async for each in found:
            yield each


async def read_called(database: Database, scope: Scope) -> AsyncGenerator[WithWrites]:
    """Every decision for which a view was called, in the order of the snapshots that they saw."""
    async with aclosing(_with_writes(database, scope, decisions.c.is_called, decision_of)) as found:
        async for each in found:
            yield each


async def _with_writes(
    database: Database, scope: Scope, are_asked: ColumnElement[bool], decided: Callable[[Mapping[Any, Any]], Decision]
) -> AsyncGenerator[WithWrites]:
    """Decisions with their writes; a page is in memory."""
    table = decisions.c
    query = select(decisions).where(table.scope == scope.number, are_asked).order_by(table.snapshot, table.ordinal)
    async with database.reading() as connection, connection.stream(query, execution_options=PAGED) as rows:
        async for page in rows.mappings().partitions():
            found = [decided(row) for row in page]
            keys = [key for each in found for key in each.intents]
            async with database.reading() as another:
                asked = await read_intents(Asked, another, scope, keys) if keys else {}
            for each in found:
                yield each, [asked[key] for key in each.intents if key in asked]


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
    rows = await connection.stream(query.order_by(decisions.c.ordinal), execution_options=PAGED)
    async for row in rows.mappings():
        decision = decision_of(row)
        if is_by(decision):
            newest[decision.view, decision.parent] = decision
    return [newest[place] for place in sorted(newest)]


async def read_intents(
    kind: type[IntentT], connection: AsyncConnection, scope: Scope, keys: Sequence[str]
) -> dict[str, IntentT]:
    """Intents by idempotency key, in the order of the keys; those deleted since are missing."""
    are_asked = one_of(connection.dialect, intents.c.key, keys)
    found = {row.key: row for row in await read_as(kind, connection, scope, intents, are_asked)}
    return {key: found[key] for key in keys if key in found}


async def read_parent(connection: AsyncConnection, scope: Scope, ordinal: int) -> str:
    """The parent that a decision was made on; empty: there is no such decision of the application."""
    is_asked = decisions.c.scope == scope.number, decisions.c.ordinal == ordinal
    return await connection.scalar(select(decisions.c.parent).where(*is_asked)) or ""


async def read_unconsumed(connection: AsyncConnection, scope: Scope, view: str, parent: str) -> tuple[Causes, Causes]:
    """Records that asked for a level since its last decision: in vain, and those that wait to be looked at."""
    found: list[Causes] = []
    for table, column in ((levels.c, levels.c.suppressed), (wakeups.c, wakeups.c.causes)):
        is_level = table.scope == scope.number, table.view == view, table.parent == parent
        found.append(read_causes(await connection.scalar(select(column).where(*is_level)) or ""))
    return found[0], found[1]


class Woke(Struct, frozen=True):
    """What a record that woke levels came to."""

    led: bool = False
    """A decision names it as a cause; else it was looked at, and nothing was left of it."""
    wrote: bool = False


async def read_woke(found: dict[int, Woke], database: Database, scope: Scope, since: datetime | None) -> None:
    """Add records that woke levels, by sequence; those that only decisions before a moment have seen are missing."""
    table = decisions.c
    query = select(table.causes, table.cause, table.suppressed, table.intents).where(table.scope == scope.number)
    if since is not None:
        query = query.where(table.decided_at >= since)
    async with database.reading() as connection:
        in_vain = select(levels.c.suppressed).where(levels.c.scope == scope.number, levels.c.suppressed != "")
        for text in (await connection.execute(in_vain)).scalars():
            take_woke(found, (), read_causes(text).sequences, has_written=False)
        rows = await connection.stream(query, execution_options=PAGED)
        async for causes, cause, suppressed, keys in rows:
            vain = read_causes(suppressed).sequences
            led = set(read_causes(causes, newest=cause).sequences) - set(vain)
            take_woke(found, led, vain, has_written=bool(_KEYS.decode(keys)))


def take_woke(found: dict[int, Woke], led: Iterable[int], vain: Iterable[int], *, has_written: bool) -> None:
    """Note the causes of a decision, and the records that were looked at in vain before it."""
    for sequence in led:
        found[sequence] = Woke(led=True, wrote=has_written or found.get(sequence, _IN_VAIN).wrote)
    for sequence in vain:
        found.setdefault(sequence, _IN_VAIN)


_IN_VAIN: Final = Woke()


async def read_objects_read(connection: AsyncConnection, scope: Scope, view: str, parent: str, most: int) -> list[str]:
    """Objects that are under the keys which a level reads, by name."""
    key, entry = dependencies.c, index_entries.c
    query = select(entry.object).join(dependencies, _IS_OF_INDEX).where(_IS_READ, key.scope == scope.number)
    of_level = query.where(key.view == view, key.parent == parent).distinct().limit(most)
    return sorted((await connection.execute(of_level)).scalars())


async def read_bodies(connection: AsyncConnection, scope: Scope, resource: str, most: int) -> list[bytes]:
    """Some objects of a resource, as they were recorded."""
    of_resource = objects.c.scope == scope.number, objects.c.resource == resource
    return list((await connection.execute(select(objects.c.body).where(*of_resource).limit(most))).scalars())


async def read_intents_on(connection: AsyncConnection, scope: Scope, target: str) -> list[PastIntent]:
    """Intents that wrote to an object, or to those whose names end so, or were to, oldest first."""
    table = intents.c
    order = table.decided_at, table.round, table.ordinal
    return await read_as(PastIntent, connection, scope, intents, _named(table.target, target), order=order)


def _named(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    if name.startswith("/"):
        return column.endswith(name, autoescape=True)
    return is_of_resource(column, name[:-1]) if name.endswith("/") else column == name


def decision_of(row: Mapping[Any, Any], before: Decision | None = None) -> Decision:
    """What a row of `decisions` says; `before` is the decision before it on the level, if there is one."""
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
