"""What the rows of intents have of receipts of writes: which the log has, and the receipts that it may not have.

It writes the table `intents` alone, and need not be durable: a receipt that is in neither is a claim that ends, and its
target is looked at. It publishes nothing; `relay.py` does.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from levelog.absence import level_of
from levelog_actuator.outbox import Outbox
from levelog_base.counting import counted
from levelog_base.errors import Unavailable
from levelog_base.wire.records import ReceiptNoted
from levelog_store.actuate import outcomes
from levelog_store.actuate.outcomes import ClaimReceipt

log = logging.getLogger(__name__)

MARKS: Final = 15
"""How often in the time of a claim the rows note which receipts are in the log; a processor that folds them before
that notes it for free."""


class ReceiptRows(Struct, eq=False):
    """The receipts of one process that no row may have, and those in the log whose rows do not say so."""

    outbox: Outbox
    unstored: dict[str, ClaimReceipt] = {}
    """Receipts that no row may have yet, by key."""
    published: list[str] = []
    """Keys of receipts in the log whose rows do not say so yet."""
    mark_at: float = math.inf
    """Time, by the clock of the event loop, at which what was published has waited long enough."""

    @property
    def receipts(self) -> list[ReceiptNoted]:
        """Those that no row may have."""
        return [receipt for receipt, _ in self.unstored.values()]

    def add(self, receipt: ReceiptNoted, claim: int) -> None:
        """Take a receipt that no row has; it is kept until one has it, or the fold has ended its intent."""
        self.unstored[receipt.key] = receipt, claim

    def note_published(self, keys: Iterable[str]) -> None:
        """Take note that the log has these."""
        if not self.published:
            self.mark_at = asyncio.get_running_loop().time() + self.outbox.settings.lease.total_seconds() / MARKS
        self.published += keys

    async def mark(self) -> None:
        """Mark in the rows what has reached the log; the fold may have done that already."""
        keys, self.published, self.mark_at = self.published, [], math.inf
        ended = [self.unstored[key] for key in keys if key in self.unstored]
        if relayed := [key for key in keys if key not in self.unstored]:
            await self.outbox.write(outcomes.mark_relayed, relayed)
        await self._store(ended, is_relayed=True)

    async def keep(self) -> None:
        """Have the rows keep every receipt that the log may not have."""
        await self.mark()
        await self._store(list(self.unstored.values()), is_relayed=False)

    async def try_to_keep(self) -> None:
        """The same, or have memory keep them while the database is away.

        That is no more than the claimed intents, and nothing is claimed without the database.
        """
        try:
            await self.keep()
        except Unavailable as error:
            log.log(level_of(error), "%s in memory: %s", counted(len(self.unstored), "receipt"), error)

    async def _store(self, receipts: Sequence[ClaimReceipt], *, is_relayed: bool) -> None:
        if not receipts:
            return
        await self.outbox.write(outcomes.store_receipts, self.outbox.owner, receipts, is_relayed=is_relayed)
        for receipt, _ in receipts:
            self.unstored.pop(receipt.key, None)
