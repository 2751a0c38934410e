"""An actuator that calls handlers in steps, and what is known of each call: what began, what came of it, what counts.

The claims, the calls, the outcomes and their way to the log are the real ones. A call begins in one step and ends in a
later one, or never.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from sqlalchemy import select, update

from levelog import GiveUp, Retry
from levelog.edges import Edge
from levelog.handlers.edgehandlers import END, KNOWN
from levelog.intents import IntentOptions
from levelog_actuator.effects import EffectCaller
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.results import Ended, Result
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ReceiptNoted
from levelog_processors.program import Program
from levelog_store.actuate import claims, outcomes
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from levelog_store.tables import intents, levels
from rigs.leasing import LONG_AGO
from rigs.machine.checks import Broken
from rigs.machine.edges.handlers import COMPARED, spec_of
from rigs.machine.log import Log
from rigs.machine.operator import Web

CLAIM: Final = timedelta(days=1)
OUTCOMES: Final[Mapping[str, Exception | None]] = {
    "returns": None,
    "fails": ValueError("as it is told"),
    "retries": Retry("as it is told", delay=timedelta(0)),
    "gives up": GiveUp("as it is told"),
}

Place = tuple[str, str]
"""Handler and uid."""


class Attempt:
    """One call of an effect under one claim."""

    def __init__(self, intent: ClaimedIntent, owner: str) -> None:
        self.intent = intent
        self.owner = owner
        self.handler = ObjectKey.parse(intent.target).resource.removesuffix("_handled")
        self.parent = ObjectKey.parse(intent.parent).name.partition(":")[0]
        self.edge = msgspec.json.decode(intent.body, type=Edge)
        self.name = msgspec.json.decode(intent.options, type=IntentOptions).name
        self.outcome = "returns"
        self.gate = asyncio.Event()
        self.is_called = False
        """The user's function runs, or has run."""
        self.task: asyncio.Task[Result]

    @property
    def place(self) -> Place:
        return self.handler, self.intent.parent_uid

    @property
    def state(self) -> Any:
        """What it handles."""
        return COMPARED[self.handler].state(spec_of(self.edge.object))

    @property
    def is_waiting(self) -> bool:
        """Its function waits to be let go."""
        return self.is_called and not self.gate.is_set()


_current: ContextVar[Attempt] = ContextVar("current attempt")


class Handled:
    """What handlers have handled of objects, as far as it was stored."""

    def __init__(self) -> None:
        self.states: dict[Place, Any] = {}
        """The last state of each object."""
        self.begun: set[Place] = set()
        """Where the function was called."""
        self.known: set[Place] = set()
        """Where something was stored."""
        self.ended: set[Place] = set()
        self.given_up: dict[Place, Any] = {}
        """States that were refused for good; END for an end."""

    def note(self, attempt: Attempt, result: Ended) -> None:
        """Take in what was stored of a call."""
        place, is_end = attempt.place, attempt.name == END
        if result.outcome == "failed":
            self.given_up[place] = END if is_end else attempt.state
            return
        self.known.add(place)
        if is_end:
            self.ended.add(place)
        elif attempt.name != KNOWN:
            self.states[place] = attempt.state


