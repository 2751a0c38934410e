"""The watches of an application: listed, stale or silent; and its unreadable records. Reads only."""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, and_, case, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.indices import Contact
from levelog.resources import is_external
from levelog_base.wire.objects import DELETED, GroupResource
from levelog_store.dialects import fields, read_as
from levelog_store.rows import Scope, SyncRow, UnreadableRow, contact_of
from levelog_store.tables import handlers, index_entries, objects, scopes, syncs, tombstones, unreadable

_IS_LISTED = syncs.c.finished_sequence > 0
_IS_STALE = and_(
    _IS_LISTED,
    or_(
        syncs.c.started_sequence > syncs.c.finished_sequence,
        syncs.c.gap_sequence > syncs.c.finished_sequence,
        syncs.c.error != "",
    ),
)
_LISTED = func.coalesce(func.sum(case((_IS_LISTED, 1), else_=0)), 0)
"""Partitions that saw a complete list."""
_STALE = func.coalesce(func.sum(case((_IS_STALE, 1), else_=0)), 0)
"""Number of those in which it is listed again, history is missing, or nothing is heard of it now."""


class WatchedInput(Struct, frozen=True):
    """A resource as all partitions see it."""

    resource: str
    heard_at: datetime | None
    error: str
    """Why nothing is heard of it now; empty: it is."""
    is_listed: bool
    """A list was folded to its end in every partition."""
    is_read: bool
    """The code reads it."""


async def read_contact(connection: AsyncConnection, scope: Scope, resource: str) -> Contact:
    """How far the watch of one resource can be trusted, as all partitions have seen it."""
    rows = await read_as(SyncRow, connection, scope, syncs, syncs.c.resource == resource)
    return contact_of(rows, scope.partitions)


async def read_unlisted(connection: AsyncConnection, scope: Scope) -> list[str]:
    """Resources of views that were never listed completely, by name: no object of theirs is known."""
    table = handlers.c
    is_listed = exists().where(syncs.c.scope == table.scope, syncs.c.resource == table.resource, _IS_LISTED)
    query = select(table.resource).where(table.scope == scope.number, table.kind == "view", ~is_listed)
    rows = await connection.execute(query.distinct().order_by(table.resource))
    return [resource for (resource,) in rows if not resource.endswith(DELETED)]


async def read_inputs(connection: AsyncConnection, scope: Scope) -> list[WatchedInput]:
    """Resources of which a list was begun, by name."""
    table = syncs.c
    is_read = exists().where(handlers.c.scope == scope.number, handlers.c.resource == table.resource)
    shown = func.max(table.heard_at), func.max(table.error), scope.partitions <= _LISTED, is_read
    query = select(table.resource, *shown).where(table.scope == scope.number)
    rows = await connection.execute(query.group_by(table.resource).order_by(table.resource))
    return [WatchedInput(*row) for row in rows]


def oldest_contact(inputs: Sequence[WatchedInput]) -> tuple[str, datetime] | None:
    """The watched resource whose last list or bookmark is the oldest, and when that came; None: there was none yet.

    What fails now is left out, and what the code does not read any more; so are external records: their sources may be
    asked once a day.
    """
    watched = [
        (each.resource, each.heard_at)
        for each in inputs
        if each.heard_at is not None and not each.error and each.is_read
        if not is_external(GroupResource.parse(each.resource))
    ]
    return min(watched, key=itemgetter(1), default=None)


async def listed_resources(connection: AsyncConnection, scope: Scope) -> dict[str, bool]:
    """Resources of which a list was begun, and whether one was folded to its end in every partition."""
    return {each.resource: each.is_listed for each in await read_inputs(connection, scope)}


def inputs_of_applications() -> Select[Any, Any, bool, bool, Any, Any, Any]:
    """Every resource that an application reads, on each cluster: what the SQL view `inputs` shows."""
    return (
        select(
            syncs.c.resource,
            func.max(syncs.c.namespaces).label("namespaces"),
            (scopes.c.partitions == _LISTED).label("is_listed"),
            (_STALE > 0).label("is_stale"),
            func.max(syncs.c.heard_at).label("last_contact"),
            func.max(syncs.c.error).label("error"),
            scopes.c.cluster,
        )
        .join(scopes, scopes.c.scope == syncs.c.scope)
        .group_by(scopes.c.cluster, scopes.c.partitions, syncs.c.resource)
    )


async def read_index_failures(connection: AsyncConnection, scope: Scope) -> list[tuple[str, str, str]]:
    """Index, object and error of each object that an index function fails for."""
    table = index_entries.c
    rows = await connection.execute(
        select(table.index, table.object, func.min(table.error))
        .where(table.scope == scope.number, table.error != "")
        .group_by(table.index, table.object)
        .order_by(table.index, table.object)
    )
    return [(index, name, error) for index, name, error in rows]


async def read_unreadable(connection: AsyncConnection, scope: Scope) -> list[UnreadableRow]:
    """What could not be read and was not told since, by a later record of the object or a later list; by place."""
    table = unreadable.c
    of_list = and_(syncs.c.partition == table.partition, syncs.c.resource == table.place)
    told = func.coalesce(objects.c.sequence, tombstones.c.sequence, syncs.c.started_sequence, 0)
    rows = await connection.execute(
        select(*fields(UnreadableRow, unreadable))
        .outerjoin(objects, and_(objects.c.scope == table.scope, objects.c.object == table.place))
        .outerjoin(tombstones, and_(tombstones.c.scope == table.scope, tombstones.c.object == table.place))
        .outerjoin(syncs, and_(syncs.c.scope == table.scope, of_list))
        .where(table.scope == scope.number, table.sequence >= told)
        .order_by(table.place)
    )
    return [UnreadableRow(**row) for row in rows.mappings()]
