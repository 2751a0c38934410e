"""How a level is shown: its status, how often it was tried, and what it waits for. Reads only."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import and_, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.handlers.callnames import is_daemon, shown_write, title_of
from levelog_store.actuate.claims import is_unsettled
from levelog_store.decide.decisions import UNDONE, next_attempt
from levelog_store.dialects import constant, is_due, one_of
from levelog_store.fold.levelwrites import AS_LEFT, OF_BACKFILL
from levelog_store.look.contact import listed_resources
from levelog_store.look.queues import Queue, read_queues
from levelog_store.owners.handlers import Handler, by_name
from levelog_store.owners.promotion import read_handlers
from levelog_store.rows import Scope, Verdict, ViewParent
from levelog_store.tables import backfills, intents, levels, wakeups

_SETTLING: Final = constant("settling")
_FAILED: Final = constant("failed")
"""Few levels are so, which a plan for any status does not count on."""


class WriteLine(Struct, frozen=True, kw_only=True):
    """A write of a level that is under way, or has failed."""

    verb: str
    target: str
    state: str
    attempts: int
    since: datetime
    """When it was decided."""
    next_at: datetime | None
    """When it is tried again; None: it is not waiting for that."""
    error: str
    """Error of the last attempt."""
    queue: Queue | None = None
    """Queue that a call waits in while others of its effect are under way."""
    process: str = ""
    """That has claimed it, and is there; empty: none."""


class LevelLine(Verdict, frozen=True, kw_only=True):
    """One level, as it is shown; a parent that was never evaluated is `blocked`."""

    view: str
    """Operator and view, `webs/pods`."""
    parent: str
    queued: str = ""
    """What follows on the reason and changes all the time: how many calls of the same effect run and wait."""
    evaluated_at: datetime | None = None
    since: datetime | None = None
    """When it came to its status; None: it is not known."""
    tried: "Tried | None" = None
    """How often a level that failed was tried; None: it is not tried again."""
    position: int | None = None
    """Position of a call that leaves no records, and whose object is held while it fails or runs; None: a level."""
    writes: list[WriteLine] = field(default_factory=list)
    """Writes that the level waits for, and those of its last round that failed."""

    @property
    def told_reason(self) -> str:
        """The reason as it is shown."""
        return self.reason + self.queued

    @property
    def is_held(self) -> bool:
        """Tell whether it is no level, but an object that is held."""
        return self.position is not None

    @property
    def put_off(self) -> list[WriteLine]:
        """Writes that wait for their next attempt."""
        return [write for write in self.writes if write.next_at is not None]


class Tried(Struct, frozen=True, kw_only=True):
    """How often a level was tried in vain."""

    count: int
    since: datetime | None = None
    """None: it is not known."""
    next_at: datetime | None
    """None: now."""

    @property
    def text(self) -> str:
        """As it is shown behind the reason."""
        since = f" since {_moment(self.since)}" if self.since is not None else ""
        times = "once" if self.count == 1 else f"{self.count} times"
        again = "now again" if self.next_at is None else f"the next time at {_moment(self.next_at)}"
        return f"tried {times}{since}, {again}" if self.count else again


class _Rounds(Struct, frozen=True):
    """What counts here of a level's `repeats`."""

    at: datetime
    since: datetime | None = None
    retries: int = 0


_rounds: Final = msgspec.json.Decoder(_Rounds)
RETRIES: Final = ("attempts", "repeats", "recheck_at")
"""Columns of a level that tell how often it was tried, and when it is again."""


class Workload(Struct, frozen=True):
    """How many levels of a view have a status, or how many of its wakeups are due."""

    view: str
    status: str
    """Empty: what is counted are wakeups."""
    count: int


async def count_work(connection: AsyncConnection, scope: Scope, partitions: Collection[int]) -> list[Workload]:
    """Levels by view and status, and wakeups that are due by view, of some partitions: one statement."""
    level, wake, dialect = levels.c, wakeups.c, connection.dialect
    rows = await connection.execute(
        select(level.view, AS_LEFT["status"], func.count())
        .outerjoin_from(levels, backfills, OF_BACKFILL)
        .where(level.scope == scope.number, one_of(dialect, level.partition, partitions))
        .group_by(level.view, AS_LEFT["status"])
        .union_all(
            select(wake.view, literal(""), func.count())
            .where(
                wake.scope == scope.number, one_of(dialect, wake.partition, partitions), is_due(dialect, wake.due_at)
            )
            .group_by(wake.view)
        )
    )
    return [Workload(*row) for row in rows]


async def with_waits(
    connection: AsyncConnection, scope: Scope, lines: Sequence[LevelLine], *, are_few: bool = False
) -> list[LevelLine]:
    """Levels with what each waits for; of few, only their own writes are read."""
    if any(_waits(line) for line in lines):
        reasons = await read_waits(connection, scope)
        lines = [replace(line, reason=reasons.of(line)) if _waits(line) else line for line in lines]
    writes = await _read_writes(connection, scope, lines if are_few else None)
    return [_with_writes(line, writes.get((line.view, line.parent), [])) for line in lines]


def level_line(row: Mapping[Any, Any]) -> LevelLine:
    """The line of a row with the columns of a level that are shown, and `RETRIES`."""
    values = dict(row)
    attempts, repeats, next_at = (values.pop(name) for name in RETRIES)
    line = LevelLine(**values)
    if line.status != "failed" or next_at is None:
        return line
    if line.reason.startswith(UNDONE):
        return replace(line, reason=f"{line.reason}; levelog looks again at {_moment(next_at)}")
    rounds = _rounds.decode(repeats) if repeats else None
    tried = Tried(
        count=max(attempts or 0, rounds.retries + 1 if rounds else 1),
        since=(rounds.since or rounds.at) if rounds else line.since if line.is_held else None,
        next_at=next_at,
    )
    return replace(line, reason=f"{line.reason}; {tried.text}", tried=tried)


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


