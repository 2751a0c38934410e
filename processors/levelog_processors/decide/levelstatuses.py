"""The status of levels, for views that take or look up levels and are therefore decided last."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from levelog.handlers.children import ChildrenView
from levelog.levels import LevelStatus
from levelog_base.wire.canonical import canonical
from levelog_processors.bound import BoundView
from levelog_processors.guard import parent_inputs
from levelog_processors.program import Program
from levelog_store.decide.decisions import Decided
from levelog_store.fold.changes import Wake, read_causes
from levelog_store.rows import (
    IndexKey,
    LevelRow,
    StoredObject,
    ViewParent,
)


class _Told(Struct, frozen=True):
    """One value under the key of a parent's levels."""

    view: str
    level_status: LevelStatus


_told: Final = msgspec.json.Decoder(_Told)


def level_statuses(
    program: Program, views: Sequence[BoundView], parent: StoredObject, levels: Mapping[ViewParent, LevelRow]
) -> Mapping[str, LevelStatus]:
    """How the levels of some views stand, by view; where filters leave the parent out there is none.

    In the order of their names, as a decision keeps them, so that a view which goes through them sees the same again.
    """
    found: dict[str, LevelStatus] = {}
    for sibling in sorted(views, key=lambda each: each.name):
        row = levels.get((sibling.name, parent.object))
        if parent_inputs(sibling, parent.body, row.fields_read if row else None) is None:
            continue
        if row is None or row.parent_uid != parent.uid:
            found[sibling.name] = LevelStatus(status="blocked", reason="not evaluated yet")
        else:
            found[sibling.name] = LevelStatus(
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


def encoded(told: Mapping[str, LevelStatus]) -> tuple[bytes, ...]:
    """The value under the key of a parent's levels."""
    return tuple(canonical(_Told(view, level_status)) for view, level_status in sorted(told.items()))


def decoded(values: Sequence[bytes]) -> dict[str, LevelStatus]:
    """The same, by view."""
    return {each.view: each.level_status for each in map(_told.decode, values)}


def timeless(values: Sequence[bytes]) -> tuple[bytes, ...]:
    """The same without the times, whose changes wake nothing."""
    return encoded({view: msgspec.structs.replace(each, since=None) for view, each in decoded(values).items()})


def deciding_views(program: Program, views: Collection[str]) -> list[str]:
    """The views that may decide, as may all whose levels they see: what these wait for is not known."""
    all_views = frozenset(views)
    return [name for name in views if all_views.issuperset(program.behind[name])]


def woken(program: Program, valid: Sequence[Decided]) -> dict[ViewParent, Wake]:
    """Levels to look at again since others of their parents were decided on."""
    return {
        (reader, each.wake.parent): Wake(each.wake.partition, _causes(each))
        for each in valid
        for reader in program.readers.get(each.wake.view, ())
    }


def changed_places(program: Program, valid: Sequence[Decided]) -> Mapping[IndexKey, tuple[int, ...]]:
    """Keys of parents that others look up and whose levels stand otherwise now, with the records that led there."""
    found: dict[IndexKey, tuple[int, ...]] = {}
    for each in valid:
        for place in program.places_of(each.wake.view, each.wake.parent) if each.is_news else ():
            found[place] = tuple(sorted({*found.get(place, ()), *_causes(each)}))
    return found


def _causes(decided: Decided) -> tuple[int, ...]:
    return read_causes(decided.wake.causes).sequences or (decided.level.cause,)
