"""How the other levels of a parent stand, for the views that are given that: these are decided on after the others."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.levels import Standing
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import BoundView, Program
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.fold.changes import Wake, read_causes
from levelog_store.rows import LevelRow, Scope, StoredObject, ViewParent


def standings(
    program: Program, view: BoundView, parent: StoredObject, levels: Mapping[ViewParent, LevelRow]
) -> Mapping[str, Standing]:
    """How the levels stand that a view is given, by view; where filters leave the parent out there is none.

    In the order of their names, as a decision keeps them, so that a view which goes through them sees the same again.
    """
    found: dict[str, Standing] = {}
    for sibling in sorted(program.siblings_of(view), key=lambda each: each.name):
        row = levels.get((sibling.name, parent.object))
        if parent_inputs(sibling, parent.body, row.looked_at if row else None) is None:
            continue
        if row is None or row.parent_uid != parent.uid:
            found[sibling.name] = Standing(status="blocked", reason="not evaluated yet")
        else:
            found[sibling.name] = Standing(
                status=row.status,
                reason=row.reason,
                drift={part: tuple(keys) for part, keys in row.differing.items()},
                since=row.since,
            )
    return found


def deciding_views(program: Program, views: Collection[str]) -> list[str]:
    """Those of the views that may decide, all of whose siblings may too: what these wait for is not known."""
    return [
        name for name in views if all(sibling.name in views for sibling in program.siblings_of(program.views[name]))
    ]


async def read_early(
    connection: AsyncConnection, scope: Scope, program: Program, found: Sequence[PendingWake], now: datetime
) -> Collection[ViewParent]:
    """Levels that are asked for and have to wait: others of their parents, which they stand on, are asked for too."""
    needed = {
        (wake.view, wake.parent): {(each.name, wake.parent) for each in siblings}
        for wake in found
        if (siblings := program.siblings_of(program.views[wake.view]))
    }
    if not needed:
        return ()
    due = await stored.read_due(connection, scope, sorted(set[ViewParent]().union(*needed.values())), now)
    return {name for name, levels in needed.items() if not due.isdisjoint(levels)}


def woken(program: Program, held: Sequence[Decided]) -> Mapping[ViewParent, Wake]:
    """Levels to look at again since others of their parents were decided on."""
    return {
        (reader, each.wake.parent): Wake(
            each.wake.partition, read_causes(each.wake.causes).sequences or (each.level.cause,)
        )
        for each in held
        for reader in program.readers.get(each.wake.view, ())
    }
