"""What happened to objects, in the order of the log; each decision follows the last record that it can have seen."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application
from levelog_base.wire.records import LoggedRecord
from levelog_history.happenings import Ending, Entry, entries_in
from levelog_history.reach import Moment, nothing_of
from levelog_history.records import RecordSource
from levelog_history.revisions import Revision
from levelog_history.selection import Selected, Shown
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, Decision
from levelog_store.look.recall import read_about
from levelog_store.rows import Scope

IsShown: TypeAlias = Callable[[str], bool]
"""Tells whether an object, by its name, is one of those that are shown."""

_SLACK: Final = timedelta(minutes=5)
"""How far the clocks of processors and NATS may be apart."""


class DecisionEntry(Struct, frozen=True, kw_only=True):
    """A decision, with what it asked for."""

    application: Application
    decision: Decision
    writes: Sequence[Asked]
    """As far as they are kept."""

    @property
    def after(self) -> int:
        """Sequence of the record below which it stands.

        All that it saw is at or above that place. All that came of it is below: receipts and what they led to were
        recorded later.
        """
        return self.decision.seen_to

    def is_about(self, is_shown: IsShown) -> bool:
        """Tell whether it was made on an object that is shown, or wrote to one."""
        return is_shown(self.decision.parent) or any(is_shown(asked.target) for asked in self.writes)


AnyEntry: TypeAlias = Entry | DecisionEntry
T = TypeVar("T")


async def entries_of(records: AsyncIterator[LoggedRecord], shown: Shown) -> AsyncIterator[tuple[AnyEntry, int]]:
    """The revisions, gaps and receipts among records, each with its sequence."""

    def tells(record: Ending) -> bool:
        return shown.has(str(record.parent)) or shown.has(str(record.target))

    async for entry, sequence in entries_in(records, shown.selects, tells):
        if not isinstance(entry, Revision) or shown.takes(entry):
            yield entry, sequence


async def decisions_on(
    database: Database, scope: Scope, selected: Sequence[Selected], is_shown: IsShown, *, log_began: datetime
) -> AsyncGenerator[DecisionEntry]:
    """Decisions on objects that are shown, and those that wrote to one, in their order.

    Those of an older log are passed over: their sequences are others.
    """
    names = [str(each) if each.name else f"{each}/" for each in selected]
    async with aclosing(read_about(database, scope, names)) as recorded:
        async for past, writes in recorded:
            entry = DecisionEntry(application=scope.application, decision=past, writes=writes)
            if past.decided_at + _SLACK >= log_began and entry.is_about(is_shown):
                yield entry


async def interleaved(
    entries: AsyncIterator[tuple[T, int]], decisions: AsyncIterator[DecisionEntry]
) -> AsyncIterator[tuple[T | DecisionEntry, int]]:
    """Put decisions between entries or records; all come in their order, an entry with its sequence."""
    ahead = await anext(decisions, None)
    async for entry, sequence in entries:
        while ahead is not None and ahead.after < sequence:
            yield ahead, ahead.after
            ahead = await anext(decisions, None)
        yield entry, sequence
    while ahead is not None:
        yield ahead, ahead.after
        ahead = await anext(decisions, None)


def is_after(moment: Moment, entry: AnyEntry, sequence: int) -> bool:
    """Tell whether an entry came after a moment."""
    if not isinstance(entry, DecisionEntry):
        return moment.is_before(sequence, entry.time)
    return moment.is_before(entry.after + 1, entry.decision.decided_at)  # it stands behind the record that it saw


async def object_at(
    source: RecordSource, one: Selected, moment: Moment, *, see: Callable[[Revision], None] | None = None
) -> Revision:
    """The revision of one object that held at a moment; `see` is given it, and those before.

    Raises ConfigurationError if the object did not exist then.
    """
    first: Revision | None = None
    last: Revision | None = None
    async for entry, sequence in entries_of(source.about([one]), Shown([one], "")):
        if not isinstance(entry, Revision) or entry.happened == "unreadable":
            continue
        first = first or entry
        if is_after(moment, entry, sequence):
            break
        last = entry
        if see is not None:
            see(entry)
    if first is None:
        raise ConfigurationError(await nothing_of(source, [one]))
    if last is None:
        raise ConfigurationError(
            f"{one.key} is not in the log at {moment}: the first record of it is {first.sequence}, at {_time(first)}"
        )
    if last.is_gone:
        raise ConfigurationError(f"{one.key} did not exist at {moment}: {last.sequence} deleted it, at {_time(last)}")
    return last


def _time(revision: Revision) -> str:
    return f"{revision.time:%Y-%m-%d %H:%M:%S} UTC"
