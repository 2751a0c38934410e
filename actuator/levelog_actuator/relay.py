"""Publishes receipts to the log: of writes as they come, of calls once they are stored; again those that it lacks.

It has the rows of intents keep what the log does not take, and note what it has. That need not be durable: of a receipt
that is in neither, the claim ends, and the target is looked at. It ends no intent: the processor that folds a receipt
does. It never reaches the API.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from levelog.absence import level_of
from levelog.effects import Call
from levelog.handlers.callnames import NOT_CALLED, call_target, only_notes, shown_write, title_of
from levelog.handlers.indexers import called_parent
from levelog_actuator.outbox import Outbox
from levelog_actuator.results import Ended
from levelog_base.counting import counted
from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application, ObjectKey, Uid
from levelog_base.wire.records import CallNoted, ReceiptNoted
from levelog_log.messages import MessageWriter, RecordTooLarge
from levelog_log.notifications import Listener
from levelog_log.publisher import BatchPublisher
from levelog_log.transport.wire import Message
from levelog_store.actuate import outcomes
from levelog_store.actuate.outcomes import ClaimReceipt
from levelog_store.fold import calls

log = logging.getLogger(__name__)

BATCH: Final = 500
"""Receipts in one atomic batch of the log."""
MOST_WAITING: Final = 10_000
"""Receipts kept in memory while the log is away; more are read from the database afterwards."""
MARKS: Final = 15
"""How often in the time of a claim the rows note which receipts are in the log; a processor that folds them before
that notes it for free."""

_decoder: Final = msgspec.json.Decoder(ReceiptNoted)
_call_decoder: Final = msgspec.json.Decoder(Call[Any, Any])


class Relay(Struct, eq=False):
    """Publishes each receipt to the partition of its parent, at least once.

    The fold ends the intent. Where no processor folds it soon, its row notes that the receipt is in the log, so that
    its target is free for others; and where the log does not take it within a third of the claim, the row keeps it.
    """

    outbox: Outbox
    publisher: BatchPublisher
    writer: MessageWriter
    waiting: deque[ReceiptNoted] = field(default_factory=deque[ReceiptNoted])
    unstored: dict[str, ClaimReceipt] = {}
    """Receipts that no row may have yet, by key."""
    published: list[str] = []
    """Keys of receipts in the log whose rows do not say so yet."""
    mark_at: float = math.inf
    """Time, by the clock of the event loop, at which what was published has waited long enough."""
    news: Listener = field(default_factory=Listener)
    """Receipts were submitted."""
    is_behind: bool = True
    """The database may hold receipts of ours that are neither in the log nor waiting here."""
    left_before: set[str] = set()
    """Keys of others' receipts that the last resync found and left, and of those that the log does not take."""
    too_large: set[str] = set()
    """Keys of receipts that the log does not take; their rows keep them."""

    def submit(self, ended: Ended, time: datetime) -> ReceiptNoted:
        """Take the result of a write; its receipt is kept until a row has it, or the fold has ended its intent."""
        receipt = ended.receipt(self.outbox.scope.application, time, self.outbox.owner)
        _tell(receipt)
        self.unstored[receipt.key] = receipt, ended.intent.claim
        self.waiting.append(receipt)
        self.news.notify()
        return receipt

    def submit_stored(self, receipts: Sequence[ReceiptNoted]) -> None:
        """Take receipts that are in the rows of their intents."""
        for receipt in receipts:
            _tell(receipt)
        if len(self.waiting) + len(receipts) > MOST_WAITING:
            self.is_behind = True
        else:
            self.waiting.extend(receipts)
        self.news.notify()

    async def run(self) -> None:
        """Relay until cancelled. Raises IdentityMismatch if the log is another one now."""
        clock, settings = asyncio.get_running_loop().time, self.outbox.settings
        failures, resync_at = 0, clock()
        while True:
            try:
                await self.flush()
                if clock() >= self.mark_at:
                    await self._mark()
                if self.is_behind or clock() >= resync_at:
                    await self._mark()
                    await self._resync()
                    await self._keep_calls()
                    resync_at = clock() + settings.resync.total_seconds()
                failures = 0
                await self.news.wait(timedelta(seconds=max(0.0, min(resync_at, self.mark_at) - clock())))
            except Unavailable as error:
                failures += 1
                delay = settings.outage_delay(failures).total_seconds()
                log.log(level_of(error), "no receipts are relayed for %.1f s: %s", delay, error)
                await self._try_to_keep()
                self.waiting = deque(receipt for receipt, _ in self.unstored.values())
                self.is_behind = True
                log_absence = self.publisher.stream.connection.absence
                await (log_absence if log_absence.is_on else self.outbox.database.absence).pause(delay)

    async def flush(self) -> None:
        """Relay what waits in memory."""
        while self.waiting:
            batch = [self.waiting.popleft() for _ in range(min(BATCH, len(self.waiting)))]
            await self._relay(batch)

    async def keep(self) -> None:
        """Have the rows keep every receipt that the log may not have."""
        await self._mark()
        await self._store(list(self.unstored.values()), is_relayed=False)

    async def _try_to_keep(self) -> None:
        """The same, or have memory keep them while the database is away.

        That is no more than the claimed intents, and nothing is claimed without the database.
        """
        try:
            await self.keep()
        except Unavailable as error:
            log.log(level_of(error), "%s in memory: %s", counted(len(self.unstored), "receipt"), error)

    async def _mark(self) -> None:
        """Mark in the rows what has reached the log; the fold may have done that already."""
        keys, self.published, self.mark_at = self.published, [], math.inf
        ended = [self.unstored[key] for key in keys if key in self.unstored]
        if relayed := [key for key in keys if key not in self.unstored]:
            await self.outbox.write(outcomes.mark_relayed, relayed)
        await self._store(ended, is_relayed=True)

    async def _store(self, receipts: Sequence[ClaimReceipt], *, is_relayed: bool) -> None:
        if not receipts:
            return
        await self.outbox.write(outcomes.store_receipts, self.outbox.owner, receipts, is_relayed=is_relayed)
        for receipt, _ in receipts:
            self.unstored.pop(receipt.key, None)

    async def _resync(self) -> None:
        """Relay stored receipts: all of them after a start or a failure, otherwise those without an owner.

        Another actuator may be about to relay what it just stored; what two resyncs find was left by one that died.
        """
        is_wanted = self.left_before.__contains__ if not self.is_behind else lambda _key: True
        left: set[str] = set()
        while True:
            found = await self.outbox.read(outcomes.unrelayed, BATCH + len(left))
            new = [row for row in found if row.key not in left]
            wanted = [row for row in new if is_wanted(row.key)]
            left.update(row.key for row in new if not is_wanted(row.key))
            if wanted:
                log.info("catching up: %s, stored earlier, to the log", counted(len(wanted), "receipt"))
                await self._relay([_decoder.decode(row.receipt) for row in wanted])
                await self._mark()  # else they are found again until somebody folds them
                left.update(row.key for row in wanted if row.key in self.too_large)
            if len(new) < BATCH:
                break
        self.left_before, self.is_behind = left, False

    async def _keep_calls(self) -> None:
        """Record again what effects did: in a new log, and before this one forgets it.

        Origin of the period: the tables may be lost, and filled from the log again, three times while a record lasts.
        """
        outbox, age = self.outbox, self.publisher.stream.max_age
        if not await outbox.read(calls.is_time_to_record, age / 4 if age else None):
            return
        last, count = None, 0
        while found := await outbox.read(calls.read_calls, BATCH, after=last):
            messages = self._messages([_again(call, outbox.scope.application) for call in found])
            if messages:
                await self.publisher.publish([message for _, message in messages])
            last, count = found[-1], count + len(messages)
        if count:
            log.info("what %s of effects did is recorded again: else the log forgets it", counted(count, "call"))
        await outbox.write(calls.note_recorded)

    async def _relay(self, receipts: Sequence[ReceiptNoted]) -> None:
        messages = self._messages(receipts)
        if not messages:
            return
        lease = self.outbox.settings.lease.total_seconds()
        batch = [message for _, message in messages]
        publishing = asyncio.ensure_future(self.publisher.publish(batch))
        try:
            await asyncio.wait((publishing,), timeout=lease / 3)
            if not publishing.done():
                await self._try_to_keep()
            await publishing
        finally:
            publishing.cancel()
        if not self.published:
            self.mark_at = asyncio.get_running_loop().time() + lease / MARKS
        self.published += [key for key, _ in messages]

    def _messages(self, receipts: Sequence[ReceiptNoted]) -> list[tuple[str, Message]]:
        """Key and message of receipts, without those that the log does not take."""
        found: list[tuple[str, Message]] = []
        for receipt in receipts:
            try:
                message = self.writer.message(receipt)
            except RecordTooLarge as error:
                if receipt.key not in self.too_large:
                    self.too_large.add(receipt.key)
                    said = "%s waits, as the log does not take what came of it, until NATS takes larger messages: %s"
                    write = shown_write(receipt.view, receipt.verb, str(receipt.target))
                    log.error(said, write, error, extra={"object": str(receipt.parent), "intent": receipt.key})  # noqa: TRY400 - the message says it
            else:
                self.too_large.discard(receipt.key)
                found.append((receipt.key, message))
        return found


