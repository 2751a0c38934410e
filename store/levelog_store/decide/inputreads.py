"""The inputs of decisions: wakeups, parents, levels, index entries, intents and their targets."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Dialect,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_store.decide.decisions import OpenIntent, PendingWake, request_of
from levelog_store.dialects import (
    OF_SCOPE,
    built_once,
    constant,
    each_of,
    fields,
    mappings,
    named,
    namespace_column,
    now,
    of_pairs,
    one_of_named,
    pairs,
    run,
)
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
    namespace_of,
    whole_index_key,
)
from levelog_store.tables import (
    checkpoints,
    dependencies,
    index_entries,
    intents,
    key_versions,
    levels,
    objects,
    tombstones,
    wakeups,
)
from levelog_store.unions import Part, Rows, read_rows


class Inputs(Struct):
    """What decisions on some levels rest on, but for what the keys hold that they read."""

    has_dependencies: bool
    """Some view reads keys."""
    parents: dict[str, StoredObject]
    """Those that are known already are not read."""
    levels: dict[ViewParent, LevelRow] = {}
    """Of the parents, of all views."""
    intents: dict[ViewParent, list[OpenIntent]] = {}
    """Of each level's last round, and older ones that are not settled; no level waits for Events."""
    dependencies: dict[ViewParent, dict[IndexKey, int]] = {}
    """As `read_dependencies` gives them."""
    known: set[ViewParent] = set()

    async def read(self, connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]) -> None:
        """Read what is not known yet of these levels."""
        if missing := [level for level in of if level not in self.known]:
            self.take(missing, *await read_rows(connection, scope, *self.parts(missing)))

    def parts(self, of: Sequence[ViewParent]) -> Sequence[Part | None]:
        """What is read for these levels."""
        parents = {parent for _, parent in of}
        others = sorted(parents - self.parents.keys())
        return (
            (_parents, {"names": others}) if others else None,
            (_levels, {"parents": sorted(parents)}),
            (_open_intents, {"pairs": of}),
            (_dependencies, {"pairs": of}) if self.has_dependencies else None,
        )

    def take(self, of: Sequence[ViewParent], parents: Rows, levels: Rows, intents: Rows, dependencies: Rows) -> None:
        """Take the rows of these parts."""
        self.known |= {*of}
        self.parents |= _as_objects(parents)
        self.levels |= _as_levels(levels)
        self.intents |= _as_intents(intents)
        self.dependencies |= _as_dependencies(dependencies)


NEWEST: Final = 2000
"""Wakeups that are looked at from the end, for those of namespaces that have none at the beginning."""


async def read_wakes(
    connection: AsyncConnection,
    scope: Scope,
    partitions: Collection[int],
    views: Collection[str],
    limit: int,
    *,
    at: datetime | None = None,
    of: Sequence[ViewParent] = (),
    into: Inputs | None = None,
) -> tuple[list[PendingWake], datetime]:
    """Due wakeups at a time (by default now, by the database's clock), oldest cause first; and that time.

    If there are more than the `limit`, of each namespace in turn, also of those whose wakeups are among the newest.

    Plus the wakeups of the levels `of`, due or not, which do not count against the `limit`. Their other inputs are read
    in the same statement, `into` inputs.
    """
    values = {"partitions": partitions, "views": views, "limit": limit, "pairs": of}
    part: Part = (_wakes_now, values) if at is None else (_wakes_at, values | {"at": at})
    parts = into.parts(of) if into is not None and of else ()
    rows, *others = await read_rows(connection, scope, part, *parts)
    if into is not None and others:
        into.take(of, *others)
    found, moment, carried = _as_wakes(rows), rows[0]["moment"], frozenset(of)
    due = [wake for level, wake in found.items() if level not in carried]
    if len(due) >= limit:
        values |= {"at": moment, "namespaces": {namespace_of(wake.parent) for wake in due}}
        newest = _as_wakes(mappings(await run(connection, scope, _wakes_of_others, **values)))
        due += [wake for level, wake in newest.items() if level not in carried]
    return wakes_in_turn([*wakes_in_turn(due)[:limit], *(found[level] for level in found.keys() & carried)]), moment


