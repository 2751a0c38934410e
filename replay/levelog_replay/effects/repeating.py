"""Calls handlers, timers and effects again: without side effects, unless allowed."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import msgspec

from levelog.calls.audithook import Refusals, harmless
from levelog.calls.caller import FunctionCaller, awaited
from levelog.calls.executor import words_for
from levelog.effects import EffectHandler
from levelog.handlers.injection import Given, about
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical
from levelog_base.wire.objects import ObjectKey, effect_of
from levelog_processors.program import Program
from levelog_replay.calling import stoppable
from levelog_replay.effects.chosen import kind_of
from levelog_replay.effects.receipts import Came
from levelog_replay.stops.stopping import CallScene, Kind, Stops
from levelog_store.decide.decisions import Decision, IntentRow


def asked_of(past: Decision, row: IntentRow) -> str:
    """The effect, `operator/effect`, that a call of a decision is for."""
    return effect_of(past.view, ObjectKey.parse(row.target))


class Repeater:
    """Calls functions of one version of the code as the actuator calls them, one after the other."""

    def __init__(
        self,
        program: Program,
        *,
        threads: int,
        allows_network: bool,
        redactor: Redactor,
        stops: Stops | None,
        name: str = "",
    ) -> None:
        """`name`: of this version of the code, where there are several."""
        self._effects = program.effects
        self._around = nullcontext if allows_network else harmless
        self._redactor = redactor
        self._stops = stops
        self.name = name
        self._caller = FunctionCaller(threads=threads, subject="this call")
        self._turn = asyncio.Lock()

    def effect(self, name: str) -> EffectHandler | None:
        """The effect of a name, `operator/effect`."""
        return self._effects.get(name)

    async def close(self) -> None:
        """End what runs of users' functions."""
        await self._caller.close()

    async def call(self, wanted: CallScene) -> Came:
        """Make a call once; what it raises is part of what it comes to. Raises DebuggerLeft."""
        effect = self._effects[asked_of(wanted.past, wanted.row)]
        past, row = wanted.past, wanted.row
        refusals: Refusals | None = None
        try:
            request = msgspec.json.decode(row.body, type=effect.request)
            given = {Given.KEY: row.key, Given.RETRY: wanted.retry, Given.STARTED: past.decided_at}
            arguments = {effect.request_parameter: request, **effect.given.arguments(given)}
            about(object=past.parent, view=past.view, intent=row.key)
            with self._around() as refusals:
                result = await self._run(effect, wanted, partial(effect.function, **arguments))
            if effect.yielding is not None:
                effect.yielding.refuse_secrets(result, self._redactor)
            came = Came(result=canonical(effect.kept(result)))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything; that is what is compared
            came = Came(error=self._redactor.redact_text(words_for(effect.title, error)))
        if refusals is not None and refusals.kind:
            return Came(result=came.result, error=came.error, refused=refusals.kind, what=refusals.what)
        return came

    async def _run(self, effect: EffectHandler, wanted: CallScene, function: Callable[[], Any]) -> Any:
        key = wanted.row.key
        live = partial(self._caller.run, key, function, effect.limits.timeout, is_async=effect.is_async)

        async def here(stops: Stops) -> Any:
            async with self._turn:
                with stops.at_call(cast("Kind", kind_of(effect)), wanted, effect.origin):
                    return await awaited(function)

        return await stoppable(self._stops, live, here)
