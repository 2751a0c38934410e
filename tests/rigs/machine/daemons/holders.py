"""One actuator as far as daemons go, stepped: the real calls, claims, heartbeat and results, without loops and time."""

# pyright: reportPrivateUsage=false
import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, cast

from msgspec import field
from sqlalchemy import select

from levelog import Retry
from levelog.daemons import Daemon
from levelog_actuator.awaited import AwaitedLevels
from levelog_actuator.daemoncalls import Daemons
from levelog_actuator.effects import EffectCaller, Effects
from levelog_actuator.ledger import Ledger
from levelog_actuator.limits import Limits
from levelog_actuator.outbox import ActuatorSettings, Outbox
from levelog_actuator.ownclaims import OwnClaims
from levelog_actuator.results import Ended, Observers, Result
from levelog_base.errors import DaemonLost
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ReceiptNoted
from levelog_log.notifications import Listener
from levelog_processors.live import LiveIndices
from levelog_processors.program import Program
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from levelog_store.tables import intents
from rigs.machine.checks import Broken
from rigs.machine.daemons.followers import Kept, SteppedPauses, is_function, run_waiting
from rigs.machine.daemons.tenure import Tenure, Tenures
from rigs.machine.operator import Web

if TYPE_CHECKING:
    from levelog_log.notifications import Notifier

SETTINGS: Final = ActuatorSettings(
    lease=timedelta(days=1), heartbeat_timeout=timedelta(days=1), first_delay=timedelta(0)
)
"""Claims and heartbeats expire when the machine says so, however long a step takes."""
LONG: Final = timedelta(hours=1)
ROUNDS: Final = 25
"""Of the event loop, after which what was woken has left its wait."""
PATIENCE_SECONDS: Final = 90.0
FAILURES: Final = {"fails": ValueError("as it is told"), "retries": Retry("as it is told", delay=timedelta(0))}


class Follower:
    """One run of a daemon in one actuator."""

    def __init__(self, intent: ClaimedIntent, tenure: Tenure) -> None:
        self.intent = intent
        self.tenure = tenure
        self.command = ""
        """What it does when it wakes."""
        self.is_stubborn = False
        """It does not end by itself."""
        self.is_over = False


class _SlowDaemons(Daemons, eq=False):
    """What they keep may be under way to the database for long; `pauses` know that such a run waits."""

    late: set[str] = field(default_factory=set[str])
    """Keys of the runs whose next state is under way until the machine says that it arrives."""
    arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep(self, intent: ClaimedIntent, state: object) -> None:
        if intent.key in self.late:
            self.late.discard(intent.key)
            await self.pauses.pause(self.arrival)
        await super().keep(intent, state)


