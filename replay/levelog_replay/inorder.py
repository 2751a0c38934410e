"""Folds history in the order of the log, and decides after each record as if it arrived now.

Time is what the records say, and never goes back. Wakeups whose time comes between two records are due then. Receipts
are folded as they are live; what is decided here is sent by nobody.
"""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import LoggedRecord, SyncFinished
from levelog_history.records import Recording
from levelog_processors.decide.functions import Caller
from levelog_processors.engine import Engine
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_replay.comparing import NO_VIEW, Conclusion, Judged
from levelog_replay.memory import MemoryTables
from levelog_replay.travel.edits import Edited
from levelog_store.actuate.claims import Claimant
from levelog_store.decide.decisions import Decision, WithWrites
from levelog_store.rows import Scope, ViewParent

FIRST_BATCH: Final = 1000
"""Records folded at once while no view can decide yet; counted from the first one, however they were read."""
_BEGIN: Final = datetime.min.replace(tzinfo=UTC)


class LogReplay:
    """Folds a history in memory, and decides on it."""

    def __init__(
        self,
        history: Recording,
        program: Program,
        *,
        redactor: Redactor,
        caller: Caller | None = None,
        claimant: Claimant | None = None,
    ) -> None:
        """`claimant` tells which of the writes that are decided are under way until their receipts come."""
        self._history = history
        self._now = _BEGIN
        scope = Scope(number=0, resets=0, fingerprint=program.fingerprint, **asdict(history.origin))
        self._tables = MemoryTables(scope)
        self._engine = Engine(self._tables, program, patience=None, caller=caller, redactor=redactor, claimant=claimant)
        self._next_due: datetime | None = None
        self.records = 0
        """The number of records folded."""
        self.writes: set[tuple[str, str]] = set()
        """Verb and target of each write that was decided."""
        self.keys: set[str] = set()
        """Idempotency keys of the same."""

    @property
    def state(self) -> State:
        """The objects and the levels at the last record."""
        return self._engine.state

    async def close(self) -> None:
        """End what runs of users' functions."""
        await self._engine.close()

    async def run(self) -> AsyncGenerator[LoggedRecord]:
        """Go through the history; yields each record after what it led to was decided."""
        await self._engine.load(dict.fromkeys(range(self._history.origin.partitions), 1))
        first: list[LoggedRecord] = []
        async with aclosing(self._history.records()) as records:
            async for logged in records:
                if not self._engine.readiness.views:
                    first.append(logged)
                    if len(first) < FIRST_BATCH and not isinstance(logged.record, SyncFinished):
                        continue
                    await self._take(first)
                    first = []
                else:
                    await self._take([logged])
                yield logged
        if first:
            await self._take(first)

    async def decisions(self) -> AsyncGenerator[WithWrites]:
        """Go through the history; yields each decision for which a view was called, with its writes."""
        async with aclosing(self.run()) as run:
            async for _ in run:
                for each in self._taken():
                    yield each
        for each in self._taken():
            yield each

    def _taken(self) -> list[WithWrites]:
        """The decisions since the last question."""
        found, self._tables.decided = self._tables.decided, []
        return found

    async def _take(self, records: list[LoggedRecord]) -> None:
        self._taken()
        time = max(self._now, *(logged.record.time for logged in records))
        await self._pass_to(time)
        folded = self._engine.fold(records)
        self.records += len(records)
        if folded.wakes or folded.has_list:
            await self._decide()

    async def _pass_to(self, time: datetime) -> None:
        """Decide on what becomes due on the way to a time, each at its own."""
        while self._next_due is not None and self._next_due <= time:
            due = self._next_due
            self._now = max(self._now, due)
            if not await self._decide() and self._next_due == due:
                break  # its view may not decide yet
        self._now = time

    async def _decide(self) -> bool:
        """Decide until nothing is due now; tells whether anything was decided."""
        has_decided = is_planned = False
        while True:
            batch = await self._engine.decide(now=self._now)
            for row in (row for decided in batch.decided for row in decided.intents):
                self.writes.add((row.verb, row.target))
                self.keys.add(row.key)
            has_decided |= bool(batch.decided)
            is_planned |= any(decided.due_at is not None for decided in batch.decided)
            if not batch.has_more:
                break
        if is_planned or self._next_due is not None:
            self._next_due = self._engine.state.wakes.next_due
        return has_decided


class _Moment(Struct, frozen=True):
    """The decisions between one record that stays in the log and the next one."""

    place: float
    found: Mapping[ViewParent, Sequence[Judged]] = {}


_END: Final = _Moment(math.inf)


class Side(Struct, frozen=True):
    """One version of the code, and the history that it decides on, changed or not."""

    replay: LogReplay
    history: Edited

    async def moments(self) -> AsyncGenerator[_Moment]:
        """The decisions, in the order of the log."""
        at, found = 0, dict[ViewParent, list[Judged]]()
        async with aclosing(self.replay.decisions()) as decisions:
            async for past, asked in decisions:
                place = self.history.place(past.seen_to)
                if place != at and found:
                    yield _Moment(at, found)
                    found = {}
                at, level = place, (past.view, past.parent)
                conclusion = Conclusion.recorded(past, asked)
                found.setdefault(level, []).append(Judged(past=self._recorded(past), conclusion=conclusion))
        if found:
            yield _Moment(at, found)

    def _recorded(self, past: Decision) -> Decision:
        """A decision with the sequences that its records have in the log."""
        number = self.history.number
        causes = replace(past.causes, sequences=tuple(map(number, past.causes.sequences)))
        return replace(past, cause=number(past.cause), causes=causes, parent_sequence=number(past.parent_sequence))


async def pairs(sides: Sequence[Side]) -> AsyncGenerator[tuple[float, Judged, Judged]]:
    """Decisions of two sides on a level after the same record; where one side made none, its half has no conclusion."""
    async with AsyncExitStack() as stack:
        runs = [await stack.enter_async_context(aclosing(side.moments())) for side in sides]
        ahead = [await anext(run, _END) for run in runs]
        while (at := min(each.place for each in ahead)) < math.inf:
            one, other = [each.found if each.place == at else {} for each in ahead]
            for level in sorted(one.keys() | other.keys()):
                for half, half_of_other in zip_longest(one.get(level, ()), other.get(level, ())):
                    absent = Judged(past=(half or half_of_other).past, conclusion=None, obstacle=NO_VIEW)
                    yield at, half or absent, half_of_other or absent
            ahead = [
                await anext(run, _END) if each.place == at else each for run, each in zip(runs, ahead, strict=True)
            ]
