"""Record handlers: called for each record in some partitions, in order for each object.

An object is held from the first record that is not handled. Its later records are read from the log again once that
record is handled.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from levelog.handlers.forobjects import RecordHandler
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_processors.deliver.unrecorded import Chain, UnrecordedCalls
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import Place
from levelog_store.rows import Scope, ViewParent

log = logging.getLogger(__name__)

ReadObject: TypeAlias = Callable[[ObjectKey, int, int, int], Awaitable[tuple[Sequence[LoggedRecord], int | None]]]
"""Records of an object in a partition, after a sequence and up to another one; the next one, if that were too many."""


class Delivery(UnrecordedCalls[RecordHandler]):
    """Delivers records to their handlers, one step at a time; the caller reads the log. Steps raise LeaseLost."""

    def __init__(
        self, database: Database, scope: Scope, program: Program, read_object: ReadObject, **options: Any
    ) -> None:
        """`options` are those of `UnrecordedCalls`."""
        super().__init__(database, scope, program.record_handlers, **options)
        self._read_object = read_object
        self._positions: dict[Place, int] = {}
        self.on_expired: Callable[[str], None] = lambda _handler: None
        """Called with a handler of which records have expired before it was called for them."""

    @property
    def read_to(self) -> int:
        """The lowest position."""
        return min(self._positions.values())

    def behind(self, sequence: int) -> dict[str, int]:
        """The lowest position of each handler that has not read up to a sequence."""
        lowest: dict[str, int] = {}
        for (handler, _), position in sorted(self._positions.items()):
            if position < sequence:
                lowest[handler] = min(position, lowest.get(handler, position))
        return lowest

    async def hold(self, epochs: Mapping[int, int], *, start: int | None = None) -> None:
        """Work under these leases from now on, from where the handlers are; new ones begin after `start`, or now.

        To be called before anything is folded under these leases. Raises LeaseLost.
        """
        await self.release()
        async with self._database.transaction() as connection:
            self._positions = await self._take_over(connection, epochs, start=start)
        self._called_to = self._stored_to = self.read_to

    async def deliver(self, records: Sequence[LoggedRecord], read_to: int) -> None:
        """Call the handlers for records, in the order of the log; nothing is left before `read_to`."""
        chains: dict[ViewParent, tuple[Chain[RecordHandler], list[LoggedRecord]]] = {}
        now = self._clock()
        for logged in records:
            record = logged.record
            if not isinstance(record, ObjectSeen | ObjectDeleted):
                continue
            resource = record.key.group_resource
            for source, handler in self._handlers.items():
                if handler.reader.resource.group_resource != resource:
                    continue
                if logged.sequence <= self._positions.get((source, logged.partition), logged.sequence):
                    continue
                name = source, str(record.key)
                if (held := self._held.get(name)) is not None:
                    held.next = held.next or logged.sequence
                    continue
                if name not in chains:
                    chains[name] = Chain(handler, name[1], logged.partition, now, now), []
                chains[name][1].append(logged)
        for chain, mine in chains.values():
            chain.position = mine[0].sequence
            self._begin(chain, self._run(chain, mine))
        new = await self._wait([chain for chain, _ in chains.values()])
        self._move(read_to)
        if chains:
            await self._store(new)

    async def note(self, read_to: int) -> None:
        """Store that nothing up to `read_to` is left to be read."""
        self._move(read_to)
        await self._store()

    def _move(self, read_to: int) -> None:
        self._called_to = read_to
        self._positions = {place: max(at, read_to) for place, at in self._positions.items()}

    async def _go_on(self, chain: Chain[RecordHandler]) -> None:
        after, upto = chain.position - 1, self._positions[chain.handler.source, chain.partition]
        while True:
            key = ObjectKey.parse(chain.object)
            records, following = await self._read_object(key, chain.partition, after, upto)
            if not (records and records[0].sequence == chain.position):
                said = "%s was not called for records of %s from %d on, which have expired"
                log.error(said, chain.handler.source, chain.object, chain.position)
                self.on_expired(chain.handler.source)
            await self._run(chain, records)
            if chain.failure is not None or following is None:
                return
            chain.position, after = following, following - 1

    async def _run(self, chain: Chain[RecordHandler], records: Sequence[LoggedRecord]) -> None:
        """Call the function for each record, until one fails."""
        for logged in records:
            if logged.sequence != chain.position:
                chain.position, chain.attempts = logged.sequence, 0
            await self._handle(chain, logged)
            if chain.failure is not None:
                return
            chain.position, chain.attempts = logged.sequence + 1, 0

    async def _handle(self, chain: Chain[RecordHandler], logged: LoggedRecord) -> None:
        record, sequence = logged.record, logged.sequence
        if not isinstance(record, ObjectSeen | ObjectDeleted):
            return
        told = {
            "is_deleted": isinstance(record, ObjectDeleted),
            "origin": record.origin,
            "recorded_at": record.time,
            "sequence": sequence,
        }
        arguments_of = partial(chain.handler.called_with, record.body, told)
        key = str(sequence), logged.record_id
        await self._call(chain, record.time, key, arguments_of, sequence=str(sequence))