def _as_wakes(rows: Rows) -> dict[ViewParent, PendingWake]:
    return {
        (row["view"], row["parent"]): PendingWake(**{name: row[name] for name in PendingWake.__struct_fields__})
        for row in rows
        if row["view"] is not None
    }


def wakes_in_turn(wakes: Iterable[PendingWake]) -> list[PendingWake]:
    """Of each namespace one after the other, each with its oldest cause first."""
    return in_turn(sorted(wakes, key=lambda wake: (wake.cause, wake.view, wake.parent)), lambda wake: wake.parent)


@built_once
def _wakes(dialect: Dialect, *, is_now: bool) -> Select[Any]:
    """Two parts, each in the order of an index, so that what is not handed out is not looked at, and those named.

    With the moment in a row of its own if there are none.
    """
    table = wakeups.c
    at = now(dialect) if is_now else bindparam("at", type_=table.due_at.type)
    clock = select(at.label("moment")).cte("clock")
    limit = bindparam("limit", type_=Integer)
    columns = fields(PendingWake, wakeups)
    are_wanted = (one_of_named(dialect, table.partition, "partitions"), one_of_named(dialect, table.view, "views"))
    wanted = select(*columns).where(table.scope == OF_SCOPE, *are_wanted)
    by_cause = (table.cause, table.view, table.parent)
    fresh = wanted.where(table.due_at.is_(None)).order_by(*by_cause).limit(limit).cte("fresh")
    moment = select(clock.c.moment).scalar_subquery()
    due = wanted.where(table.due_at <= moment).order_by(table.due_at).limit(limit).cte("due")
    asked = of_pairs(dialect, table.view, table.parent).with_only_columns(*columns).where(*are_wanted)
    found = select(fresh).union_all(select(due), asked).subquery("found")
    return select(found, clock.c.moment).select_from(clock.outerjoin(found, true()))


@built_once
def _wakes_of_others(dialect: Dialect) -> Select[Any]:
    """Among the newest, those of other namespaces than `namespaces`."""
    table = wakeups.c
    are_wanted = (one_of_named(dialect, table.partition, "partitions"), one_of_named(dialect, table.view, "views"))
    wanted = select(*fields(PendingWake, wakeups)).where(table.scope == OF_SCOPE, *are_wanted)
    by_cause = (table.cause.desc(), table.view.desc(), table.parent.desc())
    fresh = wanted.where(table.due_at.is_(None)).order_by(*by_cause).limit(NEWEST).cte("fresh")
    is_due = table.due_at <= bindparam("at", type_=table.due_at.type)
    due = wanted.where(is_due).order_by(table.due_at.desc()).limit(NEWEST).cte("due")
    found = select(fresh).union_all(select(due)).subquery("found")
    is_known = one_of_named(dialect, namespace_column(dialect, found.c.parent), "namespaces")
    return select(found).where(~is_known).limit(bindparam("limit", type_=Integer))


_wakes_now: Final = partial(_wakes, is_now=True)
_wakes_at: Final = partial(_wakes, is_now=False)


async def read_generations(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]
) -> dict[ViewParent, int]:
    """What the wakeup of each level is known by now; levels without one are left out."""
    table = wakeups.c
    rows = await run(connection, scope, of_pairs, table.view, table.parent, table.generation, pairs=of)
    return {(view, parent): generation for view, parent, generation in rows}


async def read_due(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent], at: datetime
) -> dict[ViewParent, int]:
    """Those of the levels that are to be decided on by then, with the newest record that asks for it."""
    return {(view, parent): cause for view, parent, cause in await run(connection, scope, _due, pairs=of, at=at)}


