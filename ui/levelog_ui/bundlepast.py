"""The past in a bundle: each question reads the file, which does not change."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_history.reach import Moment, refuse_beyond
from levelog_history.records import RecordSource
from levelog_history.selection import Selected, Shown
from levelog_history.timeline import DecisionEntry
from levelog_replay.bundles.reading import Bundle
from levelog_store.decide.decisions import Asked, Decision, PastIntent
from levelog_store.look.levelpages import LevelQuery
from levelog_store.look.overview import LevelLine, WriteLine
from levelog_store.look.recall import Woke, take_woke
from levelog_store.look.refusals import FailedBefore
from levelog_ui.places import LevelName, LevelPlace, line_of, page_of


class BundlePast:
    """The past in a file; each question reads the file, which does not change."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.source: RecordSource = bundle
        self._levels: dict[Moment, list[LevelLine]] = {}
        """At the moment that was asked about last."""

    @property
    def name(self) -> str:
        """The application and the file."""
        return f"{self.bundle.origin.application} in {self.bundle.path.name}"

    async def decided(self, shown: Shown) -> list[DecisionEntry]:
        """One pass."""
        return [entry async for entry in self.bundle.entries(shown.has)]

    async def parent_of(self, ordinal: int) -> str:
        """One pass."""
        async with aclosing(self.bundle.decisions()) as decided:
            async for decision, _ in decided:
                if decision.ordinal == ordinal:
                    return decision.parent
        return ""

    def about(self, selected: Sequence[Selected], parents: Collection[ObjectKey]) -> AsyncIterator[LoggedRecord]:
        """One pass."""
        return self.bundle.about(selected, has_receipts=bool(parents))

    async def records(self, sequences: Collection[int]) -> list[LoggedRecord]:
        """One pass."""
        return [each async for each in self.bundle.records(sequences.__contains__)] if sequences else []

    async def intents(
        self, entries: Sequence[DecisionEntry], receipts: dict[str, tuple[int, ReceiptNoted]]
    ) -> dict[str, PastIntent]:
        """The outcome of each, by its receipt."""
        return {
            asked.key: _past_intent(entry, number, asked, receipts.get(asked.key))
            for entry in entries
            for number, asked in enumerate(entry.writes)
        }

    async def levels(self, wanted: LevelQuery, *, skip: int = 0, most: int) -> list[LevelPlace]:
        """One pass."""
        application = self.bundle.origin.application
        places = (LevelPlace(application, each) for each in await self._lines(_END))
        return page_of(places, wanted, skip=skip, most=most)

    async def levels_at(self, moment: Moment) -> list[LevelPlace]:
        """One pass."""
        await refuse_beyond(self.bundle, moment)
        return [LevelPlace(self.bundle.origin.application, each) for each in await self._lines(moment)]

    async def count_levels(self) -> dict[str, int]:
        """One pass."""
        return Counter(each.status for each in await self._lines(_END))

    async def refusals(self, before: Mapping[LevelName, int]) -> dict[LevelName, FailedBefore]:
        """One pass, and another one if writes of these levels have failed."""
        if not before:
            return {}
        application = self.bundle.origin.application
        failed: list[tuple[LevelName, ReceiptNoted]] = []
        async for record in (each.record async for each in self.bundle.records()):
            if isinstance(record, ReceiptNoted) and record.state == "failed" and not record.is_repeated:
                level = application, record.view, str(record.parent)
                if record.round < before.get(level, 0):
                    failed.append((level, record))
        if not failed:
            return {}
        in_sync: dict[LevelName, int] = {}
        async for decision, _ in self.bundle.decisions():
            level = application, decision.view, decision.parent
            if decision.status == "in_sync" and decision.round < before.get(level, 0):
                in_sync[level] = max(in_sync.get(level, 0), decision.round)
        found: dict[LevelName, FailedBefore] = {}
        for level, record in failed:
            if record.round > in_sync.get(level, -1):
                found[level] = FailedBefore(count=found[level].count + 1 if level in found else 1, last=record)
        return found

    async def woke(self, start: Moment) -> dict[int, Woke]:
        """One pass."""
        found: dict[int, Woke] = {}
        async for each, _ in self.bundle.decisions():
            if start.time is None or each.decided_at >= start.time:
                take_woke(found, each.causes.sequences, each.suppressed.sequences, has_written=bool(each.intents))
        return found

    async def views(self) -> list[str]:
        """Of which there are decisions."""
        return sorted({each.view for each in await self._lines(_END)})

    async def _lines(self, moment: Moment) -> list[LevelLine]:
        """Levels at a moment: the newest decision by then on each parent that is there."""
        if (known := self._levels.get(moment)) is not None:
            return known
        there: dict[str, str] = {}
        receipts: dict[str, ReceiptNoted] = {}
        async for logged in self.bundle.records():
            if moment.precedes(logged):
                continue
            if isinstance(record := logged.record, ObjectSeen | ObjectDeleted):
                there[str(record.key)] = record.uid if isinstance(record, ObjectSeen) else ""
            elif isinstance(record, ReceiptNoted):
                receipts[record.key] = record
        found: dict[tuple[str, str], LevelLine] = {}
        uids: dict[tuple[str, str], str] = {}
        async for decision, asked in self.bundle.decisions():
            if moment.has_seen(decision):
                level = decision.view, decision.parent
                before = found.get(level)
                is_same = before is not None and before.status == decision.status
                since = before.since if before is not None and is_same else decision.decided_at
                writes = list(_unsettled(decision, asked, receipts))
                found[level], uids[level] = line_of(decision, since=since, writes=writes), decision.parent_uid
        gone = [level for level in found if there.get(level[1], uids[level]) != uids[level]]
        self._levels = {moment: [line for level, line in found.items() if level not in gone]}
        return self._levels[moment]


_END: Final = Moment(sequence=sys.maxsize)


def _unsettled(decision: Decision, asked: Iterable[Asked], receipts: Mapping[str, ReceiptNoted]) -> Iterator[WriteLine]:
    """Writes of a decision that failed, or of which no answer is recorded."""
    for each in asked:
        receipt = receipts.get(each.key)
        if each.key not in decision.basis.satisfied and (receipt is None or receipt.state == "failed"):
            yield WriteLine(
                verb=each.verb,
                target=each.target,
                state="failed" if receipt else "no answer recorded",
                attempts=receipt.attempts if receipt else 0,
                since=decision.decided_at,
                next_at=None,
                error=receipt.error if receipt else "",
            )


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
        round=entry.decision.round,
        decided_at=entry.decision.decided_at,
        is_watched=asked.verb != "call",
        state=state,
        error=receipt.error if receipt else "",
        result_uid=receipt.target_uid if receipt else "",
        result_version=receipt.target_version if receipt else 0,
        ordinal=number,
        target_uid="",
        attempts=receipt.attempts if receipt else 0,
        receipt=None,
    )
