"""A small world with edge handlers: a cluster, a log, two processors, and actuators that call, stepped."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import update

from levelog_base.errors import CommitsLost, LeaseLost
from levelog_processors.program import Program
from levelog_store.rows import Scope
from levelog_store.tables import leases, processors
from rigs.machine.checks import Broken, check_waits
from rigs.machine.cluster import WEBS, Cluster
from rigs.machine.edges.attempts import LONG_AGO, SteppedCaller
from rigs.machine.edges.handlers import make_handlers, spec_of
from rigs.machine.log import Ingest, Log
from rigs.machine.operator import BEGIN, Web
from rigs.machine.tables import read_tables
from rigs.machine.worker import Worker
from rigs.machine.world import MOST_ROUNDS, Laboratory, Meanwhile


class EdgeLaboratory(Laboratory):
    """A laboratory whose operator has handlers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._edges: EdgeWorld | None = None
        self.program = Program([make_handlers(self._called)])

    async def _called(self, handler: str, reason: str, web: Web, old: Any, /) -> None:
        assert self._edges is not None
        await self._edges.caller.hear(handler, reason, web, old)

    async def edge_world(self) -> "EdgeWorld":
        """A new world; the one before ends."""
        self._edges = EdgeWorld(self, await self._new_scope())
        return self._edges

    async def _end(self) -> None:
        await super()._end()
        if self._edges is not None:
            await self._edges.close()
            self._edges = None


class EdgeWorld:
    """Everything that one example steps through."""

    def __init__(self, laboratory: Laboratory, scope: Scope) -> None:
        self._database = laboratory.database
        self._program = laboratory.program
        self._scope = scope
        self._serial = 0
        self.now = BEGIN
        self.is_set_back = False
        """The database's clock was, and the world has not come to rest since."""
        self.cluster = Cluster()
        self.log = Log()
        self.ingest = Ingest(self.cluster, self.log, BEGIN)
        self.caller = SteppedCaller(self._database, scope, self._program, self.log, self._clock, self._states_of)
        self.workers = {name: self._worker(name) for name in "AB"}

    def _clock(self) -> datetime:
        return self.now

    def _worker(self, name: str) -> Worker:
        self._serial += 1
        # Owners sort as they came, also where the database's clock cannot tell who came first.
        owner = f"{self._serial:04}-{name}"
        return Worker(self._database, self._scope, self._program, self.log, owner, self._clock)

    def _states_of(self, uid: str) -> list[Any]:
        bodies = [happening.body for happening in self.cluster.happenings if happening.uid == uid]
        return [spec_of(msgspec.json.decode(body)) for body in bodies]

    async def close(self) -> None:
        """End what runs."""
        await self.caller.close()
        for worker in self.workers.values():
            await worker.close()

    async def tend(self, name: str) -> None:
        """Let a processor renew, take and give up leases."""
        await self.workers[name].tend()

    async def restart(self, name: str) -> None:
        """Kill a processor; a new one begins once the leases of the old one have ended."""
        worker = self.workers[name]
        async with self._database.transaction() as connection:
            for table in (leases, processors):
                of_worker = (table.c.scope == self._scope.number) & (table.c.owner == worker.owner)
                await connection.execute(update(table).where(of_worker).values(expires_at=LONG_AGO))
        await worker.close()
        self.workers[name] = self._worker(name)
        await self.tend(name)

    async def fold(self, name: str, most: int = 1000) -> bool:
        """Let a processor fold its next records; whether any were folded."""
        worker = self.workers[name]
        try:
            return bool(await worker.fold(most))
        except LeaseLost:
            worker.forget_leases()
            return False
        except CommitsLost:
            await worker.begin_at_checkpoints()
            return True

    async def decide(self, name: str, meanwhile: Meanwhile | None = None) -> bool:
        """Let a processor decide on one batch of wakes, if it may; whether anything was decided."""
        worker = self.workers[name]
        if not await worker.may_decide():
            return False
        try:
            batch = await worker.decide(meanwhile)
        except LeaseLost:
            worker.forget_leases()
            return False
        except CommitsLost:
            await worker.begin_at_checkpoints()
            return True
        return bool(batch.decided)

    async def process(self) -> bool:
        """Let all processors fold and decide; whether they did anything."""
        moved = [await self.fold(name) for name in self.workers]
        moved += [await self.decide(name) for name in self.workers]
        return any(moved)

    async def rest(self) -> None:
        """Let everything happen that can happen now, undisturbed, and compare it with what should be. Raises Broken."""
        for _ in range(3):
            for name in self.workers:
                await self.tend(name)
        if not self.ingest.is_watching(WEBS):
            self.ingest.list(WEBS)
        still = 0
        for _ in range(MOST_ROUNDS):
            is_moved = self.ingest.watch(WEBS)
            is_moved |= await self.process()
            is_moved |= await self.caller.claim(1000)
            while await self.caller.finish(0, "returns"):
                is_moved = True
            is_moved |= await self.caller.relay()
            self.check()
            still = 0 if is_moved else still + 1
            if (
                still > self.is_set_back
            ):  # the first look tells that the clock was set back, the next one looks after it
                break
        else:
            raise Broken(15, f"the world does not come to rest within {MOST_ROUNDS} rounds")
        self.is_set_back = False
        self.caller.check_rest(self._bodies(), self._last_bodies())
        check_waits(await read_tables(self._database, self._scope), self.now)

    def check(self) -> None:
        """Raise what a call has found. Raises Broken."""
        if self.caller.broken:
            raise self.caller.broken[0]

    def _bodies(self) -> dict[str, Any]:
        return {body["metadata"]["uid"]: body for body in self.cluster.objects.values()}

    def _last_bodies(self) -> dict[str, Any]:
        return {happening.uid: msgspec.json.decode(happening.body) for happening in self.cluster.happenings}

    def advance(self, minutes: float) -> None:
        """Let time pass, or the database's clock be set back."""
        self.now += timedelta(minutes=minutes)
        self.is_set_back |= minutes < 0