@built_once
def _due(dialect: Dialect) -> Select[Any]:
    table = wakeups.c
    is_due = table.due_at.is_(None) | (table.due_at <= bindparam("at", type_=table.due_at.type))
    return of_pairs(dialect, table.view, table.parent, table.cause).where(is_due)


async def read_next_due(
    connection: AsyncConnection, scope: Scope, partitions: Collection[int]
) -> tuple[datetime, datetime] | None:
    """Time of the first wakeup that waits for it, and the database's time now; None if none waits."""
    row = (await run(connection, scope, _next_due, partitions=partitions)).first()
    return None if row is None else (row.due_at, row.now)


@built_once
def _next_due(dialect: Dialect) -> Select[datetime, datetime]:
    table = wakeups.c
    return (
        select(table.due_at, now(dialect).label("now"))
        .where(named(dialect, table.partition, "partitions"), table.due_at.is_not(None))
        .order_by(table.due_at)
        .limit(1)
    )


async def read_parents(connection: AsyncConnection, scope: Scope, names: Collection[str]) -> dict[str, StoredObject]:
    """Objects by name."""
    (rows,) = await read_rows(connection, scope, (_parents, {"names": names}))
    return _as_objects(rows)


def _as_objects(rows: Rows) -> dict[str, StoredObject]:
    return {row["object"]: StoredObject(**row) for row in rows}


@built_once
def _parents(dialect: Dialect) -> Select[Any]:
    return select(*fields(StoredObject, objects)).where(named(dialect, objects.c.object, "names"))


async def read_levels(
    connection: AsyncConnection, scope: Scope, parents: Collection[str]
) -> dict[ViewParent, LevelRow]:
    """Levels of the parents, of all views."""
    (rows,) = await read_rows(connection, scope, (_levels, {"parents": parents}))
    return _as_levels(rows)


def _as_levels(rows: Rows) -> dict[ViewParent, LevelRow]:
    return {(row["view"], row["parent"]): LevelRow(**row) for row in rows}


@built_once
def _levels(dialect: Dialect) -> Select[Any]:
    return select(*fields(LevelRow, levels)).where(named(dialect, levels.c.parent, "parents"))


async def read_dependencies(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]
) -> dict[ViewParent, dict[IndexKey, int]]:
    """Keys that each level read when it was evaluated last, with the version of each now; -1: it has none."""
    (rows,) = await read_rows(connection, scope, (_dependencies, {"pairs": of}))
    return _as_dependencies(rows)


def _as_dependencies(rows: Rows) -> dict[ViewParent, dict[IndexKey, int]]:
    found: dict[ViewParent, dict[IndexKey, int]] = {}
    for row in rows:
        version = -1 if row["version"] is None else row["version"]
        found.setdefault((row["view"], row["parent"]), {})[row["index"], row["key"]] = version
    return found


@built_once
def _dependencies(dialect: Dialect) -> Select[Any]:
    table, version = dependencies.c, key_versions.c
    same = and_(version.scope == OF_SCOPE, version.index == table.index, version.key == table.key)
    columns = table.view, table.parent, table.index, table.key, version.version
    return of_pairs(dialect, *columns).outerjoin(key_versions, same)


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
        .where(table.scope == scope.number, table.index == index, table.key != ERRORS)
        .order_by(table.key, table.object, table.ordinal)
    )
    buckets: dict[str, list[bytes]] = {}
    for key, value in rows:
        buckets.setdefault(key, []).append(value)
    return WholeIndex(
        versions={key: bucket.version for (_, key), bucket in parts.items()},
        buckets={key: tuple(values) for key, values in buckets.items()},
    )


