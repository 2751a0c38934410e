"""A small world with daemons: a cluster, a log, two processors, and three actuators that share the runs, stepped."""

from typing import Final

from sqlalchemy import update

from levelog.daemons import Daemon
from levelog_processors.program import Program
from levelog_store.rows import Scope
from levelog_store.tables import actuators, intents
from rigs.machine.checks import Broken
from rigs.machine.cluster import WEBS
from rigs.machine.daemons.followers import Kept, make_followers
from rigs.machine.daemons.holders import Holder, relay
from rigs.machine.daemons.tenure import INVARIANT, Tenures
from rigs.machine.edges.attempts import LONG_AGO
from rigs.machine.edges.edgeworld import EdgeWorld
from rigs.machine.operator import Web
from rigs.machine.world import MOST_ROUNDS, Laboratory

HOLDERS: Final = "PQR"


class DaemonLaboratory(Laboratory):
    """A laboratory whose operator has daemons."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._daemons: DaemonWorld | None = None
        self.program = Program([make_followers(self._follow)])

    async def _follow(self, handler: str, _: Web, daemon: Daemon[Web, Kept], /) -> None:
        assert self._daemons is not None
        await self._daemons.follow(handler, daemon)

    async def daemon_world(self) -> "DaemonWorld":
        """A new world; the one before ends."""
        self._daemons = DaemonWorld(self, await self._new_scope())
        return self._daemons

    async def _end(self) -> None:
        await super()._end()
        if self._daemons is not None:
            await self._daemons.close()
            self._daemons = None


class DaemonWorld(EdgeWorld):
    """Everything that one example steps through."""

    def __init__(self, laboratory: DaemonLaboratory, scope: Scope) -> None:
        super().__init__(laboratory, scope)
        self.tenures = Tenures(lambda name, uid: self.cluster.uid(WEBS, name) == uid)
        self._killed: list[str] = []
        """Owners whose claims may not have ended."""
        self.holders = {name: self._holder(name) for name in HOLDERS}

    def _holder(self, name: str) -> Holder:
        self._serial += 1
        owner = f"{name}{self._serial}"
        return Holder(self._database, self._scope, self._program, owner, self.tenures)

    async def follow(self, handler: str, daemon: Daemon[Web, Kept]) -> None:
        """Run as a daemon does, in the actuator that it runs in."""
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
        for _ in range(MOST_ROUNDS):
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
            if not is_moved:
                break
        else:
            raise Broken(INVARIANT, f"the world does not come to rest within {MOST_ROUNDS} rounds")
        self.tenures.check_rest(self._bodies().values())
