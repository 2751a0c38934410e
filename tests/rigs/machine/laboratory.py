"""Where worlds are made, one after the other, each with a cluster, a log and two processors that are stepped."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import update

from levelog import Operator
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from levelog_store.tables import leases, processors
from rigs.leasing import LONG_AGO, scope_of
from rigs.machine.checks import Broken
from rigs.machine.cluster import Cluster
from rigs.machine.log import CLUSTER, PARTITIONS, Ingest, Log
from rigs.machine.operator import BEGIN
from rigs.machine.seam import SeamedDatabase
from rigs.machine.worker import Worker
from rigs.migrated import migrate

T = TypeVar("T")

MOST_ROUNDS = 40
"""A world that does not come to rest within so many rounds of everything goes in a circle."""

Meanwhile = Callable[[], Awaitable[None]]


class StepWorld(ABC):
    """A cluster, a log and two processors, in a scope of their own; machines add what carries out what is decided."""

    def __init__(self, database: SeamedDatabase, program: Program, scope: Scope) -> None:
        self._database = database
        self._program = program
        self._scope = scope
        self._serial = count(1)
        self.now = BEGIN
        self.is_set_back = False
        """The database's clock was, and the world has not come to rest since."""
        self.cluster = Cluster()
        self.log = Log()
        self.ingest = Ingest(self.cluster, self.log, BEGIN)
        self.workers = {name: self._worker(name) for name in "AB"}

    @staticmethod
    @abstractmethod
    def make_operator(hear: Callable[..., Any]) -> Operator:
        """The operator, whose functions call `hear` of the world that is there."""

    @classmethod
    def make_program(cls, hear: Callable[..., Any]) -> Program:
        """The operator alone, as an application."""
        return Program([cls.make_operator(hear)])

    def _clock(self) -> datetime:
        return self.now

    def _worker(self, name: str) -> Worker:
        # Owners sort as they came, also where the database's clock cannot tell who came first.
        owner = f"{next(self._serial):04}-{name}"
        return Worker(self._database, self._scope, self._program, self.log, owner, self._clock)

    @abstractmethod
    def hear(self, *given: Any) -> Any:
        """Judge a call of one of the operator's functions."""

    async def close(self) -> None:
        """End what runs."""
        for worker in self.workers.values():
            await worker.close()

    async def tend(self, name: str) -> None:
        """Let a processor renew, take and give up leases."""
        await self.workers[name].tend()

    async def expire(self, name: str) -> None:
        """Let a processor's leases end without its knowing, as if it had stood still."""
        async with self._database.transaction() as connection:
            for table in (leases, processors):
                of_worker = (table.c.scope == self._scope.number) & (table.c.owner == self.workers[name].owner)
                await connection.execute(update(table).where(of_worker).values(expires_at=LONG_AGO))

    async def restart(self, name: str) -> None:
        """Kill a processor; a new one begins once the leases of the old one have ended."""
        await self.expire(name)
        beginnings = self.workers[name].beginnings
        await self.workers[name].close()
        self.workers[name] = self._worker(name)
        self.workers[name].beginnings = beginnings
        await self.tend(name)

    @abstractmethod
    async def fold(self, name: str, most: int = 1000, meanwhile: Meanwhile | None = None) -> bool:
        """Let a processor fold its next records; whether any were folded."""

    @abstractmethod
    async def decide(self, name: str, meanwhile: Meanwhile | None = None) -> bool:
        """Let a processor decide on one batch of wakes, if it may; whether anything was decided."""

    async def process(self) -> bool:
        """Let all processors fold and decide; whether they did anything."""
        moved = [await self.fold(name) for name in self.workers]
        moved += [await self.decide(name) for name in self.workers]
        return any(moved)

    async def _settle(self, invariant: int) -> None:
        """Go on until nothing moves any more. Raises Broken if it never stands still."""
        still = 0
        for _ in range(MOST_ROUNDS):
            still = 0 if await self._go_on() else still + 1
            if still > self.is_set_back:  # the first look tells that the clock was set back, the next looks after it
                self.is_set_back = False
                return
        raise Broken(invariant, f"the world does not come to rest within {MOST_ROUNDS} rounds")

    @abstractmethod
    async def _go_on(self) -> bool:
        """Let everything happen once that can happen now; whether anything did."""

    def advance(self, minutes: float) -> None:
        """Let time pass, or the database's clock be set back."""
        self.now += timedelta(minutes=minutes)
        self.is_set_back |= minutes < 0


W = TypeVar("W", bound=StepWorld)


class Laboratory(Generic[W]):
    """A database and an event loop for worlds of a kind."""

    def __init__(self, url: str, kind: type[W]) -> None:
        self._url = url
        self.kind = kind
        self.program = kind.make_program(self._hear)
        self._serial = count(1)
        self._stack = ExitStack()
        self._world: W | None = None
        self.database: SeamedDatabase

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._loop = stack.enter_context(asyncio.Runner()).get_loop()
            self.run(self._open())
            stack.callback(lambda: self.run(self.database.close()))
            stack.callback(lambda: self.run(self._end()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Run one step to its end."""
        return self._loop.run_until_complete(step)

    async def _open(self) -> None:
        await migrate(self._url)
        self.database = SeamedDatabase(await Database.open(self._url, is_scratch=True))

    def _hear(self, *given: Any) -> Any:
        return self.world.hear(*given)

    @property
    def world(self) -> W:
        """The world that is there."""
        assert self._world is not None
        return self._world

    async def new_world(self) -> W:
        """Make a world, in tables of its own; the one before ends."""
        await self._end()
        name = f"machine-{next(self._serial)}"
        scope = await scope_of(self.database, self.program, cluster=CLUSTER, application=name, partitions=PARTITIONS)
        self._world = self.kind(self.database, self.program, scope)
        return self._world

    async def _end(self) -> None:
        if self._world is not None:
            await self._world.close()
            self._world = None