def _as_intents(rows: Rows) -> dict[ViewParent, list[OpenIntent]]:
    found: dict[ViewParent, list[OpenIntent]] = {}
    for row in sorted(rows, key=itemgetter("round", "ordinal")):
        receipt, body, options, *_ = [row.pop(name) for name in ("receipt", "body", "options", "round", "ordinal")]
        answer = _answered.decode(receipt).answer if receipt else 0
        request = request_of(row["verb"], row["target"], body, options)
        found.setdefault((row["view"], row["parent"]), []).append(OpenIntent(**row, answer=answer, request=request))
    return found


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
    *(intents.c[name] for name in OpenIntent.__struct_fields__ if name in intents.c),
    case((intents.c.outcome == "failed", intents.c.receipt)).label("receipt"),
    *(case((intents.c.verb == "call", intents.c[name])).label(name) for name in ("body", "options")),
    intents.c.round,
    intents.c.ordinal,
)
"""What `_as_intents` takes."""


def _is_of(row: Any, wanted: Any) -> ColumnElement[bool]:
    """Condition that a row of `OF_SCOPE` is of the level that a pair names."""
    return and_(row.scope == OF_SCOPE, row.view == wanted.c.first, row.parent == wanted.c.second)


@built_once
def _open_intents(dialect: Dialect) -> Select[Any]:
    """Outer joins, so that SQLite looks up one after the other as they stand here; see `of_pairs`."""
    wanted, table, held, level = pairs(dialect), intents.c, objects.c, levels.c
    parent = objects.alias()
    is_parent = and_(parent.c.scope == OF_SCOPE, parent.c.object == wanted.c.second)
    is_of_incarnation = table.parent_uid == func.coalesce(level.parent_uid, parent.c.uid)
    return (
        select(
            *_OF_OPEN,
            held.uid.label("held_uid"),
            held.version.label("held_version"),
            held.is_deleting.label("held_is_deleting"),
            func.coalesce(held.manager, "").label("held_manager"),
            tombstones.c.version.label("buried_version"),
        )
        .select_from(
            wanted.outerjoin(levels, _is_of(level, wanted))
            .outerjoin(parent, is_parent)
            .outerjoin(intents, and_(_is_of(table, wanted), _IS_OPEN, is_of_incarnation))
            .outerjoin(objects, and_(held.scope == OF_SCOPE, held.object == table.target))
            .outerjoin(tombstones, and_(tombstones.c.scope == OF_SCOPE, tombstones.c.object == table.target))
        )
        .where(func.coalesce(table.scope, -1) == OF_SCOPE)
    )


async def read_intents_of(
    connection: AsyncConnection, scope: Scope, of: Sequence[ViewParent]
) -> dict[ViewParent, list[tuple[str, OpenIntent]]]:
    """Intents of each level's last round, and older ones that are not settled, with the uid of their parent.

    What is held of their targets is left to the caller.
    """
    found: dict[ViewParent, list[tuple[str, OpenIntent]]] = {}
    rows = mappings(await run(connection, scope, _intents_of, pairs=of))
    for row in sorted(rows, key=itemgetter("round", "ordinal")):
        uid = row.pop("parent_uid")
        [(level, [intent])] = _as_intents([row]).items()
        found.setdefault(level, []).append((uid, intent))
    return found


@built_once
def _intents_of(dialect: Dialect) -> Select[Any]:
    wanted, table = pairs(dialect), intents.c
    of_level = wanted.outerjoin(levels, _is_of(levels.c, wanted))
    return (
        select(*_OF_OPEN, table.parent_uid)
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


async def read_checkpoints(connection: AsyncConnection, scope: Scope) -> dict[int, int]:
    """Sequence up to which each partition is folded."""
    return dict((await run(connection, scope, _checkpoints)).all())


@built_once
def _checkpoints(_: Dialect) -> Select[int, int]:
    table = checkpoints.c
    return select(table.partition, table.sequence).where(table.scope == OF_SCOPE)


async def read_last_record(connection: AsyncConnection, scope: Scope) -> tuple[int, str]:
    """Sequence and id of the last record that was folded, of any partition; (0, "") if there was none."""
    table = checkpoints.c
    query = select(table.record_sequence, table.record_id).where(table.scope == scope.number)
    row = (await connection.execute(query.order_by(table.record_sequence.desc()).limit(1))).first()
    return (0, "") if row is None else (row.record_sequence, row.record_id)
