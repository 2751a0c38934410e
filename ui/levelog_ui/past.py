"""What the pages show: the log and the databases of applications, or a bundle."""

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Protocol

from levelog.wire.objects import Application, ObjectKey
from levelog.wire.objects import Sequence as LogSequence
from levelog.wire.records import LoggedRecord, ReceiptNoted
from levelog.wire.subjects import partition_of, receipt_subject
from levelog_history.records import LogSource, RecordSource, read_about
from levelog_history.selection import Selected, Shown
from levelog_history.timeline import DecisionEntry, decisions_on
from levelog_log.stream import LogStream
from levelog_replay.bundles.reading import Bundle
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, PastIntent
from levelog_store.look.recall import read_intents, read_parent
from levelog_store.rows import Scope


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


class BundlePast:
    """The past in a file; each question reads the file."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.source: RecordSource = bundle

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
