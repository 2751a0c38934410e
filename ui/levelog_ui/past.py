"""What the pages show: the log and the databases of applications, or a bundle."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.wire.objects import Application, ObjectKey
from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog.wire.subjects import partition_of, receipt_subject
from levelog_history.records import LogSource, RecordSource, read_about
from levelog_history.selection import Selected, Shown, ends, is_named
from levelog_history.timeline import DecisionEntry, decisions_on
from levelog_log.stream import LogStream
from levelog_replay.bundles.reading import Bundle
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, PastIntent
from levelog_store.look.levelpages import LevelQuery, count_levels, in_order, read_level_page
from levelog_store.look.overview import LevelLine, read_unlevelled, with_waits
from levelog_store.look.recall import read_intents, read_parent
from levelog_store.owners.promotion import read_handlers
from levelog_store.rows import Scope


class LevelPlace(Struct, frozen=True):
    """A level, of an application."""

    application: Application
    line: LevelLine


class Past(Protocol):
    """History, and the decisions that were made on it."""

    @property
    def name(self) -> str:
        """What it is, for the head of a page."""
        ...

    @property
    def source(self) -> RecordSource:
        """The records."""
        ...

    async def decided(self, shown: Shown) -> list[DecisionEntry]:
        """Decisions on objects that are shown, and those that wrote to one, in their order."""
        ...

    async def parent_of(self, ordinal: int) -> str:
        """The parent that a decision was made on; empty: there is no such decision."""
        ...

    def told(
        self, selected: Sequence[Selected], parents: Collection[ObjectKey], applications: Collection[Application]
    ) -> AsyncIterator[LoggedRecord]:
        """Records about objects, and the receipts of what applications wrote for parents."""
        ...

    async def records(self, sequences: Collection[int]) -> list[LoggedRecord]:
        """Some records, as far as they are there."""
        ...

    async def intents(
        self, entries: Sequence[DecisionEntry], receipts: dict[str, tuple[int, ReceiptNoted]]
    ) -> dict[str, PastIntent]:
        """The writes of decisions, by key."""
        ...

    async def levels(self, wanted: LevelQuery, *, after: LevelPlace | None, most: int) -> list[LevelPlace]:
        """At most so many levels, after the last one of the page before."""
        ...

    async def count_levels(self) -> dict[str, int]:
        """How many levels have each status."""
        ...

    async def views(self) -> list[str]:
        """Names of the views, sorted."""
        ...


class LivePast:
    """The past of applications that may be running."""

    def __init__(self, stream: LogStream, database: Database, scopes: Sequence[Scope]) -> None:
        self.stream = stream
        self.database = database
        self.scopes = [each for each in scopes if each.cluster == stream.cluster]
        self.source: RecordSource = LogSource(stream)
        self._log_began = datetime.fromisoformat(stream.identity.created)

    @property
    def name(self) -> str:
        """The applications."""
        return ", ".join(each.application for each in self.scopes)

    async def decided(self, shown: Shown) -> list[DecisionEntry]:
        """Reads SQL."""
        return [
            entry
            for scope in self.scopes
            async for entry in decisions_on(self.database, scope, shown.selected, shown.has, log_began=self._log_began)
        ]

    async def parent_of(self, ordinal: int) -> str:
        """Reads one row."""
        async with self.database.reading() as connection:
            for scope in self.scopes:
                if parent := await read_parent(connection, scope, ordinal):
                    return parent
        return ""

    def told(
        self, selected: Sequence[Selected], parents: Collection[ObjectKey], applications: Collection[Application]
    ) -> AsyncIterator[LoggedRecord]:
        """Reads the partitions of the parents, as to receipts."""
        partitions = {partition_of(each, self.stream.partitions) for each in parents}
        subjects = [
            receipt_subject(self.stream.cluster, partition, application)
            for partition in sorted(partitions)
            for application in applications
        ]
        return read_about(self.stream, selected, receipts=subjects)

    async def records(self, sequences: Collection[int]) -> list[LoggedRecord]:
        """One request for each."""
        found = [await self.stream.record_at(LogSequence(each)) for each in sorted(sequences)]
        return [each for each in found if each is not None]

    async def intents(
        self,
        entries: Sequence[DecisionEntry],
        receipts: dict[str, tuple[int, ReceiptNoted]],  # noqa: ARG002
    ) -> dict[str, PastIntent]:
        """Reads SQL, which knows how far each is."""
        found: dict[str, PastIntent] = {}
        async with self.database.reading() as connection:
            for scope in self.scopes:
                keys = [
                    key for each in entries if each.application == scope.application for key in each.decision.intents
                ]
                found |= await read_intents(PastIntent, connection, scope, keys) if keys else {}
        return found

    async def levels(self, wanted: LevelQuery, *, after: LevelPlace | None, most: int) -> list[LevelPlace]:
        """Applications one after the other, each in the order."""
        found: list[LevelPlace] = []
        async with self.database.reading() as connection:
            for scope in self.scopes:
                if after is not None and scope.application < after.application:
                    continue
                last = after.line if after is not None and scope.application == after.application else None
                lines = await read_level_page(connection, scope, wanted, after=last, most=most - len(found))
                found += [LevelPlace(scope.application, each) for each in lines]
                if after is None and (waiting := await self._waiting(connection, scope, wanted, most)):
                    found = [LevelPlace(scope.application, each) for each in waiting] + found
                if len(found) >= most:
                    break
        return found

    async def _waiting(
        self, connection: AsyncConnection, scope: Scope, wanted: LevelQuery, most: int
    ) -> list[LevelLine]:
        """What has no level yet: on the first page, some of them."""
        waiting = await read_unlevelled(connection, scope, view=wanted.view, name=wanted.name)
        chosen = [each for each in waiting if not wanted.statuses or each.status in wanted.statuses]
        return await with_waits(connection, scope, chosen[: most // 4], are_few=True)

    async def count_levels(self) -> dict[str, int]:
        """Reads an index."""
        counts: Counter[str] = Counter()
        async with self.database.reading() as connection:
            for scope in self.scopes:
                counts.update(await count_levels(connection, scope))
        return counts

    async def views(self) -> list[str]:
        """Of the code that runs."""
        async with self.database.reading() as connection:
            found = [each for scope in self.scopes for each in await read_handlers(connection, scope)]
        return sorted({each.name for each in found if each.kind == "view"})


class BundlePast:
    """The past in a file; each question reads the file, which does not change."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.source: RecordSource = bundle
        self._levels: list[LevelLine] | None = None

    @property
    def name(self) -> str:
        """The application and the file."""
        return f"{self.bundle.origin.application} in {self.bundle.path.name}"

    async def decided(self, shown: Shown) -> list[DecisionEntry]:
        """One pass."""
        return [entry async for entry in self.bundle.entries(shown.has)]

    async def parent_of(self, ordinal: int) -> str:
        """One pass."""
        async for decision in self.bundle.decisions():
            if decision.ordinal == ordinal:
                return decision.parent
        return ""

    def told(
        self,
        selected: Sequence[Selected],
        parents: Collection[ObjectKey],  # noqa: ARG002
        applications: Collection[Application],  # noqa: ARG002
    ) -> AsyncIterator[LoggedRecord]:
        """One pass."""
        return self.bundle.about(selected, has_receipts=True)

    async def records(self, sequences: Collection[int]) -> list[LoggedRecord]:
        """One pass."""
        if not sequences:
            return []
        start = min(sequences)
        return [each async for batch in self.bundle.records(start) for each in batch if each.sequence in sequences]

    async def intents(
        self, entries: Sequence[DecisionEntry], receipts: dict[str, tuple[int, ReceiptNoted]]
    ) -> dict[str, PastIntent]:
        """What became of each, by its receipt."""
        return {
            asked.key: _past_intent(entry, number, asked, receipts.get(asked.key))
            for entry in entries
            for number, asked in enumerate(entry.writes)
        }

    async def levels(self, wanted: LevelQuery, *, after: LevelPlace | None, most: int) -> list[LevelPlace]:
        """One pass."""
        lines = [
            each
            for each in await self._lines()
            if (not wanted.statuses or each.status in wanted.statuses)
            and (not wanted.view or is_named(wanted.view, each.view))
            and (not wanted.name or ends(wanted.name, each.parent))
        ]
        ordered = in_order(lines, wanted.order)
        names = [(each.view, each.parent) for each in ordered]
        begin = names.index((after.line.view, after.line.parent)) + 1 if after is not None else 0
        return [LevelPlace(self.bundle.origin.application, each) for each in ordered[begin : begin + most]]

    async def count_levels(self) -> dict[str, int]:
        """One pass."""
        return Counter(each.status for each in await self._lines())

    async def views(self) -> list[str]:
        """Of which there are decisions."""
        return sorted({each.view for each in await self._lines()})

    async def _lines(self) -> list[LevelLine]:
        """Levels at the end of the bundle: the newest decision on each parent that is there."""
        if self._levels is not None:
            return self._levels
        there: dict[str, str] = {}
        async for batch in self.bundle.records():
            for logged in batch:
                if isinstance(logged.record, ObjectSeen | ObjectDeleted):
                    record = logged.record
                    there[str(record.key)] = record.uid if isinstance(record, ObjectSeen) else ""
        found: dict[tuple[str, str], LevelLine] = {}
        async for decision in self.bundle.decisions():
            level = decision.view, decision.parent
            before = found.get(level)
            is_same = before is not None and before.status == decision.status
            found[level] = LevelLine(
                view=decision.view,
                parent=decision.parent,
                status=decision.status,
                reason=decision.reason,
                drift=decision.drift,
                round=decision.round,
                evaluated_at=decision.decided_at,
                since=before.since if before is not None and is_same else decision.decided_at,
            )
            if there.get(decision.parent, decision.parent_uid) != decision.parent_uid:
                del found[level]
        self._levels = list(found.values())
        return self._levels


def _past_intent(entry: DecisionEntry, number: int, asked: Asked, noted: tuple[int, ReceiptNoted] | None) -> PastIntent:
    receipt = noted[1] if noted is not None else None
    is_satisfied = asked.key in entry.decision.basis.satisfied
    states = {"written": "settled", "unchanged": "settled", "gone": "settled"}
    state = states.get(receipt.outcome, "failed") if receipt else "satisfied" if is_satisfied else "pending"
    return PastIntent(
        key=asked.key,
        view=entry.decision.view,
        parent=entry.decision.parent,
        verb=asked.verb,
        target=asked.target,
        is_watched=asked.verb != "call",
        state=state,
        error=receipt.error if receipt else "",
        result_uid=receipt.target_uid if receipt else "",
        result_version=receipt.target_version if receipt else 0,
        round=entry.decision.round,
        ordinal=number,
        target_uid="",
        attempts=receipt.attempts if receipt else 0,
        decided_at=entry.decision.decided_at,
        receipt=None,
    )
