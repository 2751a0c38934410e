"""Publishes stored receipts to the log, including those of an earlier process."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from levelog.absence import level_of
from levelog.counting import counted
from levelog.effects import GROUP, Call
from levelog.errors import Unavailable
from levelog.handlers.indexers import called_parent
from levelog.wire.objects import Application, ObjectKey, Uid
from levelog.wire.records import CallNoted, ReceiptNoted
from levelog_actuator.ledger import TakenResults
from levelog_actuator.limits import ActuatorSettings
from levelog_actuator.results import stored
from levelog_log.messages import MessageWriter
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate import outcomes
from levelog_store.connect.database import Database
from levelog_store.fold import calls
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

BATCH: Final = 500
"""Receipts in one atomic batch of the log."""
MOST_WAITING: Final = 10_000
"""Receipts kept in memory while the log is away; more are read from the database afterwards."""

MARKS: Final = 15
"""In the time of a claim: so often it is noted in the rows what is in the log. A processor that folds it before does so
at no cost of its own."""

_decoder: Final = msgspec.json.Decoder(ReceiptNoted)
_call_decoder: Final = msgspec.json.Decoder(Call[Any, Any])


class Relay:
    """Publishes each receipt to the partition of its parent, at least once.

    The fold ends the intent. Where no processor folds it soon, its row notes that the receipt is in the log, so that
    its target is free for others; and where the log does not take it within a third of the claim, the row keeps it.
    """

    def __init__(
        self, database: Database, scope: Scope, owner: str, publisher: BatchPublisher, settings: ActuatorSettings
    ) -> None:
        """`owner`: who claims the intents whose receipts are submitted."""
        self._database = database
        self._scope = scope
        self._owner = owner
        self._publisher = publisher
        self._settings = settings
        self._writer = MessageWriter(scope.cluster, scope.partitions, "actuator")
        self._waiting: deque[ReceiptNoted] = deque()
        self._published: list[str] = []
        """Keys of receipts in the log of which that is not noted yet."""
        self._unstored: dict[str, tuple[ReceiptNoted, int]] = {}
        """Receipts that no row may have yet, each with the number of its claim, by key."""
        self._mark_at = math.inf
        """By the clock of the event loop; what was published then has waited long enough."""
        self._has_work = asyncio.Event()
        self._is_publishing = False
        self._is_behind = True
        """The database may hold receipts of ours that are neither in the log nor waiting here."""
        self._seen: set[str] = set()
        """Keys of others' receipts that the last sweep found and left."""

    @property
    def is_publishing(self) -> bool:
        """Receipts are on their way to the log."""
        return bool(self._waiting) or self._is_publishing

    def submit(self, taken: TakenResults) -> None:
        """Take receipts; those that are not stored are kept until they are, or the fold has ended their intents."""
        receipts = taken.receipts
        if not taken.is_stored:
            self._unstored |= {receipt.key: (receipt, taken.claims[receipt.key]) for receipt in receipts}
        if taken.is_stored and len(self._waiting) + len(receipts) > MOST_WAITING:
            self._is_behind = True
        else:
            self._waiting.extend(receipts)
        self._has_work.set()

    async def run(self) -> None:
        """Relay until cancelled. Raises IdentityMismatch if the log is not the one that it was."""
        clock = asyncio.get_running_loop().time
        failures, sweep_at = 0, clock()
        while True:
            try:
                await self.flush()
                if clock() >= self._mark_at:
                    await self.mark()
                if self._is_behind or clock() >= sweep_at:
                    await self.mark()
                    await self._sweep()
                    await self._keep_calls()
                    sweep_at = clock() + self._settings.sweep.total_seconds()
                failures = 0
                await self._wait_until(min(sweep_at, self._mark_at))
            except Unavailable as error:
                failures += 1
                delay = self._settings.outage_delay(failures).total_seconds()
                log.log(level_of(error), "no receipts are relayed for %.1f s: %s", delay, error)
                await self._keep_for_later()
                self._waiting = deque(receipt for receipt, _ in self._unstored.values())
                self._is_behind = True
                log_absence = self._publisher.stream.connection.absence
                await (log_absence if log_absence.is_on else self._database.absence).pause(delay)

    async def flush(self) -> None:
        """Relay what waits in memory."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            await self._relay(batch)

    async def mark(self) -> None:
        """Mark in the rows what has reached the log; the fold may have done that already."""
        keys, self._published, self._mark_at = self._published, [], math.inf
        ended = [self._unstored[key] for key in keys if key in self._unstored]
        if relayed := [key for key in keys if key not in self._unstored]:
            async with self._database.transaction(durable=False) as connection:
                await outcomes.mark_relayed(connection, self._scope, relayed)
        await self._store(ended, is_relayed=True)

    async def keep(self) -> None:
        """Have the rows keep every receipt that the log may not have."""
        await self.mark()
        await self._store(list(self._unstored.values()), is_relayed=False)

    async def _store(self, receipts: Sequence[tuple[ReceiptNoted, int]], *, is_relayed: bool) -> None:
        if not receipts:
            return
        rows = [stored(receipt, claim, is_relayed=is_relayed) for receipt, claim in receipts]
        async with self._database.transaction(durable=False) as connection:
            await outcomes.store_receipts(connection, self._scope, self._owner, rows)
        for row in rows:
            self._unstored.pop(row.key, None)

    async def _keep_for_later(self) -> None:
        """Store what the log does not take; while the database is away too, keep it in memory.

        That is no more than the claimed intents, and nothing is claimed without the database.
        """
        try:
            await self.keep()
        except Unavailable as error:
            log.log(level_of(error), "%s in memory: %s", counted(len(self._unstored), "receipt"), error)

    async def _wait_until(self, moment: float) -> None:
        try:
            async with asyncio.timeout_at(moment):
                await self._has_work.wait()
        except TimeoutError:
            return
        self._has_work.clear()

    async def _sweep(self) -> None:
        """Relay stored receipts: all of them after a start or a failure, otherwise those without an owner.

        Another actuator may be about to relay what it just stored; what two sweeps find was left by one that died.
        """
        is_wanted = self._seen.__contains__ if not self._is_behind else lambda _key: True
        left: set[str] = set()
        while True:
            async with self._database.reading() as connection:
                rows = await outcomes.unrelayed(connection, self._scope, BATCH + len(left))
            new = [row for row in rows if row.key not in left]
            wanted = [row for row in new if is_wanted(row.key)]
            left.update(row.key for row in new if not is_wanted(row.key))
            if wanted:
                log.info("goes on to the log: %s that were stored earlier", counted(len(wanted), "receipt"))
                await self._relay([_decoder.decode(row.receipt) for row in wanted])
            if len(new) < BATCH:
                break
        self._seen, self._is_behind = left, False

    async def _keep_calls(self) -> None:
        """Record again what effects did: in a new log, and before this one forgets it.

        Origin of the period: the tables may be lost, and filled from the log again, three times while a record lasts.
        """
        age = self._publisher.stream.max_age
        async with self._database.reading() as connection:
            if not await calls.is_time_to_record(connection, self._scope, age / 4 if age else None):
                return
        last, count = None, 0
        while True:
            async with self._database.reading() as connection:
                found = await calls.read_calls(connection, self._scope, BATCH, after=last)
            if not found:
                break
            records = [_again(call, self._scope.application) for call in found]
            await self._publisher.publish([self._writer.message(record) for record in records])
            last, count = found[-1], count + len(found)
        if count:
            log.info("what %s of effects did is recorded again: else the log forgets it", counted(count, "call"))
        async with self._database.transaction(durable=False) as connection:
            await calls.note_recorded(connection, self._scope)

    async def _relay(self, receipts: Sequence[ReceiptNoted]) -> None:
        publishing = asyncio.ensure_future(
            self._publisher.publish([self._writer.message(receipt) for receipt in receipts])
        )
        self._is_publishing = True
        try:
            await asyncio.wait((publishing,), timeout=self._settings.lease.total_seconds() / 3)
            if not publishing.done():
                await self._keep_for_later()
            await publishing
        finally:
            self._is_publishing = False
            publishing.cancel()
        if not self._published:
            self._mark_at = asyncio.get_running_loop().time() + self._settings.lease.total_seconds() / MARKS
        self._published += [receipt.key for receipt in receipts]


def _again(stored: calls.StoredCall, application: Application) -> ReceiptNoted:
    """The record that repeats a call's result; which view asked for it, and when, is no longer known."""
    call = _call_decoder.decode(stored.value)
    operator, _, effect = stored.index.partition("/")
    parent = ObjectKey.parse(called_parent(stored.object, call.name))
    return ReceiptNoted(
        application=application,
        key=call.idempotency_key,
        view=f"{operator}/",
        parent=parent,
        parent_uid=Uid(msgspec.json.decode(stored.key, type=str)),
        round=0,
        verb="call",
        target=ObjectKey(group=GROUP, resource=effect, namespace=parent.namespace, name=parent.name),
        outcome="written",
        attempts=0,
        call=CallNoted(name=call.name, request=call.request, result=call.result),
        called_at=call.called_at,
        time=datetime.now(UTC),
    )
