"""Record handlers: called for each record in some partitions, in order for each object.

A position advances once all records up to it are handled or held. An object is held if its function fails or is slow,
from the first record that is not handled. Its later records are read from the log again once that record is handled.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from levelog.calls.caller import FunctionCaller
from levelog.calls.faults import HandlerFault, described, tell_fault
from levelog.effects import MOST_DELAY, GiveUp, Retry
from levelog.errors import LevelogError
from levelog.handlers.injection import Given, about
from levelog.handlers.listeners import Recorded, RecordHandler
from levelog.wire.canonical import digest
from levelog.wire.objects import ObjectKey
from levelog.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_processors.decide.settling import backoff
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import (
    EventHold,
    Place,
    begin_positions,
    lock_due_times,
    read_holds,
    release_holds,
    write_holds,
    write_positions,
)
from levelog_store.owners.leases import guard
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

PATIENCE: Final = timedelta(milliseconds=250)
"""How long a batch waits for its functions; the objects of slower functions are then held."""
LONGEST: Final = timedelta(minutes=1)
"""Between two calls for one record that fails."""

ReadObject: TypeAlias = Callable[[ObjectKey, int, int, int], Awaitable[tuple[Sequence[LoggedRecord], int | None]]]
"""Records of an object in a partition, after a sequence and up to another one; the next one, if that were too many."""
HoldStatus: TypeAlias = Literal["settling", "failed"]
"""Status of a held object in `levelog levels`; `failed` until its record is handled, even during a call."""
CallOutcome: TypeAlias = Literal["returned", "failed", "passed"]
"""The result of a call: a failed one is repeated; after one that `passed`, the record is skipped."""
_Name: TypeAlias = tuple[str, str]
"""Handler and object."""


class _Failure(Struct, frozen=True):
    """Why a record is not handled, and when it is tried again."""

    error: str
    delay: timedelta


class _Chain:
    """The records of one object that one handler is called for, one after the other."""

    def __init__(self, handler: RecordHandler, object_name: str, partition: int, since: datetime) -> None:
        self.handler = handler
        self.object = object_name
        self.partition = partition
        self.since = since
        self.sequence = 0
        """Of the record that is called for, or is next: one that was in the log."""
        self.attempts = 0
        """Calls for it that failed."""
        self.failure: _Failure | None = None
        self.due_at = since
        self.stored_due_at: datetime | None = None
        """The same as SQL has it; another time there is that of `levelog retry`."""
        self.task: asyncio.Task[None] | None = None
        self.next: int | None = None
        """The first record that has passed by since its last look at the log."""

    @property
    def name(self) -> _Name:
        """Handler and object."""
        return self.handler.source, self.object

    @property
    def status(self) -> HoldStatus:
        """Whether the last call for its record failed."""
        return "failed" if self.attempts or self.failure is not None else "settling"

    @property
    def hold(self) -> EventHold:
        """As it is stored."""
        return EventHold(
            handler=self.handler.source,
            object=self.object,
            partition=self.partition,
            sequence=self.sequence,
            attempts=self.attempts,
            error=self.failure.error if self.failure is not None else "",
            since=self.since,
            due_at=self.due_at,
        )


class Delivery:
    """Delivers records to their handlers, one step at a time; the caller reads the log. Steps raise LeaseLost."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        read_object: ReadObject,
        *,
        patience: timedelta | None = PATIENCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        call: Callable[[RecordHandler], Callable[..., Any]] = lambda handler: handler.function,
    ) -> None:
        """`patience`: None waits for all functions. `call` gives what is called for a handler."""
        self._database = database
        self._scope = scope
        self._program = program
        self._read_object = read_object
        self._patience = patience
        self._clock = clock
        self._function = call
        self._caller = FunctionCaller(subject="this object")
        self._epochs: Mapping[int, int] = {}
        self._positions: dict[Place, int] = {}
        self._stored: dict[Place, int] = {}
        self._held: dict[_Name, _Chain] = {}
        self.on_return: Callable[[], None] = lambda: None
        """Called when a function has returned whose object is held, so that there is something to step."""
        self.on_call: Callable[[str, CallOutcome], None] = lambda _handler, _outcome: None
        """Called with the handler of a call that has ended, and what came of it."""
        self.on_expired: Callable[[str], None] = lambda _handler: None
        """Called with a handler of which records have expired before it was called for them."""

    @property
    def read_to(self) -> int:
        """The lowest position."""
        return min(self._positions.values())

    @property
    def held(self) -> Mapping[tuple[str, HoldStatus], int]:
        """How many objects are held, by handler and status; zeros are left out."""
        return Counter((chain.handler.source, chain.status) for chain in self._held.values())

    def behind(self, sequence: int) -> dict[str, int]:
        """The lowest position of each handler that has not read up to a sequence."""
        lowest: dict[str, int] = {}
        for (handler, _), position in sorted(self._positions.items()):
            if position < sequence:
                lowest[handler] = min(position, lowest.get(handler, position))
        return lowest

    @property
    def due_at(self) -> datetime | None:
        """When the next held object is tried again; None: none is waiting."""
        return min((each.due_at for each in self._held.values() if each.task is None), default=None)

    async def hold(self, epochs: Mapping[int, int], *, start: int | None = None) -> None:
        """Work under these leases from now on, from where the handlers are; new ones begin after `start`, or now.

        To be called before anything is folded under these leases. Raises LeaseLost.
        """
        await self.release()
        handlers = self._program.record_handlers
        async with self._database.transaction() as connection:
            await guard(connection, self._scope, epochs)
            self._positions = await begin_positions(connection, self._scope, handlers, epochs, start=start)
            holds = await read_holds(connection, self._scope, epochs)
        self._epochs, self._stored = epochs, dict(self._positions)
        now = self._clock()
        for row in holds:
            if row.handler not in handlers:
                continue
            chain = _Chain(handlers[row.handler], row.object, row.partition, row.since)
            chain.sequence, chain.attempts, chain.due_at = row.sequence, row.attempts, now
            chain.stored_due_at = row.due_at
            self._held[chain.name] = chain

    async def release(self) -> None:
        """End the running calls; the next owner of the partitions handles those records."""
        tasks = [each.task for each in self._held.values() if each.task is not None]
        self._held.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """End all that runs."""
        await self.release()
        await self._caller.close()

    async def deliver(self, records: Sequence[LoggedRecord], read_to: int) -> None:
        """Call the handlers for records, in the order of the log; nothing is left before `read_to`."""
        chains: dict[_Name, tuple[_Chain, list[LoggedRecord]]] = {}
        now = self._clock()
        for logged in records:
            record = logged.record
            if not isinstance(record, ObjectSeen | ObjectDeleted):
                continue
            resource = record.key.group_resource
            for source, handler in self._program.record_handlers.items():
                if handler.reader.resource.group_resource != resource:
                    continue
                if logged.sequence <= self._positions.get((source, logged.partition), logged.sequence):
                    continue
                name = source, str(record.key)
                if (held := self._held.get(name)) is not None:
                    held.next = held.next or logged.sequence
                    continue
                if name not in chains:
                    chains[name] = _Chain(handler, name[1], logged.partition, now), []
                chains[name][1].append(logged)
        for chain, mine in chains.values():
            chain.sequence = mine[0].sequence
            chain.task = asyncio.create_task(self._run(chain, mine), name=f"records of {chain.object}")
        tasks = [chain.task for chain, _ in chains.values() if chain.task is not None]
        if tasks:
            patience = None if self._patience is None else self._patience.total_seconds()
            await asyncio.wait(tasks, timeout=patience)
        new = [chain for chain, _ in chains.values() if not _is_over(chain)]
        for chain in new:
            self._held[chain.name] = chain
            self._settle(chain)
        self._move(read_to)
        if chains:
            await self._store(new)

    async def step(self) -> None:
        """Continue with the held objects: store what has returned, try again what is due."""
        changed: list[_Chain] = []
        released: list[_Name] = []
        for chain in list(self._held.values()):
            if chain.task is not None and chain.task.done():
                if _is_over(chain):
                    if chain.next is None:
                        released.append(chain.name)
                        continue
                    chain.sequence = chain.next
                changed.append(chain)
                self._settle(chain)
            if chain.task is None and chain.due_at <= self._clock():
                chain.next = None
                chain.failure = None
                after, upto = chain.sequence - 1, self._positions[chain.handler.source, chain.partition]
                chain.task = asyncio.create_task(self._go_on(chain, after, upto), name=f"records of {chain.object}")
                chain.task.add_done_callback(lambda _: self.on_return())
        if self._patience is None and (tasks := [each.task for each in self._held.values() if each.task is not None]):
            await asyncio.wait(tasks)
        if changed or released:
            await self._store(changed, released=released)
            for name in released:
                del self._held[name]

    async def look(self) -> None:
        """Read from SQL when held objects are due, since `levelog retry` may have changed that."""
        if self.due_at is None:
            return
        async with self._database.reading() as connection:
            holds = await read_holds(connection, self._scope, self._epochs)
        for row in holds:
            chain = self._held.get((row.handler, row.object))
            if chain is not None and chain.task is None:
                chain.due_at, chain.stored_due_at = min(chain.due_at, row.due_at), row.due_at

    async def note(self, read_to: int) -> None:
        """Store that nothing up to `read_to` is left to be read."""
        self._move(read_to)
        await self._store()

    @property
    def is_busy(self) -> bool:
        """Tell whether a function for a held object has returned, and `step` has not stored that yet."""
        return any(each.task is not None and each.task.done() for each in self._held.values())

    def _move(self, read_to: int) -> None:
        self._positions = {place: max(at, read_to) for place, at in self._positions.items()}

    async def _store(self, held: Sequence[_Chain] = (), *, released: Collection[_Name] = ()) -> None:
        moved = {place: at for place, at in self._positions.items() if at != self._stored[place]}
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, self._epochs)
            await write_positions(connection, self._scope, moved)
            asked = await lock_due_times(connection, self._scope, [each.name for each in held if each.stored_due_at])
            for chain in held:
                due_at = asked.get(chain.name)
                if due_at is not None and due_at != chain.stored_due_at:
                    chain.due_at = min(chain.due_at, due_at)
            await write_holds(connection, self._scope, [each.hold for each in held])
            await release_holds(connection, self._scope, released)
        self._stored |= moved
        for chain in held:
            chain.stored_due_at = chain.due_at

    def _settle(self, chain: _Chain) -> None:
        """Take note of what a call came to, as far as it has returned."""
        task = chain.task
        if task is None or not task.done():
            if task is not None:
                task.add_done_callback(lambda _: self.on_return())
            return
        chain.task = None
        now = self._clock()
        chain.due_at = now if chain.failure is None else now + chain.failure.delay
        if chain.failure is not None:
            said = "%s holds %s at record %d, and tries again in %s: %s"
            log.info(said, chain.handler.source, chain.object, chain.sequence, chain.failure.delay, chain.failure.error)

    async def _go_on(self, chain: _Chain, after: int, upto: int) -> None:
        while True:
            try:
                found = await self._read_object(ObjectKey.parse(chain.object), chain.partition, after, upto)
            except LevelogError as error:  # the log may be away
                chain.failure = _Failure(described(error), backoff(1, LONGEST))
                return
            records, following = found
            if not (records and records[0].sequence == chain.sequence):
                said = "%s was not called for records of %s from %d on, which have expired"
                log.error(said, chain.handler.source, chain.object, chain.sequence)
                self.on_expired(chain.handler.source)
            await self._run(chain, records)
            if chain.failure is not None or following is None:
                return
            chain.sequence, after = following, following - 1

    async def _run(self, chain: _Chain, records: Sequence[LoggedRecord]) -> None:
        """Call the function for each record, until one fails."""
        for logged in records:
            if logged.sequence != chain.sequence:
                chain.sequence, chain.attempts = logged.sequence, 0
            chain.failure = await self._call(chain, logged)
            if chain.failure is not None:
                chain.attempts += 1
                return
            chain.sequence, chain.attempts = logged.sequence + 1, 0

    async def _call(self, chain: _Chain, logged: LoggedRecord) -> _Failure | None:
        handler, record = chain.handler, logged.record
        if not isinstance(record, ObjectSeen | ObjectDeleted):
            return None
        recorded = Recorded(
            body=record.body,
            is_deleted=isinstance(record, ObjectDeleted),
            origin=record.origin,
            recorded_at=record.time,
            sequence=logged.sequence,
        )
        key = digest(
            self._scope.cluster, self._scope.application, handler.source, str(logged.sequence), logged.record_id
        )
        about(object=chain.object, handler=handler.source, sequence=str(logged.sequence))
        function = self._function(handler)
        try:
            arguments = handler.arguments(recorded, {Given.KEY: key, Given.RETRY: chain.attempts})
            if arguments is not None:
                await self._caller.run(
                    chain.name, lambda: function(**arguments), handler.options.timeout, is_async=handler.is_async
                )
                self.on_call(handler.source, "returned")
        except Retry as error:
            return self._later(chain, logged, error, asked=error.asked, is_counted=error.is_counted)
        except GiveUp as error:
            self._pass_by(chain, logged, error)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this object is concerned
            if not isinstance(error, HandlerFault):
                tell_fault("event handler", handler.name, handler.function, error, subject=chain.object)
            return self._later(chain, logged, error)
        return None

    def _later(
        self,
        chain: _Chain,
        logged: LoggedRecord,
        error: Exception,
        *,
        asked: timedelta | None = None,
        is_counted: bool = True,
    ) -> _Failure | None:
        options = chain.handler.options
        if is_counted and options.retries is not None and chain.attempts >= options.retries:
            self._pass_by(chain, logged, error)
            return None
        self.on_call(chain.handler.source, "failed")
        delay = min(asked or options.backoff or backoff(chain.attempts + 1, LONGEST), MOST_DELAY)
        return _Failure(f"event handler {chain.handler.name}: {described(error)}", delay)

    def _pass_by(self, chain: _Chain, logged: LoggedRecord, error: Exception) -> None:
        self.on_call(chain.handler.source, "passed")
        said = "%s passes record %d of %s by: %s"
        log.error(said, chain.handler.source, logged.sequence, chain.object, described(error))


def _is_over(chain: _Chain) -> bool:
    """Tell whether the call for an object has ended with nothing left to do."""
    if chain.task is None or not chain.task.done():
        return False
    chain.task.result()  # raises what only a bug of levelog leads to
    return chain.failure is None
