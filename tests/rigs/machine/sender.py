"""An actuator that is stepped: the real claims, sending, receipts and their way to the log, without tasks and time."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec

from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.results import Ended, Later, Result
from levelog_actuator.sending import Sender
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ReceiptNoted
from levelog_kube.client import KubeClient
from levelog_store.actuate import claims, outcomes
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Sendable
from levelog_store.rows import Scope
from rigs.machine.checks import Broken
from rigs.machine.cluster import Api, Cluster, Happening, controller_of
from rigs.machine.log import Log
from rigs.machine.seam import SeamedDatabase

CLAIM = timedelta(days=1)
"""So that no claim ends by the database's clock; a crash ends them."""


class Beside:
    """An actuator as a processor of its process knows it. What it is given is carried out in later steps."""

    lease = CLAIM

    def __init__(self, owner: str, claimed: list[ClaimedIntent], database: SeamedDatabase) -> None:
        self.owner = owner
        self._claimed = claimed
        self._database = database

    def choose(self, intents: Sequence[Sendable]) -> Sequence[str]:
        """All keys."""
        return [each.key for each in intents]

    def begin(self, claimed: Sequence[ClaimedIntent], since: float) -> None:
        """Take what is claimed. Raises Broken if it could still be lost, and nobody remember the write."""
        if not self._database.is_safe:
            raise Broken(7, f"{claimed[0].key} is handed over before its claim is durable")
        self._claimed += claimed


class SteppedSender:
    """One actuator at a time; what it holds in memory is lost by `crash`."""

    def __init__(
        self, database: Database, scope: Scope, cluster: Cluster, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._database = database
        self.scope = scope
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self.api = Api(cluster)
        self._sender = Sender(cast("KubeClient", self.api), ActuatorSettings())
        self._serial = 0
        self._claimed: list[ClaimedIntent] = []
        self._unstored: list[tuple[ReceiptNoted, int]] = []
        """In the log, and in no row unless the fold has ended it; each with its claim."""
        self.writing = ""
        """Key of the intent that is being carried out."""
        self.effects: dict[str, list[Happening]] = {}
        """What changed in the cluster by each intent, by its key."""
        cluster.on_change = self._note

    def _note(self, happening: Happening) -> None:
        if self.writing:
            self.effects.setdefault(self.writing, []).append(happening)

    @property
    def owner(self) -> str:
        """By which its claims are known."""
        return f"actuator-{self._serial}"

    def beside(self, database: SeamedDatabase) -> "Beside":
        """The same actuator, for a processor that works in this database."""
        return Beside(self.owner, self._claimed, database)

    async def claim(self, most: int) -> int:
        """Claim intents; returns how many."""
        async with self._database.transaction() as connection:
            claimed = await claims.claim(connection, self.scope, self.owner, limit=most, lease=CLAIM)
        self._claimed += claimed
        return len(claimed)

    async def send(self, disturbance: str = "", *, is_killed: bool = False) -> bool:
        """Carry out one claimed intent and store what came of it, unless it is killed before; whether there was one."""
        if not self._claimed and not await self.claim(1):
            return False
        intent = self._claimed.pop(0)
        self.api.disturbance, self.writing = disturbance, intent.key
        try:
            result = await self._sender.carry_out(intent, lambda: True)
        finally:
            self.api.disturbance = self.writing = ""
        self._check_owner(intent)
        if is_killed:
            await self.crash()
        else:
            await self._keep(result)
        return True

    def _check_owner(self, intent: ClaimedIntent) -> None:
        """Compare what an intent changed with what it was for, and what its parent made, or controlled at any time."""
        namespace = ObjectKey.parse(intent.parent).namespace
        for effect in self.effects.get(intent.key, ()):
            if intent.target_uid and effect.uid != intent.target_uid:
                raise Broken(11, f"{intent.verb} of {effect.key} as {intent.target_uid} hits {effect.uid}")
            if effect.key.namespace != namespace:
                raise Broken(19, f"{intent.verb} of {effect.key} for {intent.parent}, of another namespace")
            earlier = [msgspec.json.decode(each.body) for each in self._cluster.before(effect)]
            if earlier and not any(controller_of(body) == intent.parent_uid for body in earlier):
                raise Broken(19, f"{intent.verb} of {effect.key}, which {intent.parent} never controlled")

    async def crash(self) -> None:
        """Forget everything; the next actuator begins."""
        self._claimed, self._unstored = [], []
        self._serial += 1
        async with self._database.transaction() as connection:
            await claims.end_claims(connection, self.scope)

    async def relay(self) -> bool:
        """Record receipts that the log does not hold, and have the rows keep those that it does; whether any were."""
        is_marked = bool(self._unstored)
        if is_marked:
            async with self._database.transaction() as connection:
                await outcomes.store_receipts(connection, self.scope, self.owner, self._unstored, is_relayed=True)
            self._unstored = []
        async with self._database.reading() as connection:
            rows = await outcomes.unrelayed(connection, self.scope, 1000)
        if not rows:
            return is_marked
        for row in sorted(rows, key=lambda row: row.key):
            receipt = msgspec.json.decode(row.receipt, type=ReceiptNoted)
            self._log.append_receipt(receipt)
        async with self._database.transaction() as connection:
            await outcomes.mark_relayed(connection, self.scope, [row.key for row in rows])
        return True

    def _receipt(self, result: Ended) -> ReceiptNoted:
        return result.receipt(self.scope.application, self._clock(), self.owner)

    async def _keep(self, result: Result) -> None:
        """Record the receipt of a write at once, as the actuator does; what is left of anything else is stored."""
        if isinstance(result, Ended) and result.intent.verb != "call":
            receipt = self._receipt(result)
            self._log.append_receipt(receipt)
            self._unstored.append((receipt, result.intent.claim))
            return
        async with self._database.transaction() as connection:
            if isinstance(result, Ended):
                row = self._receipt(result), result.intent.claim
                await outcomes.store_receipts(connection, self.scope, self.owner, [row])
            else:
                later: Later = msgspec.structs.replace(result, delay=timedelta(0))
                await outcomes.postpone(connection, self.scope, self.owner, [later.postponement])
