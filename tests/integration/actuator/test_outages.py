"""A server is away, and comes back: how soon an actuator goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio

from levelog_actuator.ownclaims import OwnClaims
from levelog_base.errors import Unavailable
from levelog_log.publisher import ACK_TIMEOUT
from levelog_sandbox import Sandbox
from levelog_store.actuate.claims import ClaimedIntent
from rigs.acting import ACTUATOR, BRIEF, QUICK, Acting, writes
from rigs.api import Api
from rigs.apirequests import asks
from rigs.faults import Hold
from rigs.nats import NatsServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

SLOW: Final = msgspec.structs.replace(QUICK, first_delay=timedelta(seconds=60), most_delay=timedelta(seconds=60))
"""Who backs off as from a write that is refused, waits for half a minute at least."""


async def until_noticed(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await until(lambda: text in caplog.text, f"a line with {text!r}")


@pytest_asyncio.fixture
async def postgres_door(postgres_url: str) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(urlsplit(postgres_url).port or 5432) as door:
        yield door


@pytest_asyncio.fixture
async def far(
    sandbox: Sandbox, nats_server: NatsServer, postgres_url: str, postgres_door: TcpProxy, tmp_path: Path
) -> AsyncIterator[Acting]:
    """On PostgreSQL behind a proxy."""
    url = postgres_door.url(postgres_url)
    async with Acting(Api(sandbox.url), nats_server.url, url, tmp_path) as started:
        yield started


async def test_the_database_is_back_and_what_waits_is_carried_out_within_seconds(
    far: Acting, postgres_door: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "levelog_actuator")
    seen = await far.make("configmaps", "a")
    async with far.running(SLOW):
        await far.does("patch", seen, body={"data": {"k": "1"}})
        postgres_door.refuse()
        postgres_door.cut()
        await until_noticed(caplog, "no intents are claimed")
        await postgres_door.accept()
        async with asyncio.timeout(40):
            row = far.intent("patch", seen, body={"data": {"k": "2"}})  # of a test that has dead connections, too
            await far.receipts_of(await until(lambda: far.decide(row), "a decision", despite=Unavailable))


async def test_an_intent_whose_claim_cannot_be_looked_up_uses_up_no_attempt_and_is_not_in_doubt(
    on_sandbox: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_mine, away = OwnClaims.is_mine, [Unavailable("the database is away")]

    async def once(own: OwnClaims, intent: ClaimedIntent) -> bool:
        if away:
            raise away.pop()
        return await is_mine(own, intent)

    monkeypatch.setattr(OwnClaims, "is_mine", once)
    seen = await on_sandbox.make("configmaps", "a")
    async with on_sandbox.running():
        receipt = await on_sandbox.does("patch", seen, body={"data": {"k": "1"}})
    assert (receipt.outcome, receipt.attempts) == ("written", 1)
    asked = asks(name="a", user_agent=ACTUATOR)
    assert [each.request.method for each in on_sandbox.proxy.log if asked(each.request)] == ["PATCH"], "not in doubt"


async def test_the_api_is_back_and_what_waits_is_carried_out_within_seconds(
    on_sandbox: Acting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "levelog_actuator")
    seen = await on_sandbox.make("configmaps", "a")
    async with on_sandbox.running(SLOW):
        await on_sandbox.does("patch", seen, body={"data": {"k": "1"}})
        on_sandbox.door.refuse()
        on_sandbox.door.cut()
        keys = await on_sandbox.decide(on_sandbox.intent("patch", seen, body={"data": {"k": "2"}}))
        await until_noticed(caplog, "nothing is sent for")
        await on_sandbox.door.accept()
        async with asyncio.timeout(40):
            await on_sandbox.receipts_of(keys)


async def test_a_receipt_that_the_log_has_not_taken_after_a_third_of_the_claim_is_stored(
    sandbox: Sandbox, nats_server: NatsServer, tmp_path: Path
) -> None:
    """NATS says nothing, neither yes nor no: long before anybody gives up on it, the claim would be over."""
    url = f"sqlite:///{tmp_path}/levelog.db"
    async with (
        TcpProxy(urlsplit(nats_server.url).port or 4222) as door,
        Acting(Api(sandbox.url), door.url(nats_server.url), url, tmp_path) as acting,
    ):
        seen = await acting.make("configmaps", "a")
        held = acting.proxy.add(Hold(stage="answer"), writes)
        async with acting.running(BRIEF):
            (key,) = await acting.decide(acting.intent("patch", seen, body={"data": {"k": "1"}}))
            await held.until_applied()
            door.pause()
            held.release()

            async def is_stored() -> bool:
                return bool((await acting.rows())[key]["state"] == "written")

            await until(is_stored, "a receipt in SQL", seconds=ACK_TIMEOUT.total_seconds() / 2)
            assert not (await acting.rows())[key]["is_relayed"]
            door.resume()
            (receipt,) = await acting.receipts_of([key])
    assert (receipt.outcome, receipt.attempts) == ("written", 1)
    assert len(acting.sent()) == 1