async def _read_writes(
    connection: AsyncConnection, scope: Scope, of: Sequence[LevelLine] | None
) -> dict[ViewParent, list[WriteLine]]:
    table, level = intents.c, levels.c
    shown = ("key", "view", "parent", "verb", "target", "state", "attempts", "owner", "due_at", "decided_at", "error")
    is_over = is_due(connection.dialect, table.due_at).label("is_over")
    named = [] if of is None else [one_of(connection.dialect, table.view, {each.view for each in of})]
    if of is not None:
        named.append(one_of(connection.dialect, table.parent, {each.parent for each in of}))
    found = await connection.execute(
        select(*(table[name] for name in shown), is_over)
        .join(levels, and_(level.scope == table.scope, level.view == table.view, level.parent == table.parent))
        .where(
            table.scope == scope.number,
            *named,
            level.status.in_((_SETTLING, _FAILED)),
            or_(
                and_(level.status == _SETTLING, is_unsettled(intents)),
                and_(level.status == _FAILED, table.state == _FAILED, table.round == level.round),
                and_(level.status == _FAILED, table.verb == "call", table.error != "", is_unsettled(intents)),
            ),
        )
        .order_by(table.round, table.ordinal)
    )
    rows = found.all()
    queues = await read_queues(connection, scope, [row.key for row in rows if row.verb == "call"])
    lines: dict[ViewParent, list[WriteLine]] = {}
    for row in rows:
        line = WriteLine(
            verb=row.verb,
            target=row.target,
            state=row.state,
            attempts=row.attempts,
            since=row.decided_at,
            next_at=next_attempt(row.state, row.owner, row.due_at),
            error=row.error,
            queue=queues.get(row.key),
            process="" if row.is_over else row.owner,
        )
        lines.setdefault((row.view, row.parent), []).append(line)
    return lines


def _with_writes(line: LevelLine, writes: list[WriteLine]) -> LevelLine:
    """The level with its writes; what one waits for is its reason."""
    if not writes:
        return line
    line = replace(line, writes=writes)
    if line.status != "settling" and not line.put_off:
        return line
    for write in writes:
        if is_daemon(line.view, write.verb, write.target):
            error = error_of(line.view, write.verb, write.target, write.error)
            told = daemon_text(write.since, write.process, error, write.attempts, write.next_at)
            return replace(line, reason=f"{title_of(line.view, write.target)} {told}")
    if failing := [write for write in writes if write.error]:
        write = failing[0]
        tried = Tried(count=write.attempts, since=write.since, next_at=write.next_at)
        shown = shown_write(line.view, write.verb, write.target)
        reason = f"{shown}: {tried.text}: {error_of(line.view, write.verb, write.target, write.error)}"
        return replace(line, reason=reason, queued=f"; {write.queue.text}" if write.queue else "")
    for write in writes:
        if write.queue is not None:
            shown = shown_write(line.view, write.verb, write.target)
            return replace(line, reason=f"{shown} waits", queued=f": {write.queue.text}")
    return line


def error_of(view: str, verb: str, target: str, error: str) -> str:
    """The error of a write, for a line that names the step already."""
    step = title_of(view, target) if verb == "call" else f"{verb} {target}"
    return error.removeprefix(f"{step}: ")


def daemon_text(since: datetime, process: str, error: str, attempts: int, next_at: datetime | None = None) -> str:
    """How the run of a daemon is told of that has not ended; `process` has claimed it, if any has."""
    if process:
        host, pid, _ = process.rsplit("-", 2)
        return f"runs since {_moment(since)}, on {host} in process {pid}"
    if attempts and error:
        return f"{Tried(count=attempts, since=since, next_at=next_at).text}: {error}"
    why = f": {error.removeprefix('runs again: ')}" if error else ""
    return f"has run since {_moment(since)}, and waits for an actuator to take it over{why}" if why else "begins"


def _waits(line: LevelLine) -> bool:
    """Tell whether a parent was not evaluated yet, by the code as it is."""
    return line.status == "blocked" and line.evaluated_at is None


class Waits(Struct, frozen=True, kw_only=True):
    """Why levels are not evaluated yet."""

    reads: dict[str, list[Handler]]
    """Each view with itself and the indices that it reads."""
    listed: dict[str, bool]

    def of(self, line: LevelLine) -> str:
        """One sentence: what is missing; else the reason that is stored."""
        handlers = self.reads.get(line.view, [])
        resources = sorted({handler.resource for handler in handlers})
        if unlisted := [name for name in resources if name not in self.listed]:
            return f"{' and '.join(unlisted)} {_were(unlisted)} not listed yet"
        if unfinished := [name for name in resources if not self.listed[name]]:
            return f"{' and '.join(unfinished)} {_were(unfinished)} not listed to the end yet"
        return line.reason or "not evaluated yet: other levels of its object come first, or no processor runs"


def _were(names: Sequence[str]) -> str:
    return "was" if len(names) == 1 else "were"


async def read_waits(connection: AsyncConnection, scope: Scope) -> Waits:
    """What keeps levels from being evaluated."""
    handlers = by_name(await read_handlers(connection, scope))
    return Waits(
        reads={
            view.name: [view, *(handlers["index", name] for name in view.reads if ("index", name) in handlers)]
            for view in handlers.values()
            if view.kind == "view"
        },
        listed=await listed_resources(connection, scope),
    )
