"""Objects without decisions: who reads one, and which objects have decisions."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.wire.objects import GroupResource
from levelog_history.reach import unread
from levelog_history.records import LogSource
from levelog_history.selection import few, is_named
from levelog_store.connect.database import Database
from levelog_store.look.overview import read_level_lines
from levelog_store.look.recall import read_levels_reading, read_resources
from levelog_store.owners.handlers import UNRECORDED
from levelog_store.owners.promotion import read_handlers
from levelog_store.rows import Scope

_NAMED: Final = 3


async def unexplained(source: LogSource, database: Database, scopes: Sequence[Scope], name: str) -> str:
    """An answer about an object that nothing was decided on or written to."""
    resource, *rest = name.split("/")
    readers: list[tuple[str, str]] = []
    resources: dict[str, bool] = {}
    unrecorded: list[str] = []
    async with database.reading() as connection:
        for scope in scopes:
            readers += await read_levels_reading(connection, scope, name, _NAMED + 1)
            unrecorded += (await _unrecorded(connection, scope, name)).values()
            for known, has_views in (await read_resources(connection, scope)).items():
                resources[known] = resources.get(known, False) or has_views
    if readers:
        return f"{_reading(readers)}; `levelog why {readers[0][1]}` says what came of that"
    if unrecorded:
        return "; ".join(unrecorded)
    views = _decided_on(resources)
    if len(rest) == 2 and (why := await unread(source, GroupResource.parse(resource))):
        return f"{why}; {views}"
    if len(rest) == 2:
        return f"no level reads it; {views}; `levelog history {name}` shows who changed it"
    if resource in await source.resources():
        return f"{name} names no object, but all of a resource or of a namespace"
    return f"{views}; `levelog levels` names them"


async def without_records(database: Database, scopes: Sequence[Scope], name: str, view: str) -> str:
    """An answer about a handler without records that is asked about like a view; empty: there is none."""
    async with database.reading() as connection:
        found = [await _unrecorded(connection, scope, name) for scope in scopes]
    return "; ".join(said for each in found for handler, said in each.items() if is_named(view, handler))


async def _unrecorded(connection: AsyncConnection, scope: Scope, name: str) -> dict[str, str]:
    """Handlers without records that are called for an object: how the last call failed where one is held."""
    held = {line.view: line for line in await read_level_lines(connection, scope, name=name) if line.is_held}
    resource, *rest = name.split("/")
    found = [
        each.name
        for each in await read_handlers(connection, scope)
        if each.kind in UNRECORDED and (each.name in held or (len(rest) == 2 and each.resource == resource))
    ]
    said = "calls of {} leave no decisions; {}"
    nothing = "`levelog levels` shows one that fails"
    return {
        each: said.format(
            each, f"the last one is {held[each].status}: {held[each].told_reason}" if each in held else nothing
        )
        for each in found
    }


def _reading(readers: Sequence[tuple[str, str]]) -> str:
    told = [f"{view} of {parent}" for view, parent in readers[:_NAMED]]
    more = " and others" if len(readers) > _NAMED else ""
    return f"it is read by {', '.join(told)}{more}"


def _decided_on(resources: dict[str, bool]) -> str:
    with_views: Collection[str] = {name for name, has_views in resources.items() if has_views}
    return f"decisions are on objects of {few(with_views)}" if with_views else "there are no views here"
