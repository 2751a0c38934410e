"""From which record on something comes out in every order of those that the log did not order, and which two race.

The log orders the records of one partition. A record that came of a write follows what that write was decided on; all
others might have come in another order, and are tried in one.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_history.records import Recording
from levelog_processors.program import Program
from levelog_replay.inorder import LogReplay
from levelog_replay.travel.edits import PastWrites
from levelog_replay.travel.expressions import Expression, PastState

AHEAD: Final = 50
"""Records after the symptom that might have come before it."""


class Inevitable(Struct, frozen=True, kw_only=True):
    """The outcomes of the orders that were tried."""

    symptom: int
    """The record after which it holds in the order of the log."""
    since: int
    """Once this record is there, it comes out in every order that was tried."""
    race: tuple[int, int] | None
    """If the second of these records comes before the first, it does not come out; None: no order avoids it."""
    orders: int
    """The number of orders tried."""
    is_bounded: bool
    """There are more, which were not tried."""


class _Ordered:
    """Records in some order, numbered by their places."""

    def __init__(self, history: Recording, records: Sequence[LoggedRecord]) -> None:
        self.origin, self.first, self.last = history.origin, history.first, records[-1].sequence
        self._records = records

    async def records(self) -> AsyncGenerator[LoggedRecord]:
        for each, place in zip(self._records, sorted(each.sequence for each in self._records), strict=True):
            yield replace(each, sequence=place)


class Orders:
    """Tries orders of a history, each from its beginning."""

    def __init__(
        self, history: Recording, expression: Expression, program: Program, replay: Callable[..., LogReplay], most: int
    ) -> None:
        """`replay` makes one of a history and a program; `most` is how many orders are tried."""
        self._history = history
        self._expression = expression
        self._program = program
        self._replay = replay
        self._most = most
        self._after: dict[int, int] = {}
        """For records that came of a write, the last record that its decision had seen."""
        self.orders = 0

    async def run(self) -> Inevitable | None:
        """Go back from where the expression holds first; None: it does not. Raises as expressions do."""
        written = await PastWrites.read(self._history)
        records = [each async for each in self._history.records()]
        decided: dict[str, int] = {}
        symptom = await self._holds_at(records, written, decided)
        if symptom is None:
            return None
        self._note_causes(records, decided)
        at = next(number for number, each in enumerate(records) if each.sequence == symptom)
        records = records[: at + AHEAD + 1]
        for number in range(at, -1, -1):
            if not _may_move(records[number]):
                continue
            for others in self._extremes(records, number):
                if self.orders >= self._most:
                    return self._inevitable(symptom, records[number + 1 if number < at else at].sequence, None, True)
                if await self._avoids(records, number, others, written):
                    race = await self._race(records, number, others, written)
                    return self._inevitable(symptom, records[number].sequence, (records[number].sequence, race), False)
        first = next((each.sequence for each in records if _may_move(each)), symptom)
        return self._inevitable(symptom, first, None, False)

    def _inevitable(self, symptom: int, since: int, race: tuple[int, int] | None, is_bounded: bool) -> Inevitable:
        return Inevitable(symptom=symptom, since=since, race=race, orders=self.orders, is_bounded=is_bounded)

    async def _avoids(
        self, records: Sequence[LoggedRecord], number: int, others: Sequence[int], written: PastWrites
    ) -> bool:
        """Tell whether it does not come out if some later records come before one."""
        self.orders += 1
        ahead = set(others)
        kept = (each for at, each in enumerate(records[number:], start=number) if at not in ahead)
        order = [*records[:number], *(records[each] for each in others), *kept]
        return await self._holds_at(order, written, {}) is None

    async def _race(
        self, records: Sequence[LoggedRecord], number: int, others: Sequence[int], written: PastWrites
    ) -> int:
        """The first of the records that, with those before it, has to come earlier."""
        for count in range(1, len(others)):
            if await self._avoids(records, number, others[:count], written):
                return records[others[count - 1]].sequence
        return records[others[-1]].sequence

    async def _holds_at(
        self, records: Sequence[LoggedRecord], written: PastWrites, decided: dict[str, int]
    ) -> int | None:
        """After which record it begins to hold; takes down after which records writes were decided, by their keys."""
        history = _Ordered(self._history, records)
        replay = self._replay(history, self._program, claimant=written)
        try:
            past = PastState(replay.state, replay.state.levels, replay.writes)
            holds = self._expression.on(past)
            held = holds(0)
            async with aclosing(replay.run()) as run:
                async for logged in run:
                    past.follow(None)
                    decided |= dict.fromkeys(replay.keys - decided.keys(), logged.sequence)
                    was, held = held, holds(logged.sequence)
                    if held and not was:
                        return logged.sequence
        finally:
            await replay.close()
        return None

    def _note_causes(self, records: Iterable[LoggedRecord], decided: dict[str, int]) -> None:
        written: dict[tuple[str, int], int] = {}
        for logged in records:
            record = logged.record
            if isinstance(record, ReceiptNoted) and record.key in decided:
                self._after[logged.sequence] = decided[record.key]
                written[str(record.target), record.target_version] = decided[record.key]
        for logged in records:
            record = logged.record
            if isinstance(record, ObjectSeen | ObjectDeleted) and (str(record.key), record.version) in written:
                self._after[logged.sequence] = written[str(record.key), record.version]

    def _extremes(self, records: Sequence[LoggedRecord], number: int) -> Iterator[list[int]]:
        """Later records that may come before one: those of each other partition by themselves, and all together."""
        own, start = records[number].partition, records[number].sequence
        found: dict[int, list[int]] = {}
        ended = {own}
        for at in range(number + 1, len(records)):
            each = records[at]
            if each.partition in ended:
                continue
            if not _may_move(each) or self._after.get(each.sequence, 0) >= start:
                ended.add(each.partition)
            else:
                found.setdefault(each.partition, []).append(at)
        yield from found.values()
        if len(found) > 1:
            yield sorted(at for part in found.values() for at in part)


def _may_move(logged: LoggedRecord) -> bool:
    return isinstance(logged.record, ObjectSeen | ObjectDeleted | ReceiptNoted)
