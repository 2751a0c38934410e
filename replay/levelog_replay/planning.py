"""What other code would decide now, tried on a copy of the tables.

It takes over as it would live: it is promoted, what its indices and views are is computed anew, and levels are decided
on until nothing is due. Nobody is there who could write.
"""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Final

from msgspec import Struct

from levelog.handlers.children import ChildrenView
from levelog.secrets.redaction import Redactor
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.tables import SqlTables
from levelog_replay.calling import ReplayCaller
from levelog_store.connect.database import Database
from levelog_store.decide.inputreads import read_checkpoints, read_mirrored
from levelog_store.look import trial
from levelog_store.owners.leases import Leases
from levelog_store.owners.promotion import CHANGED_CODE
from levelog_store.owners.scopes import open_scope
from levelog_store.rows import Scope, ViewParent

_PATIENCE_SECONDS: Final = 3.0
"""Where changes never rest, what changed last may be shown as it was before."""
_LOOK_SECONDS: Final = 0.05
_LEASE: Final = timedelta(days=365)
"""Nobody else asks for the partitions."""


class PlannedLevel(Struct, frozen=True, kw_only=True):
    """What becomes of a level that does not stay as it is."""

    change: trial.LevelChange
    writes: tuple[trial.PlannedWrite, ...]
    is_due: bool
    """The code that runs would decide on it now too."""
    is_later: bool
    """It is decided on only after others, of views that wait for a list."""
    deletions: tuple[str, ...] = ()
    """What it would delete, in this round or once all else is done: children, by kind and name, or targets."""


class Planned(Struct, frozen=True, kw_only=True):
    """What other code would decide."""

    at: datetime
    levels: Sequence[PlannedLevel]
    """Levels that change, by view and parent; last those that go."""
    counts: Mapping[str, tuple[int, int]]
    """Levels of each view, before and after."""
    dropped: int
    """Writes that are decided and not sent, and that nobody would send."""
    waiting: Collection[ViewParent]
    """Levels that wait for writes under way; what follows is not known."""
    unlisted: Mapping[str, Sequence[str]]
    """Views that decide on nothing before these resources are listed."""
    later: Sequence[str] = ()
    """Views that decide on some of their levels only once those have decided."""

    @property
    def is_same(self) -> bool:
        """Whether the other code would change nothing."""
        return not self.levels and not self.dropped and not self.unlisted


class Course:
    """How a plan is getting on, for those who wait for it."""

    engine: Engine | None = None
    """What decides; None: the tables are still being copied."""

    @property
    def awaited(self) -> str:
        """The function that has run for longest, or what else the plan waits for."""
        if self.engine is None:
            return "the tables"
        ages = self.engine.acting.ages
        view, seconds = max(ages, key=lambda each: each[1], default=("", 0.0))
        return f"the functions of {view}, for {seconds:.0f} s" if ages else "the views of all levels"


async def plan(
    database: Database,
    scope: Scope,
    program: Program,
    *,
    redactor: Redactor,
    caller: ReplayCaller,
    course: Course | None = None,
) -> Planned:
    """Try a program on a copy of a scope's tables, in a temporary folder; the database is only read.

    `course` tells meanwhile what is waited for.
    """
    with tempfile.TemporaryDirectory(prefix="levelog-plan-") as folder:
        async with await Database.open(f"sqlite:///{Path(folder) / 'copy.db'}", is_scratch=True) as scratch:
            await _until_mirrored(database, scope)
            await trial.copy_scope(database, scope, scratch)
            async with scratch.reading() as connection:
                before = await trial.count_levels(connection)
            at = datetime.now(UTC)
            unlisted = await _take_over(
                scratch, scope, program, at, redactor=redactor, caller=caller, course=course or Course()
            )
            children = {name for name, view in program.views.items() if isinstance(view.handler, ChildrenView)}
            return await _planned(scratch, at, before, unlisted, children)


async def _until_mirrored(database: Database, scope: Scope) -> None:
    """Wait until objects and entries are in the tables as levels are: a second, while a processor runs at all."""
    until = monotonic() + _PATIENCE_SECONDS
    while monotonic() < until:
        async with database.reading() as connection:
            if await read_mirrored(connection, scope) == await read_checkpoints(connection, scope):
                return
        await asyncio.sleep(_LOOK_SECONDS)


async def _take_over(
    scratch: Database,
    scope: Scope,
    program: Program,
    at: datetime,
    *,
    redactor: Redactor,
    caller: ReplayCaller,
    course: Course,
) -> Mapping[str, Sequence[str]]:
    """Promote the program and decide until nothing is due; returns views that wait for lists, with the resources."""
    promoted = await open_scope(
        scratch,
        cluster=scope.cluster,
        application=scope.application,
        partitions=scope.partitions,
        stream_created=scope.stream_created,
        fingerprint=program.fingerprint,
        code=program.handlers,
    )
    epochs = await Leases(scratch, promoted, owner="plan", duration=_LEASE).tend()
    engine = course.engine = Engine(
        SqlTables(scratch, promoted), program, patience=None, caller=caller, redactor=redactor
    )
    try:
        await engine.load(epochs)
        while (await engine.decide(now=at)).has_more:
            pass
        await engine.flush()
        readiness = engine.readiness
    finally:
        await engine.close()
    ready = set(readiness.views)
    return {
        view.name: sorted(view.reads - readiness.listed) for view in program.views.values() if view.name not in ready
    }


async def _planned(
    scratch: Database,
    at: datetime,
    before: Mapping[str, int],
    unlisted: Mapping[str, Sequence[str]],
    children: Collection[str],
) -> Planned:
    writes: defaultdict[ViewParent, list[trial.PlannedWrite]] = defaultdict(list)
    async with scratch.reading() as connection:
        async for write in trial.read_planned_writes(connection):
            writes[write.view, write.parent].append(write)
        due = await trial.read_due(connection, at)
        woken = await trial.read_woken_views(connection, at) if unlisted else []
        after = await trial.count_levels(connection)
        found = [
            PlannedLevel(
                change=change,
                writes=tuple(writes[change.name]),
                is_due=change.name in due,
                is_later=change.after is not None and change.after.reason == CHANGED_CODE,
                deletions=_deletions(change, writes[change.name], children),
            )
            async for change in trial.read_changed_levels(connection)
        ]
        return Planned(
            at=at,
            levels=found,
            counts={view: (before.get(view, 0), after.get(view, 0)) for view in sorted({*before, *after})},
            dropped=await trial.count_dropped_writes(connection),
            waiting=[name for name in await trial.read_waiting(connection) if name not in writes],
            unlisted=unlisted,
            later=[view for view in woken if view not in unlisted],
        )


def _deletions(
    change: trial.LevelChange, writes: Sequence[trial.PlannedWrite], children: Collection[str]
) -> tuple[str, ...]:
    if change.view in children:
        return tuple(change.after.differing.get("extra", ())) if change.after is not None else ()
    return tuple(sorted(write.target for write in writes if write.verb == "delete"))
