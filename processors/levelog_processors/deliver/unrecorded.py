"""Calls without records, for record handlers and timers: the owner of a partition makes them, and holds failed ones.

A position advances once all calls up to it are made or held. An object is held if its function fails or is slow, from
the first call that is not made. So it never delays other objects.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.calls.executor import Attempt, CallOutcome, Executor, Failure
from levelog.calls.faults import containing, described
from levelog.handlers.forobjects import CalledHandler
from levelog.handlers.injection import Given, about
from levelog.handlers.viewhandlers import VIEW_TIME
from levelog_base.errors import LevelogError
from levelog_base.wire.canonical import digest
from levelog_log.notifications import Listener
from levelog_processors.decide.settling import backoff
from levelog_processors.guard import FunctionGuard
from levelog_store.connect.database import Database
from levelog_store.deliver.positions import Place, begin_positions, move_positions, read_held, write_held
from levelog_store.owners.leases import guard
from levelog_store.rows import LevelRow, Scope, ViewParent

log = logging.getLogger(__name__)

PATIENCE: Final = timedelta(milliseconds=250)
"""How long a batch waits for its functions; the objects of slower functions are then held."""
LONGEST: Final = timedelta(minutes=1)
"""Between two attempts at a call that fails."""

HandlerT = TypeVar("HandlerT", bound=CalledHandler)


class Chain(Struct, Generic[HandlerT], eq=False):
    """The calls of one handler for one object, one after the other."""

    handler: HandlerT
    object: str
    partition: int
    since: datetime
    due_at: datetime
    position: int = 0
    """Position of the call that is made, or is next: sequence of a record, or due time."""
    attempts: int = 0
    """Attempts at it that failed."""
    failure: Failure | None = None
    is_hastened: bool = False
    """Somebody has asked for another attempt since the last one began."""
    task: asyncio.Task[None] | None = None
    next: int | None = None
    """Position of the first call that has been left since the last attempt began."""

    @property
    def name(self) -> ViewParent:
        """Handler and object."""
        return self.handler.source, self.object

    @property
    def said(self) -> str:
        """What is called for, as messages name it."""
        return self.handler.said(self.position)

    @property
    def is_over(self) -> bool:
        """Tell whether all calls that it began with are made."""
        if self.task is None or not self.task.done():
            return False
        self.task.result()  # raises what only a bug of levelog leads to
        return self.failure is None

    @property
    def row(self) -> LevelRow:
        """As it is stored, and shown as a level: `failed` until its call has returned, even during an attempt."""
        error = self.failure.error if self.failure is not None else "is being called"
        return LevelRow(
            view=self.handler.source,
            parent=self.object,
            parent_uid="",
            partition=self.partition,
            status="failed" if self.attempts or self.failure is not None else "settling",
            reason=f"{error} ({self.said})",
            attempts=self.attempts,
            position=self.position,
            since=self.since,
            recheck_at=self.due_at,
        )


class UnrecordedCalls(ABC, Generic[HandlerT]):
    """Makes calls, and holds those that are left, one step at a time. Steps raise LeaseLost."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        handlers: Mapping[str, HandlerT],
        *,
        patience: timedelta | None = PATIENCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        call: Callable[[CalledHandler], Callable[..., Any]] = lambda handler: handler.function,
    ) -> None:
        """`patience`: None waits for all functions. `call` gives what is called for a handler."""
        self._database = database
        self._scope = scope
        self._handlers = handlers
        self._patience = patience
        self._clock = clock
        self._function = call
        self._executor = Executor(subject="this object", clock=clock, schedule=backoff)
        self._epochs: Mapping[int, int] = {}
        self._called_to = self._stored_to = 0
        """Position up to which all calls are made or held, here and in the tables."""
        self._held: dict[ViewParent, Chain[HandlerT]] = {}
        self._stepped_at = clock()
        self.listener = Listener()
        """Hears that there is something to step, or to call."""
        self.on_call: Callable[[str, CallOutcome], None] = lambda _handler, _outcome: None
        """Called with the handler of an attempt that has ended, and what came of it."""

    @property
    def is_needed(self) -> bool:
        """Tell whether there are handlers."""
        return bool(self._handlers)

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
        await self._executor.tasks.drain()

    async def close(self) -> None:
        """End all that runs."""
        self._held.clear()
        await self._executor.close()

    async def step(self) -> None:
        """Continue with the held objects: store what has returned, try again what is due."""
        now = self._clock()
        if now < self._stepped_at:  # the clock was set back
            for chain in self._held.values():
                chain.due_at -= self._stepped_at - now
        self._stepped_at = now
        changed: list[Chain[HandlerT]] = []
        released: list[ViewParent] = []
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
                chain.next, chain.failure, chain.is_hastened = None, None, False
                self._begin(chain, self._try_again(chain))
                self._settle(chain)
        if self._patience is None and (tasks := [each.task for each in self._held.values() if each.task is not None]):
            await asyncio.wait(tasks)
        if changed or released:
            await self._store(changed, released=released)
            for name in released:
                del self._held[name]

    def hasten(self, names: Iterable[ViewParent]) -> None:
        """Let objects be tried again at once, as far as they are held; while an attempt is made, after that."""
        for chain in (self._held[name] for name in names if name in self._held):
            chain.due_at, chain.is_hastened = self._clock(), True
            self.listener.notify()

    async def _try_again(self, chain: Chain[HandlerT]) -> None:
        try:
            await self._go_on(chain)
        except LevelogError as error:  # the log or the database may be away
            chain.failure = Failure(error=described(error), delay=backoff(1, LONGEST))

    @abstractmethod
    async def _go_on(self, chain: Chain[HandlerT]) -> None:
        """Make the calls of an object that is held; may raise LevelogError before the first."""

    async def _take_over(
        self, connection: AsyncConnection, epochs: Mapping[int, int], *, start: int | None
    ) -> dict[Place, int]:
        """Work under these leases from now on; the positions, which for new handlers are `start`."""
        await guard(connection, self._scope, epochs)
        positions = await begin_positions(connection, self._scope, self._handlers, epochs, start=start)
        self._epochs, now = epochs, self._clock()
        for row in await read_held(connection, self._scope, self._handlers, epochs):
            handler, since = self._handlers[row.view], row.since or now
            chain = Chain(handler, row.parent, row.partition, since, now, row.position or 0, row.attempts)
            self._held[chain.name] = chain
        return positions

    def _begin(self, chain: Chain[HandlerT], calls: Coroutine[Any, Any, None]) -> None:
        chain.task = self._executor.tasks.begin(calls, f"calls for {chain.object}")

    async def _wait(self, chains: Sequence[Chain[HandlerT]]) -> list[Chain[HandlerT]]:
        """Wait for calls that have begun; those that are not made by then are held, and returned."""
        if tasks := [chain.task for chain in chains if chain.task is not None]:
            await asyncio.wait(tasks, timeout=None if self._patience is None else self._patience.total_seconds())
        new = [chain for chain in chains if not chain.is_over]
        for chain in new:
            self._held[chain.name] = chain
            self._settle(chain)
        return new

    async def _store(self, held: Sequence[Chain[HandlerT]] = (), *, released: Collection[ViewParent] = ()) -> None:
        scope, epochs, to = self._scope, self._epochs, self._called_to
        async with self._database.transaction(durable=False) as connection:
            await guard(connection, scope, epochs)
            if to != self._stored_to:
                await move_positions(connection, scope, self._handlers, epochs, to)
            await write_held(connection, scope, [each.row for each in held], released=released)
        self._stored_to = to

    def _settle(self, chain: Chain[HandlerT]) -> None:
        """Take note of what an attempt came to, as far as it has returned."""
        task = chain.task
        if task is None or not task.done():
            if task is not None:
                task.add_done_callback(lambda _: self.listener.notify())
            return
        chain.task = None
        now = self._clock()
        chain.due_at = now if chain.failure is None or chain.is_hastened else now + chain.failure.delay
        if chain.failure is not None:
            said = "%s holds %s at %s, and tries again in %s: %s"
            log.info(said, chain.handler.source, chain.object, chain.said, chain.failure.delay, chain.failure.error)

    async def _call(
        self,
        chain: Chain[HandlerT],
        since: datetime,
        key: Sequence[str],
        arguments_of: Callable[[Mapping[Given, Any]], dict[str, Any] | None],
        **where: str,
    ) -> None:
        """Make the attempt that is next; without a failure it has returned, was left out by filters, or is passed by.

        `since` tells when it was due first, `key` what tells it from others, and `where` what its log lines say of it.
        """
        handler, source, scope = chain.handler, chain.handler.source, self._scope
        function = self._function(handler)
        attempt = Attempt(chain.name, handler, chain.object, chain.attempts + 1, since, LONGEST)
        about(object=chain.object, handler=source, **where)
        given = attempt.given(digest(scope.cluster, scope.application, source, *key))

        async def make() -> None:
            if (arguments := _filtered(handler, partial(arguments_of, given))) is not None:
                await self._executor.run(attempt, lambda: function(**arguments))
                self.on_call(source, "returned")

        failure = chain.failure = await self._executor.make(attempt, make)
        if failure is None:
            return
        chain.attempts += failure.is_counted
        if failure.is_final:
            chain.failure = None
            self.on_call(source, "given_up")
            log.error("%s passes %s of %s by: %s", source, chain.said, chain.object, failure.error)
        elif failure.is_counted:
            self.on_call(source, "failed")


def _filtered(handler: CalledHandler, arguments_of: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """The arguments of a call. Raises HandlerFault if a filter takes too long, does I/O or exits."""
    if not handler.reader.selector.has_functions:
        return arguments_of()
    with containing():
        return FunctionGuard(f"filter of {handler.kind} {handler.name}", VIEW_TIME).run(arguments_of)