class Holder:
    """One actuator, from its start to its end."""

    here: ClassVar[ContextVar["Holder"]] = ContextVar("actuator that a daemon runs in")

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        owner: str,
        tenures: Tenures,
    ) -> None:
        self._database = database
        self._scope = scope
        self.owner = owner
        self._tenures = tenures
        self._pauses = SteppedPauses()
        self._live = LiveIndices(database, scope, program, cast("Notifier", None))
        self._live.waits = self._pauses.watching
        self._receipts: list[ReceiptNoted] = []
        outbox = Outbox(database, scope, owner, SETTINGS)
        self._ledger = Ledger(
            outbox,
            under_way=(),
            on_stored=lambda stored: self._receipts.extend(stored.receipts),
            on_hastened=self._hastened,
        )
        levels = AwaitedLevels(outbox, Listener())
        self._daemons = _SlowDaemons(outbox, self._live.index, levels, self._pauses)
        caller = EffectCaller(program.effects, SETTINGS, index=self._live.index, daemons=self._daemons)
        self._own = OwnClaims(outbox, lambda: None, self._clock)
        self._effects = Effects(
            self._own,
            caller,
            Limits(SETTINGS),
            Observers(self._attempting),
            self._ledger,
        )
        self._seconds = 0.0
        self._claimed: dict[str, Tenure] = {}
        """By key, what was claimed last."""
        self.followers: list[Follower] = []
        self._results: list[tuple[Tenure, Result]] = []
        """What came of each attempt."""
        self.broken: list[Broken] = []

    @contextmanager
    def _attempting(self, intent: ClaimedIntent) -> Generator[Callable[[Result], None]]:
        run_waiting.set(intent.key)
        Holder.here.set(self)
        follower = Follower(intent, self._claimed[intent.key])
        self.followers.append(follower)
        try:
            yield lambda result: self._results.append((follower.tenure, result))
        finally:
            follower.is_over = True
            self.followers.remove(follower)

    async def _hastened(self) -> None:
        """Processors decide when the machine says so."""

    async def settle(self) -> None:
        """Let all runs go on until each of them waits."""
        end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            for _ in range(ROUNDS):
                await asyncio.sleep(0)
            if all(self._pauses.is_at_rest(key) for key in self._effects.begun):
                break
            assert asyncio.get_running_loop().time() < end, f"{self.owner} does not come to rest"
            await asyncio.sleep(0.001)
        if self.broken:
            raise self.broken[0]

    def _clock(self) -> float:
        return self._seconds

    async def beat(self) -> None:
        """Say that it is there."""
        await self._own.beat()

    async def stay_on(self) -> None:
        """Say that it is there for so long that it ends the claims of those that are gone."""
        for _ in range(3):
            self._seconds += SETTINGS.heartbeat_timeout.total_seconds() * 0.6
            await self.beat()

    async def claim(self, most: int = 1000, *, is_late: bool = False) -> bool:
        """Claim what is due, and begin it; whether there was anything.

        Of what is late, state and results of earlier claims arrive in between.
        """
        if not self._own.is_fresh:
            await self.beat()
        async with self._database.transaction() as connection:
            claimed = await claims.claim(connection, self._scope, self.owner, limit=most, lease=SETTINGS.lease)
        for intent in sorted(claimed, key=lambda each: (each.view, each.parent, each.key)):
            parent = ObjectKey.parse(intent.parent)
            place = ObjectKey.parse(intent.target).resource.removesuffix("_runs"), intent.parent_uid
            self._claimed[intent.key] = self._tenures.claim(self.owner, intent.key, place, parent.name)
        if is_late:
            await self.arrive()
            await self.store()
        for intent in sorted(claimed, key=lambda each: (each.view, each.parent, each.key)):
            self._effects.begin(intent, self._seconds)
        await self.settle()
        return bool(claimed)

    async def keep_claims(self) -> None:
        """Let its claims last, and end what runs under those that are lost."""
        self._tenures.renew(self.owner, self._effects.begun)
        await self._own.keep()
        await self.settle()

    async def hear(self) -> None:
        """Learn what has become of the objects of its daemons."""
        await self._live._compare()
        await self.settle()

    async def arrive(self) -> None:
        """Let all state be stored that is under way."""
        arrival, self._daemons.arrival = self._daemons.arrival, asyncio.Event()
        arrival.set()
        await self.settle()

    async def command(self, number: int, what: str) -> None:
        """Let one daemon do something."""
        if self.followers:
            follower = self.followers[number % len(self.followers)]
            if what == "stubborn":
                follower.is_stubborn = True
            else:
                if what == "keeps late":
                    self._daemons.late.add(follower.intent.key)
                follower.command = what.removesuffix(" late")
                await self.wake()

    async def wake(self) -> None:
        """Let all sleeps be over."""
        self._pauses.wake()
        await self.settle()

    async def follow(self, handler: str, daemon: Daemon[Web, Kept]) -> None:
        """Run as a daemon does."""
        is_function.set(True)
        key = run_waiting.get()
        follower = next(each for each in self.followers if each.intent.key == key)
        assert follower.tenure.place[0] == handler
        try:
            state = daemon.state.serial if daemon.state is not None else None
            self._judge(lambda: self._tenures.begin(follower.tenure, state))
            while await daemon.sleep(LONG):
                command, follower.command = follower.command, ""
                if command == "keeps":
                    await self._keep(follower, daemon)
                elif command == "returns":
                    return
                elif command:
                    raise FAILURES[command]
            if follower.is_stubborn:
                await self._pauses.pause(asyncio.Event())
            if daemon.reason != "lost":
                await self._keep(follower, daemon)
        finally:
            follower.tenure.is_called = False

    def _judge(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Broken as broken:  # levelog would take it for the daemon's
            self.broken.append(broken)

    async def _keep(self, follower: Follower, daemon: Daemon[Web, Kept]) -> None:
        serial = self._tenures.next_serial()
        try:
            await daemon.save(Kept(serial))
        except DaemonLost:
            self._judge(lambda: self._tenures.judge(follower.tenure, serial, is_kept=False))
            raise
        self._judge(lambda: self._tenures.judge(follower.tenure, serial, is_kept=True))

    async def store(self) -> bool:
        """Store what came of runs; whether there was anything."""
        results, self._ledger.results = self._ledger.results, []
        for result in results:
            tenure = next(tenure for tenure, known in self._results if known is result)
            before = await self._owner_of(tenure.key)
            self._receipts = []
            await self._ledger._store([result])
            if isinstance(result, Ended):
                if any(receipt.key == tenure.key for receipt in self._receipts):
                    self._tenures.finish(tenure, result)
            elif before == self.owner and not await self._owner_of(tenure.key):
                self._tenures.take_back(tenure.key)
        return bool(results)

    async def _owner_of(self, key: str) -> str:
        """Who has a claim."""
        query = select(intents.c.owner).where(intents.c.scope == self._scope.number, intents.c.key == key)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar() or ""

    async def shut_down(self) -> None:
        """End in order; what came of the runs is to be stored."""
        stopping = asyncio.create_task(self._effects.stop())
        await self.settle()
        while not stopping.done():
            await self.wake()  # the time of those that are stubborn is over
        await stopping

    async def kill(self) -> None:
        """End at once, and store nothing."""
        tasks = [each.task for each in self._effects.begun.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ledger.results = []
        await self._effects.caller.executor.close()
