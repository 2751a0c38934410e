"""Calls the effects that intents ask for: claim, call, result.

`Effects` begins a call when its intent is claimed, and has `OwnClaims` keep the claim while it goes on. `EffectCaller`
reads the intent and calls the function, by the executor that calls all users' functions, or runs a daemon. It hands the
result on: the ledger stores it, and the relay publishes it. While a call lasts, its intent's row keeps the state of a
daemon, or what a function has returned until its patch is written. Of requests to the API, that patch and the call's
Events begin here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from levelog.calls.caller import CANCELLATION_TIME
from levelog.calls.executor import Attempt, Executor, Failure
from levelog.effects import EffectHandler, looked_up
from levelog.handlers.injection import Given
from levelog.handlers.injection import about as say_about
from levelog.handlers.runs import DaemonHandler
from levelog.indices import GiveIndex
from levelog.intents import IntentOptions
from levelog_actuator.awaited import AwaitedLevels
from levelog_actuator.daemoncalls import STEADY, Daemons, Interrupted, Pauses, put_off
from levelog_actuator.ledger import Ledger
from levelog_actuator.limits import Limits
from levelog_actuator.outbox import ActuatorSettings, Outbox
from levelog_actuator.ownclaims import OwnClaims
from levelog_actuator.patching import CallPatcher, Kept
from levelog_actuator.requests import Order
from levelog_actuator.results import Ended, Later, Observers, Result, told_without_secrets
from levelog_base.errors import Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import CallNoted
from levelog_log.messages import MOST_PAYLOAD_BYTES
from levelog_log.notifications import Listener
from levelog_store.actuate.claims import ClaimedIntent

RECORD_BYTES: Final = 16 * 1024
"""More than a receipt takes beside the request and the result of a call."""


class _Call(Struct, frozen=True):
    """What an intent calls."""

    intent: ClaimedIntent
    effect: EffectHandler
    request: Any
    name: str

    def given_up(self, text: str) -> Ended:
        """The end of a call that cannot succeed; it is recorded if others wait for it."""
        asked, is_noted = msgspec.json.decode(self.intent.body), self.effect.notes_failure(self.request)
        told = CallNoted(name=self.name, request=asked, result=None) if is_noted else None
        return Ended(intent=self.intent, outcome="failed", error=text, call=told)


class EffectCaller(Struct, eq=False, dict=True):
    """Calls the effects that intents ask for, by name (`operator/effect`), and returns the result of each call."""

    effects: Mapping[str, EffectHandler]
    settings: ActuatorSettings
    redactor: Redactor = field(default_factory=Redactor)
    """Redacts what is recorded; it takes the secret values that it knows out of errors."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    index: GiveIndex | None = None
    """Gives the live indices that calls look up; None: there are none for them."""
    daemons: Daemons | None = None
    """Runs daemons; None: they are called like other effects."""
    patcher: CallPatcher | None = None
    """Writes the patches of calls; None: calls write nothing."""
    most_bytes: Callable[[], int] = lambda: MOST_PAYLOAD_BYTES
    """Most bytes of a record that the log takes."""
    on_late_return: Callable[[Hashable], None] = lambda _: None
    """Hears of the key of a call whose function has returned after its time."""

    @cached_property
    def executor(self) -> Executor:
        """Makes the calls, by the keys of their intents."""
        return Executor(
            subject="this intent",
            clock=self.clock,
            schedule=lambda number, longest: self.settings.delay(number, most=longest),
            at_once=self.settings.attempts,
            clean=self.redactor.redact_text,
            on_late_return=self.on_late_return,
        )

    def is_daemon(self, intent: ClaimedIntent) -> bool:
        """Tell whether the call is a run of a daemon, which takes no room from other calls."""
        effect = self.effects.get(intent.effect)
        return self.daemons is not None and effect is not None and effect.daemon is not None

    async def carry_out(self, intent: ClaimedIntent) -> Result:
        """Call the effect of an intent. Raises msgspec.MsgspecError for a row that cannot be read."""
        operator, _, name = intent.effect.partition("/")
        options = msgspec.json.decode(intent.options, type=IntentOptions)
        effect = self.effects.get(intent.effect)
        if effect is None:  # newer or older code may have it, and run beside this one
            text = f"call of {name}: this code has no effect of that name in the operator {operator}: was it renamed?"
            return self._later(intent, text, is_doubtful=intent.is_doubtful)
        try:
            request = msgspec.json.decode(intent.body, type=effect.request)
        except msgspec.MsgspecError as error:
            text = f"call of {name}: its request was made by other code and cannot be read: {error}"
            text = self.redactor.redact_text(text)
            return self._later(intent, text, is_doubtful=intent.is_doubtful)
        if too_large := self._too_large(intent.body):
            text = f"{effect.title}: is not called, since what it is asked would not fit into the log: {too_large}"
            return Ended(intent=intent, outcome="failed", error=text)
        call = _Call(intent, effect, request, options.name)
        if self.patcher is None or effect.patches is None:
            return await self._call(call)
        kept = Kept.read(intent)
        result = await self._call(call) if kept is None else self._done(call, kept.returned)
        if not isinstance(result, Ended) or result.outcome != "written" or result.call is None:
            return result
        patch = effect.patches(request, result.call.result)
        return result if patch is None else await self.patcher.finish(result, patch, kept)

    async def _call(self, call: _Call) -> Result:
        intent, effect = call.intent, call.effect
        attempt = self._attempt(call)
        available = attempt.given(intent.key)
        say_about(object=intent.parent, view=intent.view, intent=intent.key)
        if effect.daemon is not None and self.daemons is not None:
            return await self._run(call, self.daemons, effect.daemon, available)
        arguments = {effect.request_parameter: call.request, **effect.given.arguments(available)}
        try:
            looked_up.set(await self._snapshots(call))
        except Unavailable as error:
            return Later.unsent(intent, f"its indices cannot be read: {error}", self.settings.outage)

        async def make() -> Ended:
            result = await self.executor.run(attempt, lambda: effect.function(**arguments))
            if effect.yielding is not None:
                effect.yielding.refuse_secrets(result, self.redactor)
            return self._done(call, effect.kept(result))

        result = await self.executor.make(attempt, make)
        return self._failed(call, result) if isinstance(result, Failure) else result

    async def _snapshots(self, call: _Call) -> Mapping[str, Any]:
        if self.index is None:
            return {}
        operator = call.intent.view.partition("/")[0]
        found = {name: self.index(f"{operator}/{name}", kind) for name, kind in call.effect.snapshots.items()}
        return {name: await index.everything() for name, index in found.items()}

    async def _run(self, call: _Call, daemons: Daemons, handler: DaemonHandler, available: dict[Given, Any]) -> Result:
        """Run a daemon; a steady run resets the count of failures."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            ended = await daemons.run(call.intent, handler, call.request, available, self.executor.functions)
            return self._done(call, call.effect.kept(ended))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this intent is concerned
            if clock() - began > STEADY.total_seconds():
                call = replace(call, intent=replace(call.intent, attempts=1))
            if isinstance(error, Interrupted):
                return put_off(call.intent, str(error))
            return self._failed(call, self.executor.failure(self._attempt(call), error))

    def _attempt(self, call: _Call) -> Attempt:
        intent = call.intent
        longest = self._longest(intent)
        return Attempt(intent.key, call.effect, intent.parent, intent.attempts, intent.decided_at, longest)

    def _longest(self, intent: ClaimedIntent) -> timedelta:
        return self.settings.most_delay if self.is_daemon(intent) else self.settings.longest

    def _done(self, call: _Call, kept: Any) -> Ended:
        """What is recorded of a call that took place; a failure if that is too large."""
        told = CallNoted(name=call.name, request=msgspec.json.decode(call.intent.body), result=kept)
        if too_large := self._too_large(msgspec.json.encode(told)):
            text = "it took place, but what it was asked and returned does not fit into the log"
            return call.given_up(f"{call.effect.title}: {text}: {too_large}")
        return Ended(intent=call.intent, outcome="written", call=told)

    def _too_large(self, content: bytes) -> str:
        """Why a record with this content does not fit into the log; empty: it fits."""
        size, limit = len(content) + RECORD_BYTES, self.most_bytes()
        return f"a record of {size} bytes; NATS takes {limit} (its setting max_payload)" if size > limit else ""

    def _failed(self, call: _Call, failure: Failure) -> Result:
        error = self.redactor.redact_text(failure.error)
        if failure.is_final:
            return call.given_up(error)
        intent = call.intent
        is_doubtful = not call.effect.is_superseded and (intent.is_doubtful or not failure.did_nothing)
        later = self._later(intent, error, is_doubtful=is_doubtful)
        return replace(later, delay=failure.delay, is_counted=failure.is_counted)

    def _later(self, intent: ClaimedIntent, text: str, *, is_doubtful: bool) -> Later:
        """Put a call off, always with the same key; once the counted attempts are used up, its view may withdraw it."""
        # the row of a daemon has its state, and is never withdrawn: the next run ends by itself if it is not wanted
        is_doubtful = self.is_daemon(intent) or (is_doubtful and intent.attempts < self.settings.attempts)
        delay = self.settings.delay(intent.attempts, most=self._longest(intent))
        return Later(intent=intent, delay=delay, error=text, is_doubtful=is_doubtful)


def caller_for(
    outbox: Outbox,
    effects: Mapping[str, EffectHandler],
    redactor: Redactor,
    clock: Callable[[], datetime],
    index: GiveIndex | None,
    *,
    send: Callable[[Order], Awaitable[Result]],
    listener: Listener,
    pauses: Pauses | None = None,
    **options: Any,
) -> EffectCaller:
    """The calls of one actuator, live and in simulations: with patches and, if there are indices, daemons.

    `send` sends a write that is part of a call; `listener` hears of levels that daemons wait for; `options` are those
    of `EffectCaller`.
    """
    patcher = CallPatcher(outbox, send, redactor, clock)
    daemons = None
    if index is not None:
        daemons = Daemons(outbox, index, AwaitedLevels(outbox, listener), pauses or Pauses())
    return EffectCaller(effects, outbox.settings, redactor, clock, index, daemons, patcher, **options)


class _Begun(Struct, frozen=True):
    effect: str
    task: asyncio.Task[None]


class Effects(Struct, eq=False):
    """The calls of one actuator: begun when they are claimed, under claims that are kept while they run."""

    own: OwnClaims
    caller: EffectCaller
    limits: Limits
    observers: Observers
    ledger: Ledger
    """Gets each result, and drops the unstored ones of a run that is claimed again."""
    on_room: Callable[[], None] = lambda: None
    """Called when an effect with a limit may have room for another call."""
    begun: dict[str, _Begun] = {}
    claimed_again: dict[str, ClaimedIntent] = {}
    """Intents by key that were claimed again while their earlier call goes on."""
    limited: dict[str, int] = {}
    """How many calls of each effect with a limit, `operator/effect`, may run."""

    def __post_init__(self) -> None:
        limits = {name: effect.limits.max_concurrency for name, effect in self.caller.effects.items()}
        self.limited = {name: limit for name, limit in limits.items() if limit}

    @property
    def rooms(self) -> Mapping[str, int]:
        """How many calls more may begin of each effect that has a limit; those that are full are left out."""
        most, found = self.caller.settings.claimed, dict[str, int]()
        for name, limit in self.limited.items():
            taken: set[Hashable] = {key for key, each in self.begun.items() if each.effect == name}
            taken |= self.caller.executor.outlasting(self.caller.effects[name])
            if (room := min(limit, most) - len(taken)) > 0:
                found[name] = room
        return found

    def begin(self, intent: ClaimedIntent, since: float) -> None:
        """Call the effect of an intent that was claimed at `since`, as `OwnClaims.begin` has it."""
        daemons = self.caller.daemons if self.caller.is_daemon(intent) else None
        lose: Callable[[], None] = partial(daemons.lose, [intent.key]) if daemons else lambda: None
        # with any `lose`, `OwnClaims` keeps the claim for as long as the call goes on
        self.own.begin(intent, since, lose)
        if daemons:
            # the claim before was lost, and others may have kept more than what ran or ended under it knows
            self.ledger.forget(intent.key)
        running = self.begun.get(intent.key)
        if running is not None and not running.task.done():
            self.claimed_again[intent.key] = intent
            lose()  # a daemon gives the new claim back when it has ended
            return
        is_counted = not daemons and intent.effect not in self.limited
        if is_counted:
            self.limits.begin(intent)
        task = self.caller.executor.tasks.begin(self._carry_out(intent), f"effect {intent.target}")
        self.begun[intent.key] = _Begun(intent.effect, task)
        task.add_done_callback(partial(self._end, intent, is_counted=is_counted))

    async def stop(self) -> None:
        """Wait as long as a request may take, then cancel; a cancelled call is made again, with the same key."""
        most = self.caller.settings.request
        if daemons := self.caller.daemons:
            daemons.end()
            most = max(most, daemons.grace + 2 * CANCELLATION_TIME)
        await self.caller.executor.close(most)

    def _end(self, intent: ClaimedIntent, ended: asyncio.Task[None], *, is_counted: bool) -> None:
        if self.begun[intent.key].task is ended:
            del self.begun[intent.key]
        if is_counted:
            self.limits.end(intent)
        if intent.effect in self.limited:
            self.on_room()

    async def _carry_out(self, intent: ClaimedIntent) -> None:
        with self.observers.attempting(intent) as told:
            try:
                why = await self.own.why_not(intent)
                result = Later.unsent(intent, why) if why else await self.caller.carry_out(intent)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one call must not stop the others
                text = told_without_secrets(intent, error, self.caller.redactor)
                result = Ended(intent=intent, outcome="failed", error=text)
            if (again := self.claimed_again.pop(intent.key, None)) is not None:
                # what another call did counts under the new claim, as it was lost while the database was away
                is_run = self.caller.is_daemon(intent)
                result = put_off(again, "its claim was lost") if is_run else replace(result, intent=again)
            told(result)
        self.own.end(result.intent)
        self.ledger.record(result)
