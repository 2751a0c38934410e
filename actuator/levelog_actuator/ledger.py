"""Stores in the rows of intents what calls did, and which calls and writes are to be tried again.

The receipt of a write does not pass here: it goes to the log at once, by the relay. What is stored is handed on
(`on_stored`): the receipt of a call goes to the relay from there. Where an intent that is to be tried again is one that
its view may withdraw by now, its level is made due, in the table `wakeups`. It never reaches the API or the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from levelog.absence import level_of
from levelog_actuator.outbox import Outbox
from levelog_actuator.results import Ended, Later, Result, about
from levelog_base.counting import counted
from levelog_base.errors import Unavailable
from levelog_base.wire.records import ReceiptNoted
from levelog_store.actuate import outcomes
from levelog_store.fold import levelwrites

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.02
"""How long results wait for those of other requests; a transaction costs about as much as ten results."""


class StoredResults(Struct, frozen=True, kw_only=True):
    """Results that are in the rows of their intents."""

    began: float
    """When storing them began, by the clock of the event loop."""
    receipts: Sequence[ReceiptNoted]
    later: Sequence[Later]
    """Also those whose claims had ended, which are not stored."""
    is_awaited: bool
    """Some other intent waits for one of the targets."""


class Ledger(Struct, eq=False):
    """Stores results in the intents' rows, in order; those that arrive together share a transaction.

    Only the receipt tells what an effect did, so SQL has it before the log; a write shows in its target, so its receipt
    goes to the log at once (`relay.py`). These commits need not be durable: an intent whose commit is lost stays
    claimed, unless the log has its receipt. The next claimant makes the call again with the same key, or, of a write,
    looks at the target.
    """

    outbox: Outbox
    under_way: Collection[object]
    """Writes under way: while there are any, a batch waits `GATHER_SECONDS` for their results."""
    on_stored: Callable[[StoredResults], None]
    on_hastened: Callable[[], Awaitable[None]]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Tells when results came; an actuator's is `OwnClaims.now`, the database's time."""
    results: list[Result] = []
    """Results that are not stored yet."""
    forgotten: set[str] = set()
    """Keys that were forgotten while a batch was being stored; their results are not tried again."""
    has_work: asyncio.Event = field(default_factory=asyncio.Event)
    is_empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Everything that was recorded is stored."""

    def __post_init__(self) -> None:
        self.is_empty.set()

    def record(self, result: Result) -> None:
        """Take a result."""
        self.results.append(result)
        self.is_empty.clear()
        self.has_work.set()

    def forget(self, key: str) -> None:
        """Drop results of an intent that wait to be stored: it is claimed again, and they belong to earlier claims."""
        self.forgotten.add(key)
        self.results = [result for result in self.results if result.intent.key != key]

    async def run(self) -> None:
        """Store until cancelled; while the database is away, results wait."""
        failures = 0
        while True:
            await self.has_work.wait()
            if self.under_way:
                await asyncio.sleep(GATHER_SECONDS)
            self.has_work.clear()
            batch, self.results = self.results, []
            self.forgotten.clear()
            try:
                await self._store(batch)
                failures = 0
            except Unavailable as error:
                failures += 1
                delay = self.outbox.settings.outage_delay(failures).total_seconds()
                intents = counted(len(batch), "intent")
                log.log(level_of(error), "the outcome of %s is not stored for %.1f s: %s", intents, delay, error)
                self.results = [each for each in batch if each.intent.key not in self.forgotten] + self.results
                self.has_work.set()
                await self.outbox.database.absence.pause(delay)
            if not self.results:
                self.is_empty.set()

    async def _store(self, batch: Sequence[Result]) -> None:
        # of an intent that was called again under another claim, the last
        ended = [*{result.intent.key: result for result in batch if isinstance(result, Ended)}.values()]
        later = [result for result in batch if isinstance(result, Later)]
        scope, owner, time = self.outbox.scope, self.outbox.owner, self.clock()
        receipts = [(result.receipt(scope.application, time, owner), result.intent.claim) for result in ended]
        began = asyncio.get_running_loop().time()
        async with self.outbox.database.transaction(durable=False) as connection:
            stored: dict[str, bool] = {}  # whether another intent waits for the same target, by key
            unwanted: set[str] = set()
            given_back = [result.postponement for result in later]
            if receipts:
                beside = [each.key for each in given_back]
                stored = await outcomes.store_receipts(connection, scope, owner, receipts, beside=beside)
            if later:
                unwanted = await outcomes.postpone(connection, scope, owner, given_back)
        for receipt, _ in receipts:
            if receipt.key not in stored:
                log.warning(
                    "the claim ended before the call's result was stored; whoever claims it next calls again, same key",
                    extra={"object": str(receipt.target), "intent": receipt.key, "view": receipt.view},
                )
        for result in later:
            _tell_later(result, is_wanted=result.intent.key not in unwanted)
        own = [receipt for receipt, _ in receipts if receipt.key in stored]
        self.on_stored(StoredResults(began=began, receipts=own, later=later, is_awaited=any(stored.values())))
        await self._hasten([result.intent.key for result in later if not result.is_doubtful])

    async def _hasten(self, keys: Sequence[str]) -> None:
        """Make the levels due that may withdraw these intents; while the database is away, all results wait for it."""
        has_asked, is_done = False, not keys
        while not is_done:
            try:
                for level in await self.outbox.read(levelwrites.read_waiting, keys):
                    has_asked = True  # a commit whose answer is lost may have taken place
                    await self.outbox.write(levelwrites.hasten, level)
                is_done = True
            except Unavailable as error:
                of = counted(len(keys), "intent")
                log.log(level_of(error), "processors that may withdraw %s are not woken yet: %s", of, error)
                await self.outbox.database.absence.pause(self.outbox.settings.outage.total_seconds())
        if has_asked:
            await self.on_hastened()


def _tell_later(result: Later, *, is_wanted: bool) -> None:
    again = f"will be tried again in {result.delay.total_seconds():.1f} s"
    log.log(
        logging.WARNING if result.is_counted else logging.DEBUG,
        "%s: %s",
        again if is_wanted else "is not tried again, as what asked for it is gone",
        result.error,
        extra={**about(result.intent), "outcome": "postponed"},
    )
