"""The inputs of decisions: parents, levels, index entries, intents and their targets."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Dialect,
    Select,
    and_,
    case,
    func,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.actuate.claims import CLAIMED, WRITTEN, is_unsettled
from levelog_store.decide.decisions import OpenIntent, PendingWake, request_of
from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    constant,
    each_of,
    fields,
    mappings,
    named,
    of_pairs,
    one_of,
    pairs,
    run,
)
from levelog_store.fold.levelwrites import levels_as_left
from levelog_store.rows import (
    ERRORS,
    UNSETTLED,
    Bucket,
    IndexKey,
    LevelRow,
    Scope,
    StoredObject,
    ViewParent,
    WholeIndex,
    in_turn,
    whole_index_key,
)
from levelog_store.tables import (
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
)


def wakes_in_turn(wakes: Iterable[PendingWake]) -> list[PendingWake]:
    """Take wakes of each namespace in turn, each with its oldest cause first."""
    return in_turn(sorted(wakes, key=lambda wake: (wake.cause, wake.view, wake.parent)), lambda wake: wake.parent)


async def read_objects(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> dict[str, StoredObject]:
    """Objects by name."""
    rows = mappings(await run(connection, scope, _objects, names=names))
    return {row["object"]: StoredObject(**row) for row in rows}


async def read_calling(connection: AsyncConnection, scope: Scope, uids: Collection[str]) -> set[str]:
    """The parents with these uids that are called for: what a call did is known once its receipt is folded."""
    is_unheard = and_(intents.c.state == WRITTEN, intents.c.is_folded.is_(False))
    are_called = intents.c.verb == "call", is_unsettled(intents), or_(intents.c.state == CLAIMED, is_unheard)
    is_named = one_of(connection.dialect, intents.c.parent_uid, uids)
    found = select(intents.c.parent_uid).where(intents.c.scope == scope.number, is_named, *are_called)
    return set(await connection.scalars(found))


@built_once
def _objects(dialect: Dialect) -> Select[Any]:
    return select(*fields(StoredObject, objects)).where(named(dialect, objects.c.object, "names"))


async def read_levels(
    connection: AsyncConnection, scope: Scope, parents: Collection[str]
) -> dict[ViewParent, LevelRow]:
    """Levels of the parents, of all views; nothing is known of those that changed code has not decided on."""
    rows = mappings(await run(connection, scope, _levels, parents=parents))
    return {(row["view"], row["parent"]): LevelRow(**row) for row in rows}


@built_once
def _levels(dialect: Dialect) -> Select[Any]:
    return levels_as_left(LevelRow.__struct_fields__).where(named(dialect, levels.c.parent, "parents"))


async def read_buckets(connection: AsyncConnection, scope: Scope, keys: Sequence[IndexKey]) -> dict[IndexKey, Bucket]:
    """Values and version of each key, in one snapshot; keys without values are included."""
    if not keys:
        return {}
    rows = await run(connection, scope, _buckets, pairs=keys)
    versions: dict[IndexKey, int] = {}
    values: dict[IndexKey, list[bytes]] = {}
    for index, key, changed, name, value in rows:
        versions[index, key] = -1 if changed is None else changed
        held = values.setdefault((index, key), [])
        if name is not None:
            held.append(value)
    return {place: Bucket(versions[place], tuple(held)) for place, held in values.items()}


@built_once
def _buckets(dialect: Dialect) -> Select[str, str, int | None, str | None, bytes]:
    wanted, entry, version = pairs(dialect), index_entries.c, key_versions.c
    same_entry = and_(entry.scope == OF_SCOPE, entry.index == wanted.c.first, entry.key == wanted.c.second)
    same_version = and_(version.scope == OF_SCOPE, version.index == wanted.c.first, version.key == wanted.c.second)
    return (
        select(wanted.c.first, wanted.c.second, version.version, entry.object, entry.value)
        .select_from(wanted.outerjoin(key_versions, same_version).outerjoin(index_entries, same_entry))
        .order_by(wanted.c.first, wanted.c.second, entry.object, entry.ordinal)
    )


async def read_versions(connection: AsyncConnection, scope: Scope, keys: Sequence[IndexKey]) -> dict[IndexKey, int]:
    """Version of each key that has one."""
    table = key_versions.c
    rows = await run(connection, scope, of_pairs, table.index, table.key, table.version, pairs=keys)
    return {(index, key): version for index, key, version in rows}


async def read_whole_index(connection: AsyncConnection, scope: Scope, index: str) -> WholeIndex:
    """Every bucket of an index; the versions are read first, so that a change in between is seen as one."""
    places = [(index, whole_index_key(partition)) for partition in range(scope.partitions)]
    parts = await read_buckets(connection, scope, places)
    table = index_entries.c
    rows = await connection.execute(
        select(table.key, table.value)
        .where(table.scope == scope.number, table.index == index, func.substr(table.key, 1, 1) != ERRORS)
        .order_by(table.key, table.object, table.ordinal)
    )
    buckets: dict[str, list[bytes]] = {}
    for key, value in rows:
        buckets.setdefault(key, []).append(value)
    return WholeIndex(
        versions={key: bucket.version for (_, key), bucket in parts.items()},
        buckets={key: tuple(values) for key, values in buckets.items()},
    )


class _Answered(Struct):
    """What counts of a receipt here."""

    answer: int = 0


_answered: Final = msgspec.json.Decoder(_Answered)


_IS_OPEN: Final = and_(
    intents.c.state != "superseded",
    intents.c.verb != "event",
    or_(intents.c.round == levels.c.round, intents.c.state.in_(UNSETTLED)),
)
"""It is of its level's last round, or older and not settled."""
_OF_OPEN: Final = (
    *fields(OpenIntent, intents),
    intents.c.claim,
    case((intents.c.outcome == "failed", intents.c.receipt)).label("receipt"),
    *(case((intents.c.verb == "call", intents.c[name])).label(name) for name in ("body", "options")),
    intents.c.round,
    intents.c.ordinal,
)


