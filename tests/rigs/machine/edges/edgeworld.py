"""A small world with edge handlers: a cluster, a log, two processors, and actuators that call, stepped."""

from collections.abc import Callable
from typing import Any

import msgspec

from levelog import Operator
from levelog_base.errors import CommitsLost, LeaseLost
from levelog_processors.program import Program
from levelog_store.rows import Scope
from rigs.machine.checks import check_waits
from rigs.machine.cluster import WEBS
from rigs.machine.edges.attempts import SteppedCaller
from rigs.machine.edges.handlers import make_handlers, spec_of
from rigs.machine.laboratory import Meanwhile, StepWorld
from rigs.machine.seam import SeamedDatabase
from rigs.machine.tables import read_tables


class EdgeWorld(StepWorld):
    """Everything that one example steps through."""

    @staticmethod
    def make_operator(hear: Callable[..., Any]) -> Operator:
        """The operator."""
        return make_handlers(hear)

    def __init__(self, database: SeamedDatabase, program: Program, scope: Scope) -> None:
        super().__init__(database, program, scope)
        self.caller = SteppedCaller(database, scope, program, self.log, self._clock, self._states_of)

    async def hear(self, *given: Any) -> None:
        """Judge one call, and end it when it is let go."""
        await self.caller.hear(*given)

    def _states_of(self, uid: str) -> list[Any]:
        bodies = [happening.body for happening in self.cluster.happenings if happening.uid == uid]
        return [spec_of(msgspec.json.decode(body)) for body in bodies]

    async def close(self) -> None:
        """End what runs."""
        await self.caller.close()
        await super().close()

    async def fold(self, name: str, most: int = 1000, meanwhile: Meanwhile | None = None) -> bool:
        """Let a processor fold its next records; whether any were folded."""
        worker = self.workers[name]
        try:
            return bool(await worker.fold(most, meanwhile))
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

    async def rest(self) -> None:
        """Let everything happen that can happen now, undisturbed, and compare it with what should be. Raises Broken."""
        for _ in range(3):
            for name in self.workers:
                await self.tend(name)
        if not self.ingest.is_watching(WEBS):
            self.ingest.list(WEBS)
        await self._settle(15)
        self.caller.check_rest(self._bodies(), self._last_bodies())
        check_waits(await read_tables(self._database, self._scope), self.now)

    async def _go_on(self) -> bool:
        is_moved = self.ingest.watch(WEBS)
        is_moved |= await self.process()
        is_moved |= await self.caller.claim(1000)
        while await self.caller.finish(0, "returns"):
            is_moved = True
        is_moved |= await self.caller.relay()
        self.check()
        return is_moved

    def check(self) -> None:
        """Raise what a call has found. Raises Broken."""
        if self.caller.broken:
            raise self.caller.broken[0]

    def _bodies(self) -> dict[str, Any]:
        return {body["metadata"]["uid"]: body for body in self.cluster.objects.values()}

    def _last_bodies(self) -> dict[str, Any]:
        return {happening.uid: msgspec.json.decode(happening.body) for happening in self.cluster.happenings}
