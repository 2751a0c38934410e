"""Deleting what the log has outlived, once in a while, by whoever owns the first partition."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from levelog_log.stream import LogStream
from levelog_store.database import Database
from levelog_store.leases import guard
from levelog_store.pruning import PAGE, prune
from levelog_store.scopes import Scope

log = logging.getLogger(__name__)

PARTITION: Final = 0
"""Its owner prunes, for all partitions."""
PRUNE_EVERY: Final = timedelta(hours=1)
PAUSE: Final = timedelta(milliseconds=100)
"""Between two pages, so that folding goes on."""


class Pruner:
    """Prunes the tables of one application while a lease is held."""

    def __init__(self, database: Database, scope: Scope, stream: LogStream) -> None:
        self._database = database
        self._scope = scope
        self._stream = stream

    async def run(self, epochs: Mapping[int, int]) -> None:
        """Prune now and then, until cancelled; `epochs` are the leases, among them that of `PARTITION`.

        Raises LeaseLost, Unavailable, and IdentityMismatch if the log is gone.
        """
        while True:
            await self.prune(epochs)
            await asyncio.sleep(PRUNE_EVERY.total_seconds())

    async def prune(self, epochs: Mapping[int, int]) -> None:
        """Delete all that is older than the log as it is now."""
        first = (await self._stream.state()).first_seq
        deleted = Counter[str]()
        is_full = first > 1
        while is_full:
            async with self._database.transaction(durable=False) as connection:
                await guard(connection, self._scope, {PARTITION: epochs[PARTITION]})
                page = await prune(connection, self._scope.number, first)
            deleted.update(page)
            if is_full := PAGE in page.values():
                await asyncio.sleep(PAUSE.total_seconds())
        if total := deleted.total():
            shown = ", ".join(f"{count} of {table}" for table, count in sorted(deleted.items()) if count)
            log.info("deleted %d rows that are older than the log: %s", total, shown, extra={"sequence": first})