def _is_of(row: Any, wanted: Any) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` is of the level that a pair names."""
    return and_(row.scope == OF_SCOPE, row.view == wanted.c.first, row.parent == wanted.c.second)


class SqlIntent(Struct, frozen=True):
    """An intent as SQL has it, with what tells which of its receipts counts."""

    uid: str
    """Uid of its parent."""
    owner: str
    intent: OpenIntent


class KeptIntent(SqlIntent, frozen=True):
    """The same with what orders it among others, and what it writes."""

    partition: int
    round: int
    ordinal: int
    decided_at: datetime | None
    body: bytes


async def read_kept_intents(connection: AsyncConnection, scope: Scope) -> list[KeptIntent]:
    """All intents, in the order in which they were decided."""
    table = intents.c
    beside = table.partition, table.round, table.ordinal, table.decided_at, table.body
    found = select(*_OF_OPEN, table.parent_uid, table.owner).where(table.scope == scope.number)
    kept = select(table.key, *beside).where(table.scope == scope.number).order_by(table.decided_at, *beside[1:3])
    told = {each.intent.key: each for each in map(_told, mappings(await connection.execute(found)))}
    rows = [(told[key], values) for key, *values in await connection.execute(kept)]
    return [KeptIntent(each.uid, each.owner, each.intent, *values) for each, values in rows]


async def read_intents_of(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]
) -> dict[ViewParent, list[SqlIntent]]:
    """Intents of each level's last round, and older ones that are not settled.

    What is held of their targets is left to the caller.
    """
    found: dict[ViewParent, list[SqlIntent]] = {}
    rows = mappings(await run(connection, scope, _intents_of, pairs=of))
    for row in sorted(rows, key=itemgetter("round", "ordinal")):
        found.setdefault((row["view"], row["parent"]), []).append(_told(row))
    return found


_BESIDE: Final = ("parent_uid", "owner", "claim", "receipt", "body", "options", "round", "ordinal")
"""Columns of an intent that its `OpenIntent` has in another form, or not."""


def _told(row: dict[str, Any]) -> SqlIntent:
    uid, owner, claim, receipt, body, options, *_ = [row.pop(name) for name in _BESIDE]
    answer = _answered.decode(receipt).answer if receipt else 0
    request = request_of(row["verb"], row["target"], body, options)
    return SqlIntent(uid, owner, OpenIntent(**row, was_claimed=claim != 0, answer=answer, request=request))


@built_once
def _intents_of(dialect: Dialect) -> Select[Any]:
    wanted, table = pairs(dialect), intents.c
    of_level = wanted.outerjoin(levels, _is_of(levels.c, wanted))
    return (
        select(*_OF_OPEN, table.parent_uid, table.owner)
        .select_from(of_level.outerjoin(intents, and_(_is_of(table, wanted), _IS_OPEN)))
        .where(func.coalesce(table.scope, -1) == OF_SCOPE)
    )


async def read_last_rounds(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]
) -> dict[tuple[str, str, str], int]:
    """The last round of which the table has intents, by view, parent and the parent's uid."""
    if not of:
        return {}
    rows = await run(connection, scope, _last_rounds, pairs=of)
    return {(view, parent, uid): last for view, parent, uid, last in rows if uid is not None}


@built_once
def _last_rounds(dialect: Dialect) -> Select[Any, Any, Any, Any]:
    wanted, table = pairs(dialect), intents.c
    return (
        select(wanted.c.first, wanted.c.second, table.parent_uid, func.max(table.round))
        .select_from(wanted.outerjoin(intents, _is_of(table, wanted)))
        .group_by(wanted.c.first, wanted.c.second, table.parent_uid)
    )


async def read_last_applied(connection: AsyncConnection, scope: Scope, targets: Collection[str]) -> dict[str, bytes]:
    """Body of the newest apply to each target that was not superseded."""
    rows = await run(connection, scope, _last_applied, targets=targets)
    return {row.target: row.body for row in rows if row.body is not None}


@built_once
def _last_applied(dialect: Dialect) -> Select[str, bytes]:
    """The newest of each target by an index, however many there were before."""
    table, target = intents.c, each_of(dialect, "targets")
    newest = (
        select(table.body)
        .where(
            table.scope == OF_SCOPE,
            table.target == target,
            table.verb == constant("apply"),  # the condition of the index
            table.state.in_(("claimed", "written", "settled", "satisfied")),
        )
        .order_by(table.decided_at.desc(), table.round.desc(), table.ordinal.desc())
        .limit(1)
        .scalar_subquery()
    )
    return select(target.label("target"), newest.label("body"))
