"""The writes of one actuator: each is sent in its turn, while its claim is this actuator's, and its result passed on.

What is sent, and how an answer is judged, is in `sending.py`; here is when, and when not. A receipt goes to the relay,
what is to be tried again to the ledger.
"""

import asyncio
from datetime import timedelta

from msgspec import Struct

from levelog.calls.runningtasks import RunningTasks
from levelog_actuator.judgedwrites import try_later
from levelog_actuator.ledger import Ledger
from levelog_actuator.limits import Limits, Outage
from levelog_actuator.ownclaims import OwnClaims
from levelog_actuator.relay import Relay
from levelog_actuator.requests import Order
from levelog_actuator.results import Later, Observers, Result, told_without_secrets
from levelog_actuator.sending import Sender
from levelog_store.actuate.claims import ClaimedIntent


class ClaimedWrites(Struct, eq=False):
    """Sends claimed writes, and those that are part of a call."""

    sender: Sender
    own: OwnClaims
    limits: Limits
    outage: Outage
    observers: Observers
    relay: Relay
    ledger: Ledger
    under_way: RunningTasks
    is_stopping: bool = False

    def begin(self, intent: ClaimedIntent, since: float) -> None:
        """Send a write that was claimed at `since`, as `OwnClaims.begin` has it."""
        self.limits.begin(intent)
        self.own.begin(intent, since)
        self.under_way.begin(self._carry_out(intent), f"write of {intent.target}")

    async def stop(self) -> None:
        """End the requests under way, and give back what waits.

        What is cancelled stays claimed, and is looked at by whoever claims it next.
        """
        self.is_stopping = True
        self.limits.end_waiting()  # who waits for a turn gets it, and gives the intent back
        await self.under_way.drain(self.sender.settings.request)

    async def send_part(self, order: Order) -> Result:
        """Send a write that is part of a call, under the call's claim."""
        intent, limit = order.intent, self.own.limit(order.intent)
        async with self.limits.turn(intent) as rest:
            with self.observers.attempting(intent) as told:
                later = await self._given_back(intent, rest)
                result = later or await self.sender.send(order, lambda: self.own.outlasts(intent), limit)
                told(result)
        self._note(result)
        return result

    async def _carry_out(self, intent: ClaimedIntent) -> None:
        try:
            async with self.limits.turn(intent) as rest:
                with self.observers.attempting(intent) as told:
                    result = await self._attempt(intent, rest)
                    told(result)
            self.under_way.difference_update({asyncio.current_task()})  # a result waits for those of others
            self._note(result)
            if isinstance(result, Later):
                self.ledger.record(result)
            else:
                self.observers.on_taken([self.relay.submit(result, self.own.now())], [])
        finally:
            self.own.end(intent)
            self.limits.end(intent)

    async def _attempt(self, intent: ClaimedIntent, rest: timedelta) -> Result:
        if self.is_stopping or self.outage.is_closed:
            return Later.unsent(intent, "the actuator ends" if self.is_stopping else "the server cannot be reached")
        if later := await self._given_back(intent, rest):
            return later
        try:
            return await self.sender.carry_out(intent, lambda: self.own.outlasts(intent), self.own.limit(intent))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one intent must not stop the others
            text = told_without_secrets(intent, error, self.sender.redactor)
            return try_later(self.sender.settings, intent, text, is_doubtful=True)

    async def _given_back(self, intent: ClaimedIntent, rest: timedelta) -> Later | None:
        """The intent to be claimed again, if its group rests or the claim is not this actuator's; None: it is sent."""
        why = "the API has too much to do for its group" if rest else await self.own.why_not(intent)
        return Later.unsent(intent, why, rest) if why else None

    def _note(self, result: Result) -> None:
        self.outage.note(result)
        if isinstance(result, Later) and result.is_throttled:
            self.limits.rest(result.intent, result.delay)
