"""A small world with daemons: a cluster, a log, two processors, and three actuators that share the runs, stepped."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import update

from levelog import Operator
from levelog_processors.program import Program
from levelog_store.rows import Scope
from levelog_store.tables import actuators, intents
from rigs.leasing import LONG_AGO
from rigs.machine.cluster import WEBS
from rigs.machine.daemons.followers import make_followers
from rigs.machine.daemons.holders import Holder
from rigs.machine.daemons.tenure import INVARIANT, Tenures
from rigs.machine.edges.attempts import relay
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.seam import SeamedDatabase

HOLDERS: Final = "PQR"


class DaemonWorld(EdgeWorld):
    """Everything that one example steps through."""

    @staticmethod
    def make_operator(hear: Callable[..., Any]) -> Operator:
        """The operator."""
        return make_followers(hear)

    def __init__(self, database: SeamedDatabase, program: Program, scope: Scope) -> None:
        super().__init__(database, program, scope)
        self.tenures = Tenures(lambda name, uid: self.cluster.uid(WEBS, name) == uid)
        self._killed: list[str] = []
        """Owners whose claims may not have ended."""
        self.holders = {name: self._holder(name) for name in HOLDERS}

    def _holder(self, name: str) -> Holder:
        owner = f"{name}{next(self._serial)}"
        return Holder(self._database, self._scope, self._program, owner, self.tenures)

    async def hear(self, *given: Any) -> None:
        """Run as a daemon does, in the actuator that it runs in."""
        handler, _, daemon = given
        await Holder.here.get().follow(handler, daemon)

    async def close(self) -> None:
        """End what runs."""
        await super().close()
        for holder in self.holders.values():
            await holder.kill()

    async def lapse(self, name: str) -> None:
        """Let the claims of an actuator end, as if it stood still."""
        await self._lapse(self.holders[name].owner)

    async def _lapse(self, owner: str) -> None:
        table = intents.c
        is_claimed = (table.scope == self._scope.number) & (table.state == "claimed") & (table.owner == owner)
        async with self._database.transaction() as connection:
            await connection.execute(update(intents).where(is_claimed).values(due_at=LONG_AGO, expires_at=LONG_AGO))
        self.tenures.lapse(owner)

    async def vanish(self, name: str, finder: str) -> None:
        """Let an actuator's heartbeat expire, and another one find that."""
        await self.holders[name].beat()
        if finder == name:  # who says that it is there again ends no claims of its own
            finder = next(other for other in HOLDERS if other != name)
        await self._vanish(self.holders[name].owner, finder)

    async def _vanish(self, owner: str, finder: str) -> None:
        table = actuators.c
        is_owner = (table.scope == self._scope.number) & (table.owner == owner)
        async with self._database.transaction() as connection:
            await connection.execute(update(actuators).where(is_owner).values(expires_at=LONG_AGO))
        self.tenures.end(owner)
        await self.holders[finder].stay_on()

    async def kill(self, name: str) -> None:
        """Kill an actuator; another one is started, and the claims go on until somebody ends them."""
        holder = self.holders[name]
        await holder.beat()
        await holder.kill()
        self._killed.append(holder.owner)
        self.holders[name] = self._holder(name)

    async def bury(self) -> None:
        """Let the heartbeat of those expire that were killed."""
        for owner in self._killed:
            await self._vanish(owner, HOLDERS[0])
        self._killed = []

    async def shut_down(self, name: str) -> None:
        """End an actuator in order; another one is started."""
        holder = self.holders[name]
        await holder.shut_down()
        while await holder.store():
            pass
        await self.kill(name)

    async def relay(self) -> bool:
        """Have receipts recorded; whether there were any."""
        return await relay(self._database, self._scope, self.log)

    async def rest(self) -> None:
        """Let everything happen that can happen now, undisturbed, and compare it with what should be. Raises Broken."""
        for _ in range(3):
            for name in self.workers:
                await self.tend(name)
        if not self.ingest.is_watching(WEBS):
            self.ingest.list(WEBS)
        await self.bury()
        await self._settle(INVARIANT)
        self.tenures.check_rest(self._bodies().values())

    async def _go_on(self) -> bool:
        is_moved = self.ingest.watch(WEBS)
        is_moved |= await self.process()
        for holder in self.holders.values():
            await holder.arrive()
            await holder.keep_claims()
            await holder.hear()
            await holder.wake()
            is_moved |= await holder.store()
            is_moved |= await holder.claim()
        is_moved |= await self.relay()
        return is_moved
