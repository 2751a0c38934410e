"""Reads the log a second time, for record handlers: only the subjects that they need, in the leased partitions."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from levelog_base.errors import HistoryLost
from levelog_base.wire.objects import ObjectKey, Partition
from levelog_base.wire.objects import Sequence as LogSequence
from levelog_base.wire.records import LoggedRecord
from levelog_base.wire.subjects import object_subject, resource_subjects
from levelog_log.reader import Reader
from levelog_log.stream import LogStream
from levelog_processors.deliver.delivery import Delivery
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

BATCH: Final = 256
"""Records that are handled between two commits of the positions."""
NOTE_EVERY: Final = timedelta(seconds=30)
"""How often positions move that no record moves, so that what expires is behind them."""


class RecordFeed:
    """Reads the log for the record handlers of one processor."""

    def __init__(self, database: Database, scope: Scope, program: Program, stream: LogStream) -> None:
        self._stream = stream
        self._resources = {each.reader.resource.group_resource for each in program.record_handlers.values()}
        self._partitions = scope.partitions
        self.delivery = Delivery(database, scope, program, self._read_object)

    async def run(self, partitions: Collection[int]) -> None:
        """Feed the handlers, until cancelled. Raises LeaseLost; HistoryLost if the log is another one."""
        while True:
            try:
                await self._read(partitions)
            except HistoryLost as lost:
                await self._pass_by_expired(lost)

    async def _pass_by_expired(self, lost: HistoryLost) -> None:
        """Go on where the log begins; raises the error if it begins before."""
        first, read_to = (await self._stream.state()).first_seq, self.delivery.read_to
        if first <= read_to + 1:
            raise lost
        for handler, position in self.delivery.behind(first - 1).items():
            said = "%s was not called for records %d to %d, which have expired: %s"
            log.error(said, handler, position + 1, first - 1, lost)
            self.delivery.on_expired(handler)
        await self.delivery.note(first - 1)

    async def _read(self, partitions: Collection[int]) -> None:
        delivery, clock = self.delivery, asyncio.get_running_loop().time
        start = LogSequence(delivery.read_to + 1)
        async with Reader(self._stream, start=start, subjects=self._subjects(partitions)) as reader:
            reader.on_arrival = delivery.listener.notify
            noted_at = clock()
            while True:
                records = await self._next(reader)
                if records:
                    await delivery.deliver(records, records[-1].sequence)
                await delivery.step()
                if clock() - noted_at >= NOTE_EVERY.total_seconds():
                    noted_at = clock()
                    await delivery.note(await reader.confirm())

    def _subjects(self, partitions: Collection[int]) -> list[str]:
        cluster = self._stream.cluster
        wildcards = [resource_subjects(cluster, each) for each in sorted(self._resources, key=str)]
        if len(partitions) == self._partitions:
            return wildcards
        return [each.replace(".*.", f".{partition}.", 1) for each in wildcards for partition in sorted(partitions)]

    async def _next(self, reader: Reader) -> list[LoggedRecord]:
        """Records that have come; none once a function has returned, or something is due."""
        wait = NOTE_EVERY
        if reader.has_arrived or self.delivery.is_busy:
            wait = timedelta(0)
        elif (due := self.delivery.due_at) is not None:
            wait = min(wait, max(due - datetime.now(UTC), timedelta(0)))
        await self.delivery.listener.wait(wait)
        return await reader.next_batch(BATCH, timedelta(0))

    async def _read_object(
        self, key: ObjectKey, partition: int, after: int, upto: int
    ) -> tuple[Sequence[LoggedRecord], int | None]:
        subject = object_subject(self._stream.cluster, key, Partition(partition))
        found: list[LoggedRecord] = []
        async for logged in self._stream.records_of(subject, after=LogSequence(after)):
            if logged.sequence > upto:
                break
            if len(found) == BATCH:
                return found, logged.sequence
            found.append(logged)
        return found, None
