"""The actuator: claims decided intents, carries them out, and records the results."""

import asyncio
import logging
import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from levelog.absence import level_of
from levelog.effects import EffectHandler
from levelog.handlers.views import ReconcileHandler
from levelog.indices import GiveIndex
from levelog_actuator.awaited import AwaitedLevels
from levelog_actuator.claimchecks import ClaimChecks
from levelog_actuator.claiming import ClaimLoop
from levelog_actuator.daemons import Daemons
from levelog_actuator.effects import EffectCaller, Effects
from levelog_actuator.heartbeat import Heartbeat
from levelog_actuator.ledger import Ledger, StoredResults
from levelog_actuator.limits import ActuatorSettings, Limits, Outage, try_later
from levelog_actuator.patching import CallPatcher
from levelog_actuator.relay import Relay
from levelog_actuator.requests import Order
from levelog_actuator.results import Attempting, Ended, Later, Result, about, told_without_secrets, unwatched
from levelog_actuator.sending import Sender
from levelog_actuator.verifier import WriteVerifier
from levelog_base.errors import IdentityMismatch, LevelogError, Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import ReceiptNoted
from levelog_kube.client import KubeClient
from levelog_log.notifications import Notifier, Topic
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate import claims
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.actuate.daemons import keep_progress
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
        self._database = database
        self._scope = scope
        self._publisher = publisher
        self._settings = settings or ActuatorSettings()
        self.lease = self._settings.lease
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._redactor = redactor or Redactor()
        self._sender = Sender(client, self._settings, self._redactor, writers=writers)
        writer = publisher.stream.writer("actuator")
        self._relay = Relay(database, scope, self.owner, publisher, writer, self._settings)
        self._verifier = WriteVerifier(database, scope, self.owner, self._sender, publisher, writer, self._settings)
        self._heartbeat = Heartbeat(database, scope, self.owner, self._settings, on_ended=self._wake_loops, clock=clock)
        self._ledger = Ledger(
            database,
            scope,
            self.owner,
            self._settings,
            is_busy=lambda: bool(self._sending),
            on_stored=self._note_stored,
            on_hastened=lambda: notifier.publish(Topic.WAKE),
            clock=self._heartbeat.now,
        )
        self._claim_checks = ClaimChecks(database, scope, self.owner, clock)
        self._clock = clock
        self._limits = Limits(self._settings)
        claiming = partial(ClaimLoop, database=database, scope=scope, settings=self._settings)
        listener = notifier.listen(Topic.INTENT)
        self._loops = [claiming(listener=listener, until_ready=self._until_open, claim=self._claim)]
        database.absence.on_end(self._wake_loops)
        caller = EffectCaller(effects or {}, self._settings, self._redactor, self._heartbeat.now, index=index)
        caller.patcher = CallPatcher(
            self._send_for_call, self._keep, self._settings, self._redactor, self._heartbeat.now
        )
        caller.most_bytes = lambda: publisher.stream.connection.max_payload_bytes
        self._awaited = AwaitedLevels(database, scope, self._settings, notifier.listen(Topic.LEVELS))
        if index is not None:
            caller.daemons = Daemons(database, scope, self.owner, index, self._awaited)
        self._effects = Effects(
            database,
            scope,
            self.owner,
            caller,
            self._settings,
            on_result=self._ledger.record,
            on_end=self._limits.end,
            forget=self._ledger.forget,
            clock=clock,
        )
        if self._effects.places:  # calls that have a limit are claimed apart, so that nobody is held up
            listener, until_fresh = notifier.listen(Topic.INTENT), self._heartbeat.until_fresh
            self._effects.on_place = listener.notify
            self._loops.append(claiming(listener=listener, until_ready=until_fresh, claim=self._claim_limited))
        self._sending: set[asyncio.Task[None]] = set()
        self._is_claiming = self._is_stopping = False
        self._outage = Outage(self._settings, client.absence)
        self.on_taken: Callable[[Sequence[ReceiptNoted], Sequence[Later]], None] = lambda *_: None
        """Gets receipts, and results that are tried again."""
        self._attempting: Attempting = unwatched

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        """Keys of the intents that it would begin at once, among those that this process is deciding on.

        A namespace without claims is chosen from also while others have enough: its turn is next.
        """
        if not self._is_claiming or self._outage.is_on or not self._heartbeat.is_fresh:
            return []
        room, most = self._limits.room, self._settings.requests
        writes = [each for each in intents if each.verb != "call"]
        wanted = [each.key for each in writes if each.api_version not in room.without]
        beside = [each.key for each in writes if self._limits.is_calm(each)]
        return list(dict.fromkeys([*wanted[: min(room.limit, max(0, most - len(self._sending)))], *beside[:most]]))

    def watch(self, attempting: Attempting) -> None:
        """Enter this context for each attempt to write or to call."""
        self._attempting = self._effects.attempting = attempting

    def trouble(self) -> str:
        """Why it may not write; empty: it may."""
        if not self._is_claiming:
            return "claims nothing yet"
        return "" if self._heartbeat.is_fresh else "its heartbeat does not reach the database"

    async def run(self) -> None:
        """Work until cancelled; then end the requests under way, store their results and give back the rest.

        Raises IdentityMismatch, before anything is sent, if the cluster or the log is another one than the database
        was built from; ApiError or Unavailable if the cluster cannot be identified.
        """
        await self._verify()
        if not self._database.is_shared:
            async with self._database.transaction() as connection:
                await claims.end_claims(connection, self._scope)
        self._is_claiming = True
        works = {
            "ledger": self._ledger.run(),
            "relay": self._relay.run(),
            "verifier": self._verifier.run(),
            "effects": self._effects.run(),
            "levels": self._awaited.run(),
        }
        if self._database.is_shared:
            works["heartbeat"] = self._heartbeat.run()
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
        await self._sender.verify(self._scope.cluster)
        stream = self._publisher.stream.identity
        if stream.created != self._scope.stream_created:
            raise IdentityMismatch(
                f"the stream {stream.name} was made at {stream.created}, but the intents were decided on one made at "
                f"{self._scope.stream_created}: nothing is written until a processor has folded the new one"
            )

    async def _stop(
        self, ledger: asyncio.Task[None], relay: asyncio.Task[None], claiming: Sequence[asyncio.Task[None]]
    ) -> None:
        self._is_claiming = False
        for task in claiming:
            task.cancel()
        await asyncio.wait(claiming)
        self._is_stopping = True
        self._limits.end_waiting()  # who waits for a turn gets it, and gives the intent back
        if self._sending:
            _, stuck = await asyncio.wait(self._sending, timeout=self._settings.request.total_seconds())
            for task in stuck:
                task.cancel()  # its intent stays claimed, and is looked at by whoever claims it next
        await self._effects.stop()
        if not ledger.done():
            stored = asyncio.create_task(self._ledger.is_empty.wait())
            limit = self._settings.request.total_seconds()
            await asyncio.wait((stored, ledger), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            stored.cancel()
        ledger.cancel()
        relay.cancel()
        await asyncio.wait((ledger, relay))
        try:
            async with asyncio.timeout(self._settings.request.total_seconds()):
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
        await self._heartbeat.until_fresh()
        if self._outage.is_on:
            if self._sending:
                await asyncio.wait(self._sending)
            await self._outage.wait()

    async def _claim(self, loop: ClaimLoop) -> bool:
        """Claim and start as many intents as there is room for; returns whether no more are due, in any group."""
        room = self._limits.room
        limit = min(room.limit, 1) if self._outage.is_on else room.limit
        if not limit:
            return False
        began = self._clock()
        async with self._database.transaction() as connection:
            reading = self._clock()
            claimed = await claims.claim(
                connection,
                self._scope,
                self.owner,
                limit=limit,
                lease=self.lease,
                without=room.without,
                without_calls=self._effects.places,
            )
            took = self._clock() - reading
        if self._effects.places:
            loop.spare(took)
        self.begin(claimed, began)
        return len(claimed) < limit and not room.without

    async def _claim_limited(self, loop: ClaimLoop) -> bool:
        """Claim and start calls of effects with a limit, as many as may run; returns whether no more may start."""
        if not (rooms := self._effects.rooms):
            return True
        began = self._clock()
        async with self._database.transaction() as connection:
            reading = self._clock()
            claimed, is_more = await claims.claim_calls(connection, self._scope, self.owner, rooms, lease=self.lease)
            took = self._clock() - reading
        if not claimed:
            loop.spare(took)
        self.begin(claimed, began)
        return not is_more

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        """Carry out claimed intents; the claims count from `since` on the clock `elapsed`.

        At minus infinity it is unknown whether the claims were committed: they are looked up and given back.
        """
        for intent in claimed:
            log.debug("claimed", extra={"object": intent.target, "intent": intent.key})
            if intent.verb != "call" or intent.effect not in self._effects.places:
                self._limits.begin(intent)
            if intent.verb == "call":
                self._effects.begin(intent)
                continue
            self._claim_checks.begin(intent, since)
            task = asyncio.create_task(self._carry_out(intent, since))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _carry_out(self, intent: ClaimedIntent, claimed_at: float) -> None:
        try:
            async with self._limits.turn(intent):
                with self._attempting(intent) as told:
                    result = await self._attempt(intent, claimed_at)
                    if result is not None:
                        told(result)
            self._sending.difference_update({asyncio.current_task()})  # no longer under way: a result waits for others
            if result is not None:
                self._note(result)
                self._record(result)
        finally:
            self._claim_checks.end(intent)
            self._limits.end(intent)

    def _record(self, result: Result) -> None:
        if not isinstance(result, Ended):
            self._ledger.record(result)
            return
        receipt = result.receipt(self._scope.application, self._heartbeat.now(), self.owner)
        self._relay.submit(receipt, result.intent.claim)
        self.on_taken([receipt], [])

    async def _send_for_call(self, order: Order) -> Result:
        """Send a write that is part of a call."""
        intent, limit = order.intent, self._heartbeat.limit(order.intent)
        if rest := self._limits.resting(intent):
            return Later.unsent(intent, "the API has too much to do for its group", rest)
        async with self._limits.turn(intent):
            with self._attempting(intent) as told:
                result = await self._sender.send(
                    order, lambda: self._effects.outlasts(limit) and self._heartbeat.outlasts(intent), limit
                )
                told(result)
        self._note(result)
        return result

    async def _keep(self, intent: ClaimedIntent, progress: bytes) -> bool:
        """Keep what a call has returned; while the database is away, it waits."""
        while True:
            try:
                async with self._database.transaction(durable=False) as connection:
                    return await keep_progress(connection, self._scope, self.owner, intent, progress)
            except Unavailable as error:
                log.log(level_of(error), "what a call has returned is not kept: %s", error, extra=about(intent))
                await self._database.absence.pause(BESIDE.total_seconds())

    def _note(self, result: Result) -> None:
        self._outage.note(result)
        if isinstance(result, Later) and result.is_throttled:
            self._limits.rest(result.intent, result.delay)

    async def _attempt(self, intent: ClaimedIntent, claimed_at: float) -> Result | None:
        """Carry the intent out; None if the claim has gone to another actuator."""
        clock, limit = self._clock, self._heartbeat.limit(intent)
        last_start = claimed_at + (self.lease - limit).total_seconds()
        if self._is_stopping or self._outage.is_closed:
            return Later.unsent(intent, "the actuator ends" if self._is_stopping else "the server cannot be reached")
        if rest := self._limits.resting(intent):
            return Later.unsent(intent, "the API has too much to do for its group", rest)
        try:
            is_ours = await self._claim_checks.is_still_ours(intent, since=self._heartbeat.since)
        except Unavailable as error:
            return Later.unsent(intent, f"its claim cannot be looked up: {error}")
        if not is_ours:
            level = logging.WARNING if claimed_at > -math.inf else logging.DEBUG
            log.log(level, "the claim ended while the intent waited", extra=about(intent))
            return None
        try:
            return await self._sender.carry_out(
                intent, lambda: clock() < last_start and self._heartbeat.outlasts(intent), limit
            )
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one intent must not stop the others
            text = told_without_secrets(intent, error, self._redactor)
            return try_later(self._settings, intent, text, is_doubtful=True)

    def _note_stored(self, stored: StoredResults) -> None:
        self._relay.submit_stored(stored.receipts)
        self.on_taken(stored.receipts, stored.later)
        for each in self._loops:
            if stored.later:
                each.expect(min(result.delay for result in stored.later))
            # what was committed meanwhile, and waits for the same target, a claim may have passed by
            if stored.later or stored.is_awaited or each.claimed_at >= stored.began:
                each.listener.notify()
