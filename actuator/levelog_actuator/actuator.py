"""The actuator: claims decided intents, has them sent or called, and has the results recorded.

It makes the parts and runs them. It claims in the database when a `ClaimLoop` says so, and takes what the processor of
the same process has claimed for it. Writes go on to `ClaimedWrites`, calls to `Effects`; their results go from there to
the relay and the ledger. It decides nothing, sends nothing itself, and reads no log.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from levelog.calls.runningtasks import RunningTasks
from levelog.effects import EffectHandler
from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.indices import GiveIndex
from levelog_actuator.claimedwrites import ClaimedWrites
from levelog_actuator.claiming import ClaimLoop
from levelog_actuator.effects import Effects, caller_for
from levelog_actuator.ledger import Ledger, StoredResults
from levelog_actuator.limits import Limits, Outage
from levelog_actuator.outbox import ActuatorSettings, Outbox
from levelog_actuator.ownclaims import OwnClaims
from levelog_actuator.relay import Relay
from levelog_actuator.results import Observers
from levelog_actuator.sending import Sender
from levelog_actuator.verifier import WriteVerifier
from levelog_base.errors import IdentityMismatch, LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_kube.client import KubeClient
from levelog_log.notifications import Notifier, Topic
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Sendable
from levelog_store.rows import Scope

log = logging.getLogger(__name__)

BESIDE = timedelta(seconds=0.5)
"""How often other groups are checked while a group is full or rests; this skips everything that waits."""


class Actuator:
    """Carries out the intents of one application; several may run, on PostgreSQL, and share the work.

    Guarantees: at most one effective write for each intent, in the order of the decisions for each target; every
    claimed intent gets a receipt in the log, and the receipt of a call is in SQL first. A receipt may be in the log
    twice.
    """

    def __init__(
        self,
        database: Database,
        scope: Scope,
        client: KubeClient,
        publisher: BatchPublisher,
        notifier: Notifier,
        *,
        settings: ActuatorSettings | None = None,
        redactor: Redactor | None = None,
        effects: Mapping[str, EffectHandler] | None = None,
        writers: Mapping[str, ReconcileHandler] | None = None,
        index: GiveIndex | None = None,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        """`redactor` redacts what is recorded; the default has no key, and opens nothing that is encrypted.

        `effects` are those of all operators of the application, by `operator/effect`; `writers` their reconcile
        functions by `operator/view`, which say what may be sent (none: whatever is asked for); `index` gives the live
        indices of their daemons, which do not run without it. `clock` tells seconds, by which claims and heartbeats are
        counted.
        """
        settings, redactor = settings or ActuatorSettings(), redactor or Redactor()
        self.lease = settings.lease
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._outbox = outbox = Outbox(database, scope, self.owner, settings)
        self._publisher = publisher
        self._clock = clock
        self._is_claiming = False
        self.observers = Observers()
        sender = Sender(client, settings, redactor, writers=writers)
        writer = publisher.stream.writer("actuator")
        self._relay = Relay(outbox, publisher, writer)
        self._verifier = WriteVerifier(outbox, sender, publisher, writer)
        self._own = OwnClaims(outbox, self._wake_loops, clock)
        self._limits = Limits(settings)
        self._outage = Outage(settings, client.absence)
        under_way = RunningTasks()
        on_hastened = partial(notifier.publish, Topic.WAKE)
        self._ledger = Ledger(outbox, under_way, self._note_stored, on_hastened, clock=self._own.now)
        self._writes = ClaimedWrites(
            sender, self._own, self._limits, self._outage, self.observers, self._relay, self._ledger, under_way
        )
        limited = notifier.listen(Topic.INTENT)
        caller = caller_for(
            outbox,
            effects or {},
            redactor,
            self._own.now,
            index,
            send=self._writes.send_part,
            listener=notifier.listen(Topic.LEVELS),
            most_bytes=lambda: publisher.stream.connection.max_payload_bytes,
            on_late_return=lambda _: limited.notify(),
        )
        self._effects = Effects(self._own, caller, self._limits, self.observers, self._ledger, on_room=limited.notify)
        every = ClaimLoop(outbox, notifier.listen(Topic.INTENT), self._until_open, self._claim)
        apart = ClaimLoop(outbox, limited, self._own.until_fresh, self._claim_limited)
        self._loops = [every, apart] if self._effects.limited else [every]  # so that nobody is held up
        database.absence.on_end(self._wake_loops)

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        """Keys of the intents that it would begin at once, among those that this process is deciding on.

        A namespace without claims is chosen from also while others have enough: its turn is next.
        """
        if not self._is_claiming or self._outage.is_on or not self._own.is_fresh:
            return []
        room, most = self._limits.room, self._outbox.settings.requests
        at_once = min(room.limit, max(0, most - len(self._writes.under_way)))
        writes = [each for each in intents if each.verb != "call"]
        wanted = [each.key for each in writes if each.api_version not in room.without]
        beside = [each.key for each in writes if self._limits.is_calm(each)]
        return list(dict.fromkeys([*wanted[:at_once], *beside[:most]]))

    def trouble(self) -> str:
        """Why it may not write; empty: it may."""
        if not self._is_claiming:
            return "claims nothing yet"
        return "" if self._own.is_fresh else "its heartbeat does not reach the database"

    async def run(self) -> None:
        """Work until cancelled; then end the requests under way, store their results and give back the rest.

        Raises IdentityMismatch, before anything is sent, if the cluster or the log is another one than the database
        was built from; ApiError or Unavailable if the cluster cannot be identified.
        """
        await self._verify()
        if not self._outbox.database.is_shared:
            await self._outbox.write_durably(claims.end_claims)
        self._is_claiming = True
        works = {
            "ledger": self._ledger.run(),
            "relay": self._relay.run(),
            "verifier": self._verifier.run(),
            "calls": self._own.keep_on(),
        }
        if daemons := self._effects.caller.daemons:
            works["levels"] = daemons.levels.run()
        if self._outbox.database.is_shared:
            works["heartbeat"] = self._own.beat_on()
        tasks = {name: asyncio.create_task(work, name=f"actuator {name}") for name, work in works.items()}
        claiming = [asyncio.create_task(each.run(), name="actuator claims") for each in self._loops]
        everything = [*tasks.values(), *claiming]
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks["verifier"].cancel()
            await self._stop(tasks["ledger"], tasks["relay"], claiming)
            for task in everything:
                task.cancel()
            await asyncio.wait(everything)
        for task in everything:
            if not task.cancelled():
                task.result()

    async def _verify(self) -> None:
        await self._writes.sender.verify(self._outbox.scope.cluster)
        stream = self._publisher.stream.identity
        if stream.created != self._outbox.scope.stream_created:
            raise IdentityMismatch(
                f"the stream {stream.name} was made at {stream.created}, but the intents were decided on one made at "
                f"{self._outbox.scope.stream_created}: nothing is written until a processor has folded the new one"
            )

    async def _stop(
        self, ledger: asyncio.Task[None], relay: asyncio.Task[None], claiming: Sequence[asyncio.Task[None]]
    ) -> None:
        self._is_claiming = False
        for task in claiming:
            task.cancel()
        await asyncio.wait(claiming)
        await self._writes.stop()
        await self._effects.stop()
        if not ledger.done():
            stored = asyncio.create_task(self._ledger.is_empty.wait())
            limit = self._outbox.settings.request.total_seconds()
            await asyncio.wait((stored, ledger), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            stored.cancel()
        ledger.cancel()
        relay.cancel()
        await asyncio.wait((ledger, relay))
        try:
            async with asyncio.timeout(self._outbox.settings.request.total_seconds()):
                try:
                    await self._relay.flush()
                finally:
                    await self._relay.keep()
        except (LevelogError, TimeoutError) as error:
            log.warning("some receipts are not in the log until an actuator runs again: %s", error)

    def _wake_loops(self) -> None:
        """Have the loops claim what can be claimed now."""
        for each in self._loops:
            each.listener.notify()

    async def _until_open(self) -> None:
        await self._limits.until_open(BESIDE)
        await self._own.until_fresh()
        if self._outage.is_on:
            if self._writes.under_way:
                await asyncio.wait(self._writes.under_way)
            await self._outage.wait()

    async def _claim(self) -> tuple[bool, float]:
        """Claim and start as many intents as there is room for; returns as `ClaimLoop.claim`, of all groups."""
        room = self._limits.room
        limit = min(room.limit, 1) if self._outage.is_on else room.limit
        if not limit:
            return False, 0.0
        began = self._clock()
        async with self._outbox.database.transaction() as connection:
            reading = self._clock()
            claimed = await claims.claim(
                connection,
                self._outbox.scope,
                self.owner,
                limit=limit,
                lease=self.lease,
                without=room.without,
                without_calls=self._effects.limited,
            )
            took = self._clock() - reading
        self.begin(claimed, began)
        return len(claimed) < limit and not room.without, took if self._effects.limited else 0.0

    async def _claim_limited(self) -> tuple[bool, float]:
        """Claim and start calls of effects with a limit, as many as may run; returns as `ClaimLoop.claim`."""
        if not (rooms := self._effects.rooms):
            return True, 0.0
        began, scope = self._clock(), self._outbox.scope
        async with self._outbox.database.transaction() as connection:
            reading = self._clock()
            claimed, is_more = await claims.claim_calls(connection, scope, self.owner, rooms, lease=self.lease)
            took = self._clock() - reading
        self.begin(claimed, began)
        return not is_more, 0.0 if claimed else took

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        """Carry out claimed intents; the claims count from `since` on the clock `elapsed`.

        At minus infinity it is unknown whether the claims were committed: they are looked up and given back.
        """
        for intent in claimed:
            log.debug("claimed", extra={"object": intent.target, "intent": intent.key})
            (self._effects if intent.verb == "call" else self._writes).begin(intent, since)

    def _note_stored(self, stored: StoredResults) -> None:
        self._relay.submit_stored(stored.receipts)
        self.observers.on_taken(stored.receipts, stored.later)
        for each in self._loops:
            if stored.later:
                each.expect(min(result.delay for result in stored.later))
            # what was committed meanwhile, and waits for the same target, a claim may have passed by
            if stored.later or stored.is_awaited or each.claimed_at >= stored.began:
                each.listener.notify()
