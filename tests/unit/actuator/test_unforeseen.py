"""An error that nobody has foreseen ends one intent alone, and says no secret."""

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from levelog.secrets.redaction import Redactor
from levelog.wire.objects import GroupResource
from levelog_actuator.effects import EffectCaller, Effects
from levelog_actuator.limits import ActuatorSettings
from levelog_actuator.results import Ended, Result
from rigs.orders import order


async def test_a_call_whose_row_cannot_be_read_fails_without_the_secret_that_is_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    redactor, results = Redactor(b"0123456789abcdef"), list[Result]()
    secret = {"metadata": {"name": "s"}, "stringData": {"password": "correct horse"}}
    redactor.redact_manifest(GroupResource(group="", resource="secrets"), secret)
    effects = Effects(
        cast("Any", None),
        cast("Any", None),
        "one",
        EffectCaller({}, ActuatorSettings(), redactor),
        ActuatorSettings(),
        on_result=results.append,
        on_end=lambda _: None,
        forget=lambda _: None,
    )
    call = order(api_version="effects/v1").intent
    effects.begin(replace(call, verb="call", options=b'{"propagation": "correct horse"}'))
    await asyncio.wait(effects.begun.values())
    (result,) = results
    assert isinstance(result, Ended)
    assert result.outcome == "failed"
    assert "Invalid enum value '[redacted]'" in result.error
    assert "an intent cannot be carried out" in caplog.text
    assert "correct horse" not in caplog.text
