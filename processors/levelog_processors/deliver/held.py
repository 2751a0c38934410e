"""Calls without records, for record handlers and timers: the owner of a partition makes them, and holds failed ones.

A position advances once all calls up to it are made or held. An object is held if its function fails or is slow, from
the first call that is not made. So it never delays other objects.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.calls.caller import CANCELLATION_TIME, FunctionCaller
from levelog.calls.faults import HandlerFault, Interruption, StillRuns, contained, described, tell_fault
from levelog.effects import MOST_DELAY, GiveUp, Retry
from levelog.errors import LevelogError
from levelog.handlers.unrecorded import UnrecordedHandler
from levelog.handlers.views import VIEW_TIME
from levelog_processors.decide.settling import backoff
from levelog_processors.fence.calls import Fence
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import (
    CallHold,
    Place,
    begin_positions,
    lock_due_times,
    read_holds,
    release_holds,
    write_holds,
)
from levelog_store.owners.leases import guard
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

PATIENCE: Final = timedelta(milliseconds=250)
"""How long a batch waits for its functions; the objects of slower functions are then held."""
LONGEST: Final = timedelta(minutes=1)
"""Between two attempts at a call that fails."""

HoldStatus: TypeAlias = Literal["settling", "failed"]
"""Status of a held object in `levelog levels`; `failed` until its call has returned, even during an attempt."""
CallOutcome: TypeAlias = Literal["returned", "failed", "passed"]
"""The result of an attempt: a failed one is repeated; after one that `passed`, the call is skipped."""
Name: TypeAlias = tuple[str, str]
"""Handler and object."""
HandlerT = TypeVar("HandlerT", bound=UnrecordedHandler)


class Failure(Struct, frozen=True):
    """Why a call is not made, and when it is tried again."""

    error: str
    delay: timedelta
    is_attempt: bool = True
    """The function was called."""


class Chain(Struct, Generic[HandlerT], eq=False):
    """The calls of one handler for one object, one after the other."""

    handler: HandlerT
    object: str
    partition: int
    since: datetime
    due_at: datetime
    position: int = 0
    """Of the call that is made, or is next: sequence of a record that was in the log, or due time."""
    attempts: int = 0
    """Attempts at it that failed."""
    failure: Failure | None = None
    stored_due_at: datetime | None = None
    """`due_at` as SQL has it; another time there is that of `levelog retry`."""
    task: asyncio.Task[None] | None = None
    next: int | None = None
    """Position of the first call that has been left since the last attempt began."""
    is_ended: bool = False
    """Its calls were ended: the next owner of the partition makes them."""

    @property
    def name(self) -> Name:
        """Handler and object."""
        return self.handler.source, self.object

    @property
    def said(self) -> str:
        """What is called for, as messages name it."""
        return self.handler.said(self.position)

    @property
    def status(self) -> HoldStatus:
        """Whether the last attempt failed."""
        return "failed" if self.attempts or self.failure is not None else "settling"

    @property
    def is_over(self) -> bool:
        """Tell whether all calls that it began with are made."""
        if self.task is None or not self.task.done():
            return False
        self.task.result()  # raises what only a bug of levelog leads to
        return self.failure is None

    @property
    def hold(self) -> CallHold:
        """As it is stored."""
        return CallHold(
            handler=self.handler.source,
            object=self.object,
            partition=self.partition,
            position=self.position,
            attempts=self.attempts,
            error=self.failure.error if self.failure is not None else "",
            since=self.since,
            due_at=self.due_at,
        )


class HeldCalls(ABC, Generic[HandlerT]):
    """Makes calls, and holds those that are left, one step at a time. Steps raise LeaseLost."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        handlers: Mapping[str, HandlerT],
        *,
        patience: timedelta | None = PATIENCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        call: Callable[[UnrecordedHandler], Callable[..., Any]] = lambda handler: handler.function,
    ) -> None:
        """`patience`: None waits for all functions. `call` gives what is called for a handler."""
        self._database = database
        self._scope = scope
        self._handlers = handlers
        self._patience = patience
        self._clock = clock
        self._function = call
        self._caller = FunctionCaller(subject="this object")
        self._caller.on_found = self._leave
        limits = {name: handler.options.max_concurrency for name, handler in handlers.items()}
        self._rooms = {name: asyncio.Semaphore(limit) for name, limit in limits.items() if limit is not None}
        """Of handlers with a limit."""
        self._epochs: Mapping[int, int] = {}
        self._held: dict[Name, Chain[HandlerT]] = {}
        self._running: dict[asyncio.Task[None], Chain[HandlerT]] = {}
        self._left: dict[Name, asyncio.Task[None]] = {}
        """Calls that go on although they were ended; the next one for the object waits for that."""
        self._stepped_at = clock()
        self.on_return: Callable[[], None] = lambda: None
        """Called when a function has returned whose object is held, so that there is something to step."""
        self.on_call: Callable[[str, CallOutcome], None] = lambda _handler, _outcome: None
        """Called with the handler of an attempt that has ended, and what came of it."""

    @property
    def is_needed(self) -> bool:
        """Tell whether there are handlers."""
        return bool(self._handlers)

    @property
    def held(self) -> Mapping[tuple[str, HoldStatus], int]:
        """How many objects are held, by handler and status; zeros are left out."""
        return Counter((chain.handler.source, chain.status) for chain in self._held.values())

    @property
    def is_busy(self) -> bool:
        """Tell whether a function for a held object has returned, and `step` has not stored that yet."""
        return any(each.task is not None and each.task.done() for each in self._held.values())

    @property
    def due_at(self) -> datetime | None:
        """When the next held object is tried again; None: none is waiting."""
        return min((each.due_at for each in self._held.values() if each.task is None), default=None)

    async def release(self) -> None:
        """End the running calls; the next owner of the partitions makes them."""
        self._held.clear()
        running, self._running = self._running, {}
        for task, chain in running.items():
            chain.is_ended = True
            task.cancel()
        if running:
            _, left = await asyncio.wait(running, timeout=CANCELLATION_TIME.total_seconds())
            self._left |= {running[task].name: task for task in left}

    async def close(self) -> None:
        """End all that runs."""
        await self.release()
        await self._caller.close()

    async def step(self) -> None:
        """Continue with the held objects: store what has returned, try again what is due."""
        now = self._clock()
        if now < self._stepped_at:  # the clock was set back
            for chain in self._held.values():
                chain.due_at -= self._stepped_at - now
        self._stepped_at = now
        changed: list[Chain[HandlerT]] = []
        released: list[Name] = []
        for chain in list(self._held.values()):
            if chain.task is not None and chain.task.done():
                if chain.is_over:
                    if chain.next is None:
                        released.append(chain.name)
                        continue
                    chain.position = chain.next
                changed.append(chain)
                self._settle(chain)
            if chain.task is None and chain.due_at <= self._clock():
                chain.next = None
                chain.failure = None
                self._begin(chain, self._try_again(chain))
                self._settle(chain)
        if self._patience is None and (tasks := [each.task for each in self._held.values() if each.task is not None]):
            await asyncio.wait(tasks)
        if changed or released:
            await self._store(changed, released=released)
            for name in released:
                del self._held[name]

    async def look(self) -> None:
        """Read from SQL when held objects are due, since `levelog retry` may have changed that."""
        if not any(each.task is None for each in self._held.values()):
            return
        async with self._database.reading() as connection:
            holds = await read_holds(connection, self._scope, self._epochs)
        for row in holds:
            chain = self._held.get((row.handler, row.object))
            if chain is not None and chain.task is None:
                chain.due_at, chain.stored_due_at = min(chain.due_at, row.due_at), row.due_at

    async def _try_again(self, chain: Chain[HandlerT]) -> None:
        try:
            await self._go_on(chain)
        except LevelogError as error:  # the log or the database may be away
            chain.failure = Failure(described(error), backoff(1, LONGEST))

    @abstractmethod
    async def _go_on(self, chain: Chain[HandlerT]) -> None:
        """Make the calls of an object that is held; may raise LevelogError before the first."""

    @abstractmethod
    async def _write_positions(self, connection: AsyncConnection) -> None:
        """Store how far all handlers are."""

    async def _take_over(
        self, connection: AsyncConnection, epochs: Mapping[int, int], *, start: int | None
    ) -> dict[Place, int]:
        """Work under these leases from now on; the positions, which for new handlers are `start`."""
        await guard(connection, self._scope, epochs)
        positions = await begin_positions(connection, self._scope, self._handlers, epochs, start=start)
        self._epochs, now = epochs, self._clock()
        for row in await read_holds(connection, self._scope, epochs):
            if row.handler in self._handlers:
                chain = Chain(self._handlers[row.handler], row.object, row.partition, row.since, now)
                chain.position, chain.attempts, chain.stored_due_at = row.position, row.attempts, row.due_at
                self._held[chain.name] = chain
        return positions

    def _begin(self, chain: Chain[HandlerT], calls: Coroutine[Any, Any, None]) -> None:
        task = chain.task = asyncio.create_task(calls, name=f"calls for {chain.object}")
        self._running[task] = chain
        task.add_done_callback(lambda _: self._running.pop(task, None))

    async def _wait(self, chains: Sequence[Chain[HandlerT]]) -> list[Chain[HandlerT]]:
        """Wait for calls that have begun; those that are not made by then are held, and returned."""
        if tasks := [chain.task for chain in chains if chain.task is not None]:
            await asyncio.wait(tasks, timeout=None if self._patience is None else self._patience.total_seconds())
        new = [chain for chain in chains if not chain.is_over]
        for chain in new:
            self._held[chain.name] = chain
            self._settle(chain)
        return new

    async def _store(self, held: Sequence[Chain[HandlerT]] = (), *, released: Collection[Name] = ()) -> None:
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, self._scope, self._epochs)
            await self._write_positions(connection)
            asked = await lock_due_times(connection, self._scope, [each.name for each in held if each.stored_due_at])
            for chain in held:
                due_at = asked.get(chain.name)
                if due_at is not None and due_at != chain.stored_due_at:
                    chain.due_at = min(chain.due_at, due_at)
            await write_holds(connection, self._scope, [each.hold for each in held])
            await release_holds(connection, self._scope, released)
        for chain in held:
            chain.stored_due_at = chain.due_at

    def _settle(self, chain: Chain[HandlerT]) -> None:
        """Take note of what an attempt came to, as far as it has returned."""
        task = chain.task
        if task is None or not task.done():
            if task is not None:
                task.add_done_callback(lambda _: self.on_return())
            return
        chain.task = None
        now = self._clock()
        chain.due_at = now if chain.failure is None else now + chain.failure.delay
        if chain.failure is not None:
            said = "%s holds %s at %s, and tries again in %s: %s"
            log.info(said, chain.handler.source, chain.object, chain.said, chain.failure.delay, chain.failure.error)

    async def _call(self, chain: Chain[HandlerT], arguments_of: Callable[[], dict[str, Any] | None]) -> Failure | None:
        """Call the function once; None: it has returned, or the filters leave the object out, or it is passed by."""
        handler = chain.handler
        function = self._function(handler)
        if (left := self._left.get(chain.name)) is not None:
            await asyncio.wait({left})
            del self._left[chain.name]
        if chain.is_ended:  # its function has caught that
            raise asyncio.CancelledError
        try:
            arguments = _filtered(handler, arguments_of)
            if arguments is not None:
                await self._run_function(chain, lambda: function(**arguments))
                self.on_call(handler.source, "returned")
        except Retry as error:
            return self._later(chain, error, asked=error.asked, is_counted=error.is_counted)
        except GiveUp as error:
            self._pass_by(chain, error)
        except StillRuns as error:
            return replace(self._failure(chain, error), is_attempt=False)
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this object is concerned
            if not isinstance(error, HandlerFault):
                tell_fault(handler.kind, handler.name, handler.function, error, subject=chain.object)
            return self._later(chain, error)
        return None

    async def _run_function(self, chain: Chain[HandlerT], function: Callable[[], Any]) -> None:
        """Call a function, within the limit of its handler; one that outlasts its time keeps its place."""
        room = self._rooms.get(chain.handler.source)
        if room is None or self._caller.is_lost(chain.name):
            return await self._run_at_once(chain, function)
        await room.acquire()
        try:
            await self._run_at_once(chain, function)
        finally:
            if not self._caller.is_lost(chain.name):
                room.release()

    async def _run_at_once(self, chain: Chain[HandlerT], function: Callable[[], Any]) -> None:
        limit = chain.handler.options.timeout
        if chain.handler.is_async:
            await self._caller.run_here(function, limit, is_ended=lambda: chain.is_ended)
        else:
            await self._caller.run(chain.name, function, limit, is_async=False)

    def _leave(self, name: Hashable) -> None:
        """Give up the place of a function that has returned although its time was over."""
        assert isinstance(name, tuple)  # noqa: S101 - `Name`
        if (room := self._rooms.get(name[0])) is not None:
            room.release()

    def _later(
        self, chain: Chain[HandlerT], error: Exception, *, asked: timedelta | None = None, is_counted: bool = True
    ) -> Failure | None:
        options = chain.handler.options
        if is_counted and options.retries is not None and chain.attempts >= options.retries:
            self._pass_by(chain, error)
            return None
        self.on_call(chain.handler.source, "failed")
        return self._failure(chain, error, asked)

    def _failure(self, chain: Chain[HandlerT], error: Exception, asked: timedelta | None = None) -> Failure:
        handler = chain.handler
        delay = min(asked or handler.options.backoff or backoff(chain.attempts + 1, LONGEST), MOST_DELAY)
        return Failure(f"{handler.kind} {handler.name}: {described(error)}", delay)

    def _pass_by(self, chain: Chain[HandlerT], error: Exception) -> None:
        self.on_call(chain.handler.source, "passed")
        log.error("%s passes %s of %s by: %s", chain.handler.source, chain.said, chain.object, described(error))


def _filtered(handler: UnrecordedHandler, arguments_of: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """The arguments of a call. Raises HandlerFault if a filter takes too long, does I/O or exits."""
    if not handler.reader.selector.has_functions:
        return arguments_of()
    try:
        return Fence(f"filter of {handler.kind} {handler.name}", VIEW_TIME).run(arguments_of)
    except (Exception, Interruption):
        raise
    except BaseException as error:
        raise contained(error) from error
