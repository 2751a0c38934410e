"""The first record after which a condition holds, and what led to it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_history.happenings import Entry, entries_in
from levelog_history.records import Recording, records_to
from levelog_history.revisions import Revision
from levelog_history.timeline import AnyEntry, DecisionEntry, interleaved
from levelog_processors.program import Program
from levelog_replay.tape import Rebuilt
from levelog_replay.travel.expressions import Expression, PastState
from levelog_store.rows import Verdict, ViewParent


class FirstBad(Struct, frozen=True, kw_only=True):
    """The place where a condition begins to hold."""

    sequence: int
    """Of the record."""
    entries: list[tuple[AnyEntry, int]]
    """The causes, and last the record or the decision after which it holds; each with its sequence."""
    before: Verdict | None = None
    """The status of the level before, if it is a decision."""


class Bisection:
    """Goes through a history once, forward: a condition may hold, and not hold any more."""

    def __init__(self, history: Recording, expression: Expression) -> None:
        self._history = history
        self._levels: dict[ViewParent, Verdict] = {}
        self._writes: set[tuple[str, str]] = set()
        self._wrote: dict[str, DecisionEntry] = {}
        """The last decision to write an object."""
        self._rebuilt = Rebuilt(Program(()), history.origin)
        self._past = PastState(self._rebuilt.state, self._levels, self._writes)
        self._holds = expression.on(self._past)
        self.records = 0
        """The number of records folded."""
        self.held = False
        """Whether it held last, or from the beginning on."""

    async def run(self, decisions: Sequence[AsyncIterator[DecisionEntry]]) -> FirstBad | None:
        """Look for it, with the decisions of each application; None: it never begins to hold. Raises as expressions."""
        self.held = self._holds(0)
        last: LoggedRecord | None = None
        async with aclosing(self._history.records()) as records:
            entries: AsyncIterator[tuple[LoggedRecord | DecisionEntry, int]]
            entries = ((each, int(each.sequence)) async for each in records)
            for some in decisions:
                entries = interleaved(entries, some)
            async for each, _ in entries:
                before = None
                if isinstance(each, LoggedRecord):
                    last = each
                    self._rebuilt.fold([each])
                    self._past.follow(each)
                    self.records += 1
                elif last is not None:
                    before = self._take(each)
                was, self.held = self.held, self._holds(last.sequence if last is not None else 0)
                if self.held and not was and last is not None:
                    found = FirstBad(sequence=last.sequence, entries=[], before=before)
                    return await self._explained(found, last, each if isinstance(each, DecisionEntry) else None)
        return None

    def _take(self, entry: DecisionEntry) -> Verdict | None:
        past = entry.decision
        before = self._levels.get((past.view, past.parent))
        self._levels[past.view, past.parent] = past
        for asked in entry.writes:
            self._writes.add((asked.verb, asked.target))
            self._wrote[asked.target] = entry
        return before

    async def _explained(self, found: FirstBad, logged: LoggedRecord, entry: DecisionEntry | None) -> FirstBad:
        record = logged.record
        if entry is None and isinstance(record, ObjectSeen | ObjectDeleted):
            entry = self._wrote.get(str(record.key))
        causes = set(entry.decision.causes.sequences) if entry is not None else set[int]()
        wanted = causes if entry is not None and entry.after == found.sequence else {*causes, found.sequence}
        for each, sequence in await revisions_of(self._history, wanted, found.sequence):
            if sequence > (entry.after if entry is not None else 0) and entry is not None:
                found.entries.append((entry, entry.after))
                entry = None
            found.entries.append((each, sequence))
        if entry is not None:
            found.entries.append((entry, entry.after))
        return found


async def revisions_of(history: Recording, wanted: set[int], last: int) -> list[tuple[Entry, int]]:
    """The revisions in the wanted records, in the order of the log up to the last."""
    keys: set[ObjectKey] = set()
    async for logged in records_to(history, last):
        if logged.sequence in wanted and isinstance(logged.record, ObjectSeen | ObjectDeleted):
            keys.add(logged.record.key)
    told = entries_in(records_to(history, last), keys.__contains__)
    return [(each, sequence) async for each, sequence in told if sequence in wanted and isinstance(each, Revision)]
