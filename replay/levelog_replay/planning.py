"""What other code would decide now, tried in memory on what the tables hold.

It takes over as it would live: it is promoted, what its indices and views are is computed anew, and levels are decided
on until nothing is due. Nobody is there who could write.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog.handlers.children import ChildrenView
from levelog_base.secrets.redaction import Redactor
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_replay.calling import ReplayCaller
from levelog_replay.memory import MemoryTables
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, PendingWake
from levelog_store.decide.inputreads import KeptIntent, read_kept_intents
from levelog_store.fold.checkpoints import read_points
from levelog_store.fold.statereads import StoredState, read_state
from levelog_store.owners.handlers import Handler, differences, is_outdated
from levelog_store.owners.promotion import promoted, read_handlers, superseded
from levelog_store.rows import UNSETTLED, LevelRow, Scope, Verdict, ViewParent

_PATIENCE_SECONDS: Final = 3.0
"""Where changes never rest, what changed last may be shown as it was before."""
_LOOK_SECONDS: Final = 0.05


class LevelChange(Struct, frozen=True, kw_only=True):
    """A level before and after; None: there is none."""

    view: str
    parent: str
    before: Verdict | None
    after: Verdict | None

    @property
    def name(self) -> ViewParent:
        """View and parent."""
        return self.view, self.parent


class PlannedWrite(Asked, frozen=True, kw_only=True):
    """A write that the other code decided on."""

    view: str
    parent: str


class PlannedLevel(Struct, frozen=True, kw_only=True):
    """What becomes of a level that does not stay as it is."""

    change: LevelChange
    writes: tuple[PlannedWrite, ...]
    is_due: bool
    """The code that runs would decide on it now too."""
    is_later: bool
    """It is decided on only after others, of views that wait for a list."""
    deletions: tuple[str, ...] = ()
    """What it would delete, in this round or once all else is done: children, by kind and name, or targets."""


class LevelCounts(Struct, frozen=True):
    """How many levels a view has, by the code before and by the code after."""

    before: int
    after: int


class Planned(Struct, frozen=True, kw_only=True):
    """What other code would decide."""

    at: datetime
    levels: Sequence[PlannedLevel]
    """Levels that change, by view and parent; last those that go."""
    counts: Mapping[str, LevelCounts]
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
    """What decides; None: the tables are still being read."""

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
    """Try a program on what the tables of a scope hold; the database is only read.

    `course` tells meanwhile what is waited for.
    """
    before = await _Before.read(database, scope)
    found = differences(before.code, program.handlers)
    tables = MemoryTables(
        replace(scope, fingerprint=program.fingerprint),
        promoted(before.stored, found),
        list(superseded(before.intents, found)),
    )
    at = datetime.now(UTC)
    engine = Engine(tables, program, patience=None, caller=caller, redactor=redactor)
    if course is not None:
        course.engine = engine
    try:
        await engine.load(dict.fromkeys(range(scope.partitions), 1))
        while (await engine.decide(now=at)).has_more:
            pass
    finally:
        await engine.close()
    return _planned(at, program, before, engine, tables)


class _Before(Struct, frozen=True):
    """What the tables hold, as of one moment."""

    code: Sequence[Handler]
    stored: StoredState
    intents: Sequence[KeptIntent]

    @classmethod
    async def read(cls, database: Database, scope: Scope) -> "_Before":
        """Read it once objects and entries are in the tables as levels are: in a second, while a processor runs."""
        until = monotonic() + _PATIENCE_SECONDS
        while True:
            async with database.reading() as connection:
                is_mirrored = all(each.mirrored == each.sequence for each in await read_points(connection, scope))
                if is_mirrored or monotonic() >= until:
                    code = await read_handlers(connection, scope)
                    stored = await read_state(connection, scope, bodies_of=None)
                    return cls(code, stored, await read_kept_intents(connection, scope))
            await asyncio.sleep(_LOOK_SECONDS)


def _planned(at: datetime, program: Program, before: _Before, engine: Engine, tables: MemoryTables) -> Planned:
    children = {name for name, view in program.views.items() if isinstance(view.handler, ChildrenView)}
    ready, listed = set(engine.readiness.views), engine.readiness.listed
    unlisted = {view.name: sorted(view.reads - listed) for view in program.views.values() if view.name not in ready}
    held = {each.intent.key: each.intent.state for each in before.intents}
    writes: defaultdict[ViewParent, list[PlannedWrite]] = defaultdict(list)
    for each in sorted(tables.intents.values(), key=lambda each: (each.round, each.ordinal)):
        intent = each.intent
        if intent.key not in held and intent.state == "pending":
            writes[intent.view, intent.parent].append(
                PlannedWrite(
                    view=intent.view,
                    parent=intent.parent,
                    key=intent.key,
                    verb=intent.verb,
                    target=intent.target,
                    body=each.body,
                )
            )
    left = [tables.intents[key].intent for key in held]
    waiting = sorted({(each.view, each.parent) for each in left if each.state in UNSETTLED})
    due = _due(before.stored.wakes, at)
    counts = [Counter(row.view for row in rows) for rows in (before.stored.levels, engine.state.levels.values())]
    woken = {view for view, _ in _due(engine.state.wakes.pending.values(), at)} if unlisted else set[str]()
    return Planned(
        at=at,
        levels=[
            PlannedLevel(
                change=change,
                writes=tuple(writes[change.name]),
                is_due=change.name in due,
                is_later=change.after is not None and is_outdated(change.after),
                deletions=_deletions(change, writes[change.name], children),
            )
            for change in _changes(before.stored.levels, engine.state.levels)
        ],
        counts={view: LevelCounts(counts[0][view], counts[1][view]) for view in sorted({*counts[0], *counts[1]})},
        dropped=sum(held[each.key] == "pending" and each.state == "superseded" for each in left),
        waiting=[name for name in waiting if name not in writes],
        unlisted=unlisted,
        later=sorted(woken - unlisted.keys()),
    )


def _due(wakes: Iterable[PendingWake], at: datetime) -> set[ViewParent]:
    """Levels that are to be decided on by then."""
    return {(each.view, each.parent) for each in wakes if each.due_at is None or each.due_at <= at}


def _changes(before: Iterable[LevelRow], after: Mapping[ViewParent, LevelRow]) -> list[LevelChange]:
    """Levels that are not as they were, new ones too; then those that are gone."""
    verdicts = {(row.view, row.parent): row.verdict for row in before}
    changes = [
        LevelChange(view=level[0], parent=level[1], before=verdicts.get(level), after=verdict)
        for level, row in sorted(after.items())
        if (verdict := row.verdict) != verdicts.get(level)
    ]
    gone = sorted(verdicts.keys() - after.keys())
    return changes + [LevelChange(view=view, parent=of, before=verdicts[view, of], after=None) for view, of in gone]


def _deletions(change: LevelChange, writes: Sequence[PlannedWrite], children: Collection[str]) -> tuple[str, ...]:
    if change.view in children:
        return tuple(change.after.differing.get("extra", ())) if change.after is not None else ()
    return tuple(sorted(write.target for write in writes if write.verb == "delete"))