class SteppedCaller:
    """One actuator at a time, and what earlier ones that stood still go on with; memory is lost by `crash`."""

    def __init__(
        self,
        database: Database,
        scope: Scope,
        program: Program,
        log: Log,
        clock: Callable[[], datetime],
        states_of: Callable[[str], list[Any]],
    ) -> None:
        """`states_of`: specs that an object had, by its uid, in order."""
        self._database = database
        self._scope = scope
        self._log = log
        self._clock = clock
        self._states_of = states_of
        self._caller = EffectCaller(program.effects, ActuatorSettings())
        self._serial = 0
        self.attempts: list[Attempt] = []
        """Those that have not ended."""
        self.handled = Handled()
        self._holders: dict[str, str] = {}
        """Who claimed each intent last."""
        self.broken: list[Broken] = []

    @property
    def owner(self) -> str:
        """By which its claims are known."""
        return f"actuator-{self._serial}"

    async def claim(self, most: int) -> bool:
        """Claim what is due and call it, as far as each call comes; whether anything was claimed."""
        async with self._database.transaction() as connection:
            claimed = await claims.claim(connection, self._scope, self.owner, limit=most, lease=CLAIM)
        for intent in sorted(claimed, key=lambda each: (each.view, each.parent, each.options)):  # keys differ each time
            attempt = Attempt(intent, self.owner)
            if not intent.is_doubtful and not await self._is_there(intent):
                raise Broken(16, f"{attempt.handler} is called for {intent.parent_uid}, which is gone")
            self._holders[intent.key] = self.owner
            self.attempts.append(attempt)
            attempt.task = asyncio.create_task(self._call(attempt))
        while any(not each.task.done() and not each.is_waiting for each in self.attempts):  # noqa: ASYNC110 - called in the loop's next rounds
            await asyncio.sleep(0)
        return bool(claimed)

    async def _is_there(self, intent: ClaimedIntent) -> bool:
        """Tell whether the tables hold the level of the object, or of what stands for it after its end."""
        table = levels.c
        is_level = (table.scope == self._scope.number) & (table.view == intent.view) & (table.parent == intent.parent)
        async with self._database.reading() as connection:
            found = await connection.execute(select(table.parent_uid).where(is_level))
            return found.scalar() == intent.parent_uid

    async def _call(self, attempt: Attempt) -> Result:
        _current.set(attempt)
        return await self._caller.carry_out(attempt.intent)

    async def hear(self, handler: str, reason: str, web: Web, old: Any, /) -> None:
        """Judge one call when it is made, and end it when it is let go."""
        attempt = _current.get()
        attempt.is_called = True
        try:
            self._judge(attempt, reason, COMPARED[handler].state(msgspec.to_builtins(web.spec)), old)
        except Broken as broken:  # levelog would take it for the user's
            self.broken.append(broken)
        self.handled.begun.add(attempt.place)
        await attempt.gate.wait()
        if (error := OUTCOMES[attempt.outcome]) is not None:
            raise error

    def _judge(self, attempt: Attempt, reason: str, state: Any, old: Any) -> None:
        place, handled = attempt.place, self.handled
        what = f"{attempt.handler} for {reason} of {attempt.intent.parent} ({attempt.intent.parent_uid}), {state}"
        for other in self.attempts:
            is_other = other is not attempt and other.is_waiting and self._holds(other)
            if is_other and (other.handler, other.parent) == (attempt.handler, attempt.parent):
                raise Broken(17, f"{what} is called while it runs for {other.edge.reason}, {other.state}")
        if place in handled.ended:
            raise Broken(17 if reason != "delete" else 16, f"{what} is called after its end was handled")
        if reason == "delete":
            return
        last = handled.states.get(place)
        if last == state:
            raise Broken(16, f"{what} is called, and handled that before")
        if old != last:
            raise Broken(16, f"{what} is called with {old} as what it handled, and that is {last}")
        if (reason == "create") != (last is None):
            raise Broken(16, f"{what} is called, and handled {last} before")
        seen = [COMPARED[attempt.handler].state(spec) for spec in self._states_of(place[1])]
        if state not in seen[seen.index(last) if last is not None else 0 :]:
            raise Broken(17, f"{what} is called after {last}, which came later")

    def _holds(self, attempt: Attempt) -> bool:
        """Tell whether no other actuator has claimed the intent since."""
        return self._holders.get(attempt.intent.key) == attempt.owner

    async def finish(self, number: int, outcome: str, *, is_killed: bool = False) -> bool:
        """End a call that has begun, and store what came of it, unless the actuator is killed before."""
        if not self.attempts:
            return False
        attempt = self.attempts[number % len(self.attempts)]
        attempt.outcome = outcome
        attempt.gate.set()
        result = await attempt.task
        if is_killed:
            await self.crash()
        else:
            self.attempts.remove(attempt)
            await self._keep(attempt, result)
        return True

    async def _keep(self, attempt: Attempt, result: Result) -> None:
        key, is_held = attempt.intent.key, self._holds(attempt)
        async with self._database.transaction() as connection:
            before = await self._row(connection, key)
            if isinstance(result, Ended):
                receipt = result.receipt(self._scope.application, self._clock(), attempt.owner)
                if key in await outcomes.store_receipts(
                    connection, self._scope, attempt.owner, [(receipt, result.intent.claim)]
                ):
                    self.handled.note(attempt, result)
            else:
                later = msgspec.structs.replace(result, delay=timedelta(0))
                await outcomes.postpone(connection, self._scope, attempt.owner, [later.postponement])
            after = await self._row(connection, key)
        if not is_held and before != after:
            raise Broken(17, f"what came of {attempt.edge.reason} under a lost claim is stored: {attempt.outcome}")

    async def _row(self, connection: Any, key: str) -> Any:
        table = intents.c
        query = select(table.state, table.owner, table.outcome, table.attempts, table.error)
        return (await connection.execute(query.where(table.scope == self._scope.number, table.key == key))).first()

    async def crash(self) -> None:
        """Forget everything, in the middle of all calls; the next actuator begins."""
        for attempt in self.attempts:
            attempt.task.cancel()
        await asyncio.gather(*(each.task for each in self.attempts), return_exceptions=True)
        self.attempts = []
        self._serial += 1
        async with self._database.transaction() as connection:
            await claims.end_claims(connection, self._scope)

    async def stand_still(self) -> None:
        """Let all claims end, as if the actuator had stood still; another one begins, and its calls go on."""
        self._serial += 1
        async with self._database.transaction() as connection:
            await connection.execute(
                update(intents)
                .where(intents.c.scope == self._scope.number, intents.c.state == "claimed", intents.c.owner != "")
                .values(due_at=LONG_AGO, expires_at=LONG_AGO)
            )

    async def relay(self) -> bool:
        """Record the receipts that the log does not hold; whether there were any."""
        return await relay(self._database, self._scope, self._log)

    async def close(self) -> None:
        """End what runs."""
        for attempt in self.attempts:
            attempt.task.cancel()
        await asyncio.gather(*(each.task for each in self.attempts), return_exceptions=True)
        await self._caller.executor.close()

    def check_rest(self, bodies: Mapping[str, Any], last: Mapping[str, Any]) -> None:
        """Compare what was handled with all that there is, and the last body of all that ever was, by uid."""
        handled = self.handled
        for handler, compared in COMPARED.items():
            for uid, body in bodies.items():
                state, place = compared.state(spec_of(body)), (handler, uid)
                if compared.fits(body) and state not in (handled.states.get(place), handled.given_up.get(place)):
                    raise Broken(15, f"{handler} has not handled {uid} as {state}, but {handled.states.get(place)}")
            if "delete" not in compared.reasons:
                continue
            for place in [(handler, uid) for uid in last if uid not in bodies and compared.fits(last[uid])]:
                is_over = place in handled.ended or handled.given_up.get(place) == END
                if not is_over and (place in handled.known or place in handled.begun):
                    raise Broken(15, f"{handler} has not handled the end of {place[1]}, which it knew")


async def relay(database: Database, scope: Scope, log: Log) -> bool:
    """Record the receipts that the log does not hold; whether there were any."""
    async with database.reading() as connection:
        rows = await outcomes.unrelayed(connection, scope, 1000)
    receipts = [msgspec.json.decode(row.receipt, type=ReceiptNoted) for row in rows]
    for receipt in sorted(
        receipts, key=lambda each: (each.view, str(each.parent), each.parent_uid, each.round, str(each.call))
    ):
        log.append_receipt(receipt)
    if rows:
        async with database.transaction() as connection:
            await outcomes.mark_relayed(connection, scope, [row.key for row in rows])
    return bool(rows)
