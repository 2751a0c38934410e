"""The status of levels, for views that take or look up levels and are therefore decided last."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.children import ChildrenView
from levelog.levels import Standing
from levelog.wire.canonical import canonical
from levelog.wire.objects import ObjectKey
from levelog_processors.fold.rules import parent_inputs
from levelog_processors.program import BoundView, Program
from levelog_store.decide import inputreads as stored
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.fold.changes import Wake, read_causes
from levelog_store.rows import (
    Bucket,
    IndexKey,
    LevelRow,
    Scope,
    StoredObject,
    ViewParent,
    is_of_levels,
    levels_place,
    parent_at,
)


class _Told(Struct, frozen=True):
    """One value under the key of a parent's levels."""

    view: str
    standing: Standing


_told: Final = msgspec.json.Decoder(_Told)


def standings(
    program: Program, views: Sequence[BoundView], parent: StoredObject, levels: Mapping[ViewParent, LevelRow]
) -> Mapping[str, Standing]:
    """How the levels of some views stand, by view; where filters leave the parent out there is none.

    In the order of their names, as a decision keeps them, so that a view which goes through them sees the same again.
    """
    found: dict[str, Standing] = {}
    for sibling in sorted(views, key=lambda each: each.name):
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
                children=_children(program, sibling, parent, row),
            )
    return found


def _children(program: Program, view: BoundView, parent: StoredObject, row: LevelRow) -> tuple[str, ...]:
    resources = program.children_of(view)
    if not resources or not isinstance(view.handler, ChildrenView):
        return ()
    return view.handler.children_in(row.desired, parent.namespace, resources)


async def read_standings(
    connection: AsyncConnection, scope: Scope, program: Program, places: Sequence[IndexKey]
) -> Mapping[IndexKey, Bucket]:
    """How the levels of other parents stand, as buckets of an index; empty where there is no such parent."""
    names = sorted({parent_at(place) for place in places})
    parents = await stored.read_parents(connection, scope, names)
    levels = await stored.read_levels(connection, scope, sorted(parents)) if parents else {}
    versions = await stored.read_versions(connection, scope, places)
    found: dict[IndexKey, Bucket] = {}
    for place in places:
        parent = parents.get(parent_at(place))
        told: Mapping[str, Standing] = {}
        if parent is not None:
            views = program.standing_on(place[0].partition("/")[0], parent.resource)
            told = standings(program, views, parent, levels)
        found[place] = Bucket(versions.get(place, -1), encoded(told))
    return found


def encoded(told: Mapping[str, Standing]) -> tuple[bytes, ...]:
    """The value under the key of a parent's levels."""
    return tuple(canonical(_Told(view, standing)) for view, standing in sorted(told.items()))


def decoded(values: Sequence[bytes]) -> dict[str, Standing]:
    """The same, by view."""
    return {each.view: each.standing for each in map(_told.decode, values)}


def timeless(values: Sequence[bytes]) -> tuple[bytes, ...]:
    """The same without the times, whose changes wake nothing."""
    return encoded({view: msgspec.structs.replace(each, since=None) for view, each in decoded(values).items()})


def deciding_views(program: Program, views: Collection[str]) -> list[str]:
    """Those of the views that may decide, as may all whose levels they see: what these wait for is not known."""
    held = frozenset(views)
    return [name for name in views if held.issuperset(each.name for each in seen_by(program, program.views[name]))]


def seen_by(program: Program, view: BoundView) -> list[BoundView]:
    """Views whose levels a view is given, or looks up."""
    return [*program.siblings_of(view), *program.lookups_of(view)]


async def read_early(
    connection: AsyncConnection,
    scope: Scope,
    program: Program,
    found: Sequence[PendingWake],
    now: datetime,
    carried: Mapping[ViewParent, int],
) -> Collection[ViewParent]:
    """Levels that are asked for and have to wait: others of their parents, which they stand on, are asked for too.

    So are those that were looked up the last time, but for what asks for them since: else a level would starve that
    stands on many. `carried` are levels that are asked for without a row, with the newest record that does.
    """
    needed = {
        (wake.view, wake.parent): {(each.name, wake.parent) for each in siblings}
        for wake in found
        if (siblings := program.siblings_of(program.views[wake.view]))
    }
    looked_up = await _looked_up(connection, scope, program, found)
    if not needed and not looked_up:
        return ()
    wanted = set[ViewParent]().union(*needed.values(), *looked_up.values())
    due = await stored.read_due(connection, scope, sorted(wanted), now)
    due |= {level: cause for level, cause in carried.items() if level in wanted}
    causes = {(wake.view, wake.parent): wake.cause for wake in found}
    early = {name for name, levels in needed.items() if not due.keys().isdisjoint(levels)}
    return early | {
        name for name, levels in looked_up.items() if any(due[each] <= causes[name] for each in levels & due.keys())
    }


async def _looked_up(
    connection: AsyncConnection, scope: Scope, program: Program, found: Sequence[PendingWake]
) -> Mapping[ViewParent, set[ViewParent]]:
    """Levels of other parents that were looked up the last time."""
    views = {(wake.view, wake.parent): program.lookups_of(program.views[wake.view]) for wake in found}
    asking = [name for name, some in views.items() if some]
    if not asking:
        return {}
    read = await stored.read_dependencies(connection, scope, asking)
    return {
        name: {
            (view.name, parent)
            for parent in map(parent_at, filter(is_of_levels, places))
            for view in views[name]
            if view.parents == str(ObjectKey.parse(parent).group_resource)
        }
        for name, places in read.items()
    }


def woken(program: Program, held: Sequence[Decided]) -> dict[ViewParent, Wake]:
    """Levels to look at again since others of their parents were decided on."""
    return {
        (reader, each.wake.parent): Wake(each.wake.partition, _causes(each))
        for each in held
        for reader in program.readers.get(each.wake.view, ())
    }


def told(program: Program, held: Sequence[Decided]) -> Mapping[IndexKey, tuple[int, ...]]:
    """Keys of parents that others look up and whose levels stand otherwise now, with the records that led there."""
    found: dict[IndexKey, tuple[int, ...]] = {}
    for each in held:
        if each.is_news and each.wake.view in program.looked_up:
            place = levels_place(program.views[each.wake.view].operator, each.wake.parent)
            found[place] = tuple(sorted({*found.get(place, ()), *_causes(each)}))
    return found


def _causes(decided: Decided) -> tuple[int, ...]:
    return read_causes(decided.wake.causes).sequences or (decided.level.cause,)
