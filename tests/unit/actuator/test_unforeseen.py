"""What goes wrong beside a call: it concerns one intent alone, is no failure of the function, and says no secret."""

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from levelog.indices import LiveIndex
from levelog.operator import Operator
from levelog_actuator.daemoncalls import Daemons
from levelog_actuator.effects import EffectCaller, Effects
from levelog_actuator.ledger import Ledger
from levelog_actuator.limits import Limits
from levelog_actuator.outbox import ActuatorSettings, Outbox
from levelog_actuator.ownclaims import OwnClaims
from levelog_actuator.results import Ended, Later, Observers
from levelog_base.errors import Unavailable
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application, GroupResource
from rigs.intents import NOON
from rigs.kinds import Web
from rigs.orders import order


async def nobody() -> None:
    """Who would withdraw a call."""


def calling(caller: EffectCaller) -> Effects:
    """The calls of an actuator on SQLite, whose clock stands at 100 s, and whose results wait in its ledger."""
    outbox = Outbox(cast("Any", SimpleNamespace(is_shared=False)), cast("Any", None), "one", caller.settings)
    own, limits = OwnClaims(outbox, lambda: None, lambda: 100.0), Limits(caller.settings)
    ledger = Ledger(outbox, under_way=(), on_stored=lambda _: None, on_hastened=nobody)
    return Effects(own, caller, limits, Observers(), ledger)


async def test_a_call_whose_row_cannot_be_read_fails_without_the_secret_that_is_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    redactor = Redactor(b"0123456789abcdef")
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "correct horse"}}
    redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    effects = calling(EffectCaller({}, ActuatorSettings(), redactor))
    call = order(api_version="effects/v1").intent
    effects.begin(replace(call, verb="call", options=b'{"propagation": "correct horse"}'), 100.0)
    await asyncio.wait([each.task for each in effects.begun.values()])
    (result,) = effects.ledger.results
    assert isinstance(result, Ended)
    assert result.outcome == "failed"
    assert "Invalid enum value '[redacted]'" in result.error
    assert "an intent cannot be carried out" in caplog.text
    assert "correct horse" not in caplog.text


async def test_a_call_is_not_made_under_a_claim_that_is_about_to_end() -> None:
    op, called = Operator("webs"), list[str]()

    @op.effect
    async def page(request: str) -> None:
        called.append(request)

    effects = calling(EffectCaller({"webs/page": op.effects["page"]}, ActuatorSettings()))
    call = replace(order(api_version="effects/v1").intent, verb="call", view="webs/told", body=b'"storage"')
    for number, since in enumerate((100.0, 79.9)):  # of the 30 s of a claim, 10 are left for a request
        effects.begin(replace(call, key=str(number), target="page.effects/default/a"), since)
        effects.own.own[str(number)].known_at = 100.0
    await asyncio.wait([each.task for each in effects.begun.values()])
    assert (called, sorted(type(each).__name__ for each in effects.ledger.results)) == (["storage"], ["Ended", "Later"])


async def test_a_call_whose_indices_cannot_be_read_is_not_made_and_uses_up_no_attempt() -> None:
    op, called = Operator("webs"), list[str]()

    @op.effect(retries=0)
    async def page(request: str) -> None:
        called.append(request)

    def away(name: str, kind: Any) -> LiveIndex[Any, Any]:
        raise Unavailable(f"{name} of {kind} cannot be read")

    op.effects["page"].snapshots = {"pods": str}
    caller = EffectCaller({"webs/page": op.effects["page"]}, ActuatorSettings(), index=away)
    intent = order(api_version="effects/v1").intent
    call = replace(intent, verb="call", view="webs/told", target="page.effects/default/a", body=b'"storage"')
    result = await caller.carry_out(call)
    assert isinstance(result, Later)
    assert (result.is_counted, result.is_doubtful, called) == (False, False, [])


async def test_a_daemon_whose_last_state_cannot_be_read_runs_later_and_has_not_failed() -> None:
    op = Operator("webs")

    @op.daemon
    async def watch(web: Web) -> None:
        raise AssertionError

    class Away:
        async def get(self, key: Any) -> Collection[Any]:
            raise Unavailable("the database is away")

    daemons = Daemons(*cast("Any", (None, lambda *_: Away(), None)))
    caller = EffectCaller({"webs/watch_runs": op.effects["watch_runs"]}, ActuatorSettings(), daemons=daemons)
    intent = order(api_version="effects/v1").intent
    run = replace(intent, verb="call", view="webs/watch", target="watch_runs.effects/default/a", body=b'{"number": 1}')
    result = await caller.carry_out(run)
    assert isinstance(result, Later)
    assert not result.is_counted
    assert "the database is away" in result.error
    assert not daemons.running


def test_a_receipt_has_no_uid_that_postgresql_does_not_take() -> None:
    """An aggregated API may give its objects any uid; a receipt that is refused would end the actuator."""
    ended = Ended(intent=order().intent, outcome="written", uid="a\0b", version=7)
    assert "\0" not in ended.receipt(Application("webs"), NOON, "one").target_uid
