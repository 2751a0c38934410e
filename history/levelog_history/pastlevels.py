"""Levels now, or at a past moment."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog_base.errors import ConfigurationError
from levelog_history.happenings import read_there
from levelog_history.reach import Moment, beginning, refuse_beyond, refuse_expired
from levelog_history.records import LogSource
from levelog_history.selection import ends, is_named
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decision
from levelog_store.fold.statereads import read_syncs
from levelog_store.look.contact import oldest_contact, read_inputs, read_unlisted, read_unreadable
from levelog_store.look.levelpages import ALL, LevelQuery, read_level_lines, read_level_page, read_unlevelled
from levelog_store.look.overview import LevelLine
from levelog_store.look.recall import read_newest
from levelog_store.rows import Scope, UnreadableRow


class LevelsNow(Struct, kw_only=True):
    """Levels, and the inputs that they lack."""

    scopes: list[Scope]
    lines: list[tuple[Scope, LevelLine]]
    skipped: list[UnreadableRow]
    """Records that cannot be read."""
    silent: list[tuple[str, str]]
    """Resources that nothing is heard of now, each with the reason."""
    unlisted: list[str]
    """Resources of views that were never listed, so that there are no levels of their objects."""
    contacts: dict[int, tuple[str, datetime]]
    """The other resource, by scope, whose last list or bookmark is the oldest, and when that came."""


async def levels_now(connection: AsyncConnection, scopes: list[Scope], wanted: LevelQuery) -> LevelsNow:
    """The levels that are selected. Raises ConfigurationError for a view or parent without one."""
    found = await read_levels(connection, scopes, wanted)
    if not found.lines:
        await refuse_unknown(connection, scopes, wanted.name, wanted.view)
    return found


async def read_levels(connection: AsyncConnection, scopes: list[Scope], wanted: LevelQuery) -> LevelsNow:
    """The levels that are selected; there may be none."""
    found = LevelsNow(scopes=scopes, lines=[], skipped=[], silent=[], unlisted=[], contacts={})
    for scope in scopes:
        lines = await read_level_lines(connection, scope, wanted)
        found.lines += [(scope, line) for line in lines]
        found.skipped += await read_unreadable(connection, scope)
        inputs = await read_inputs(connection, scope)
        found.silent += [(each.resource, each.error) for each in inputs if each.error]
        found.unlisted += await read_unlisted(connection, scope)
        if contact := oldest_contact(inputs):
            found.contacts[scope.number] = contact
    return found


async def levels_at(
    stream: LogStream, database: Database, scopes: Sequence[Scope], wanted: LevelQuery, moment: Moment
) -> list[tuple[Scope, Decision]]:
    """The levels that are selected as they were, from the decisions that are kept and the log.

    Raises ConfigurationError for a moment that the log does not hold, and a parent or view without a level then.
    """
    await refuse_beyond(LogSource(stream), moment)
    found: list[tuple[Scope, Decision]] = []
    resources: set[str] = set()
    async with database.reading() as connection:
        for scope in scopes:
            resources.update(resource for _, resource in await read_syncs(connection, scope))
            newest = await read_newest(connection, scope, is_by=moment.has_seen, until=moment.time)
            found += [(scope, each) for each in newest if is_chosen(wanted, each.view, each.parent)]
    refuse_expired(await beginning(stream, resources), moment)
    there = await read_there(stream, {each.parent for _, each in found}, moment) if found else {}
    found = [(scope, each) for scope, each in found if there.get(each.parent) == each.parent_uid]
    if not found and (wanted.name or wanted.view):
        raise ConfigurationError(f"there was no level of {wanted.name or wanted.view} at {moment}")
    return [(scope, each) for scope, each in found if wanted.takes(each.status)]


def is_chosen(wanted: LevelQuery, view: str, parent: str) -> bool:
    """Tell whether a level is among the wanted ones, whatever its status."""
    return (not wanted.view or is_named(wanted.view, view)) and (not wanted.name or ends(wanted.name, parent))


def none_of(wanted: LevelQuery, verb: str = "is") -> str:
    """The sentence that says that there is no level of the view and parent, or none that has the status."""
    of = "".join(f" of {each}" for each in (wanted.view, wanted.name) if each)
    return f"no level{of} {verb} {' or '.join(wanted.statuses) or 'there'}"


async def refuse_unknown(connection: AsyncConnection, scopes: list[Scope], name: str, view: str) -> None:
    """Raise ConfigurationError if there are levels, and none of the view, or none of the parent, where one is given."""

    async def has(wanted: LevelQuery) -> bool:
        """Tell whether there is such a level, or a parent that waits for its first."""
        for scope in scopes:
            if await read_level_page(connection, scope, wanted, most=1):
                return True
            if await read_unlevelled(connection, scope, wanted):
                return True
        return False

    for what, said, wanted in (
        ("view", view, LevelQuery(view=view)),
        ("parent", name, LevelQuery(name=name)),
    ):
        if said and not await has(wanted) and await has(ALL):
            raise ConfigurationError(f"no level of a {what} {said!r}: `levelog levels` shows all that there are")