def _tell(receipt: ReceiptNoted) -> None:
    is_call, target = receipt.verb == "call", str(receipt.target)
    level = logging.INFO if receipt.outcome not in {"failed", "conflict"} else logging.WARNING
    is_note = only_notes(receipt.view, target, receipt.call)
    if is_note or (is_call and level == logging.INFO and title_of(receipt.view, target).startswith("note ")):
        level = logging.DEBUG
    if not log.isEnabledFor(level):
        return
    step = title_of(receipt.view, target) if is_call else f"{receipt.verb} {target}"
    error = receipt.error.removeprefix(f"{step}: ")  # it names the step by itself, for those who see nothing else
    log.log(
        level,
        "%s: %s%s",
        shown_write(receipt.view, receipt.verb, target),
        NOT_CALLED if is_note else "done" if is_call and receipt.outcome == "written" else receipt.outcome,
        f": {error}" if error else "",
        extra={
            "object": str(receipt.parent) if is_call else target,
            "intent": receipt.key,
            "view": receipt.view,
            "parent": str(receipt.parent),
            "outcome": receipt.outcome,
            "version": receipt.target_version,
            "attempts": receipt.attempts,
        },
    )


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
        target=call_target(operator, effect, parent.namespace, parent.name),
        outcome="written",
        attempts=0,
        call=CallNoted(name=call.name, request=call.request, result=call.result),
        called_at=call.called_at,
        time=datetime.now(UTC),
    )
