"""Effects: called at least once with one key, within their time, and told of in receipts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from msgspec.structs import replace
from sqlalchemy import update

from levelog import GiveUp, Operator, Retry, Struct
from levelog_actuator import effects
from levelog_log.notifications import Topic
from levelog_sandbox import Sandbox
from levelog_store.tables import intents
from rigs.acting import QUICK, Acting
from rigs.actuatorprocess import ActuatorProcess
from rigs.api import Api
from rigs.intents import NOON, intent
from rigs.nats import NatsServer
from rigs.waiting import until

FEW = replace(QUICK, attempts=3)


class Page(Struct):
    team: str


class Ticket(Struct):
    number: int


@pytest_asyncio.fixture
async def acting(on_sandbox: Acting) -> AsyncIterator[Acting]:
    yield on_sandbox


def wanted(effect: str = "page", body: Any = None, **columns: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"verb": "call", "api_version": "effects/v1", "kind": effect, "is_watched": False} | columns
    return intent(f"{effect}.effects/default/shop", body={"team": "storage"} if body is None else body, **given)


async def test_what_an_effect_was_asked_and_returned_is_in_its_receipt(acting: Acting) -> None:
    op = Operator("webs")
    keys: list[str] = []

    @op.effect
    def page(request: Page, idempotency_key: str) -> Ticket:
        keys.append(idempotency_key)
        return Ticket(len(request.team))

    async with acting.running(effects=op):
        (receipt,) = await acting.carried_out(wanted(options={"name": "night"}))
    assert keys == [receipt.key]
    assert receipt.outcome == "written"
    assert receipt.call is not None
    assert (receipt.call.name, receipt.call.request, receipt.call.result) == (
        "night",
        {"team": "storage"},
        {"number": 7},
    )
    assert not acting.sent()


async def test_an_effect_that_did_nothing_is_called_again_with_the_same_key(acting: Acting) -> None:
    op = Operator("webs")
    keys: list[str] = []

    @op.effect
    async def page(request: Page, idempotency_key: str) -> None:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise Retry("the pager is busy", delay=timedelta(milliseconds=10))
        if len(keys) == 2:
            raise ConnectionResetError("by peer")

    async with acting.running(effects=op):
        (receipt,) = await acting.carried_out(wanted())
    assert (receipt.outcome, receipt.attempts, keys) == ("written", 3, [receipt.key] * 3)


async def test_only_a_call_that_certainly_did_nothing_can_be_withdrawn(acting: Acting) -> None:
    op = Operator("webs")

    @op.effect
    def busy(request: Page) -> None:
        raise Retry("busy", delay=timedelta(hours=1))

    @op.effect
    def breaks(request: Page) -> None:
        raise OSError("half of it is done")

    patient = replace(QUICK, first_delay=timedelta(hours=1), most_delay=timedelta(hours=1))
    async with acting.running(patient, effects=op):
        first, second = await acting.decide(wanted("busy"), wanted("breaks"))
        await until(
            acting.rows, "two calls that fail", accept=lambda rows: rows[first]["error"] and rows[second]["error"]
        )
        rows = await acting.rows()
    assert [(rows[key]["state"], rows[key]["error"]) for key in (first, second)] == [
        ("pending", "effect busy: busy"),
        ("claimed", "effect breaks: OSError: half of it is done"),
    ]


async def test_an_effect_that_gives_up_or_returns_something_else_has_failed(acting: Acting) -> None:
    op = Operator("webs")

    @op.effect
    def refused(request: Page) -> None:
        raise GiveUp("there is no such team")

    @op.effect
    def returns(request: Page) -> Ticket:
        return "T-1"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @op.effect(retries=1, backoff=timedelta(milliseconds=1))
    def busy(request: Page) -> None:
        raise ConnectionError("nobody answers")

    async with acting.running(FEW, effects=op):
        receipts = await acting.carried_out(wanted("refused"), wanted("returns"), wanted("busy"))
    assert [(each.outcome, each.attempts) for each in receipts] == [("failed", 1), ("failed", 1), ("failed", 2)]
    assert receipts[0].error == "effect refused: there is no such team"
    assert receipts[1].error.startswith("effect returns: it took place, but returned str, not Ticket: ")


async def test_an_async_effect_is_ended_at_its_time_limit(acting: Acting) -> None:
    op = Operator("webs")
    ended: list[str] = []

    @op.effect(timeout=timedelta(milliseconds=50))
    async def page(request: Page) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.team)

    async with acting.running(FEW, effects=op):
        (key,) = await acting.decide(wanted())
        # On a busy machine a call may be cancelled before it begins: wait for those that began.
        await until(lambda: len(ended) > FEW.attempts, "more calls than are counted")
        row = (await acting.rows())[key]
    assert row["error"] == "effect page: took longer than 0.05 s and was cancelled"


async def test_the_calls_of_an_effect_that_the_code_does_not_have_wait_for_newer_code(acting: Acting) -> None:
    def older() -> Operator:
        op = Operator("webs")

        @op.effect
        def page(request: Page) -> None:
            pass

        return op

    def newer() -> Operator:
        op = Operator("webs")

        @op.effect
        def page(request: dict[str, str]) -> str:
            return request["squad"]

        @op.effect
        def call_out(request: Page) -> str:
            return request.team

        return op

    async with acting.running(FEW, effects=older()):
        renamed, other = keys = await acting.decide(wanted("call_out"), wanted(body={"squad": "storage"}))

        async def were_tried_often() -> bool:
            rows = await acting.rows()
            return all(rows[key]["attempts"] > FEW.attempts for key in keys)

        await until(were_tried_often, "more calls than are counted")
        rows = await acting.rows()
    assert "call of call_out: this code has no effect of that name in the operator webs" in rows[renamed]["error"]
    assert "call of page: its request was made by other code and cannot be read" in rows[other]["error"]
    async with acting.running(FEW, effects=newer()):
        assert [each.outcome for each in await acting.receipts_of(keys)] == ["written", "written"]


async def test_a_call_that_takes_longer_than_a_claim_is_not_made_again_meanwhile(acting: Acting) -> None:
    op = Operator("webs")
    ends, calls = asyncio.Event(), 0

    @op.effect(timeout=timedelta(minutes=5))
    async def page(request: Page) -> None:
        nonlocal calls
        calls += 1
        await ends.wait()

    brief = replace(QUICK, lease=timedelta(seconds=6), request=timedelta(seconds=3))
    async with acting.running(brief, effects=op):
        (key,) = await acting.decide(wanted())
        kept: set[Any] = set()

        async def is_kept() -> bool:
            kept.add((await acting.rows())[key]["expires_at"])
            return max(filter(None, kept)) - min(filter(None, kept)) > brief.lease if any(kept) else False

        await until(is_kept, "a claim that outlasts its lease")
        ends.set()
        (receipt,) = await acting.receipts_of([key])
    assert (receipt.outcome, receipt.attempts, calls) == ("written", 1, 1)


async def test_a_call_that_is_claimed_again_while_it_lasts_is_stored_under_the_new_claim(acting: Acting) -> None:
    op = Operator("webs")
    ends, calls = asyncio.Event(), 0

    @op.effect(timeout=timedelta(minutes=5))
    async def page(request: Page) -> None:
        nonlocal calls
        calls += 1
        await ends.wait()

    async with acting.running(effects=op):
        (key,) = await acting.decide(wanted())

        async def claim_of() -> int:
            return int((await acting.rows())[key]["claim"])

        first = await until(claim_of, "a claim")
        async with acting.database.transaction() as connection:  # as after an outage
            await connection.execute(
                update(intents).where(intents.c.key == key).values(due_at=NOON, expires_at=NOON, owner="")
            )
        await acting.notifier.publish(Topic.INTENT)
        await until(claim_of, "another claim", accept=lambda found: found != first)
        ends.set()
        (receipt,) = await acting.receipts_of([key])
    assert (receipt.outcome, receipt.attempts, calls) == ("written", 2, 1)


async def test_invariant_7_an_actuator_killed_between_effect_and_receipt_calls_again_with_the_same_key(
    shared: Acting, actuator: ActuatorProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "kill").touch()
    (key,) = await shared.decide(wanted("note", body="backup"))
    await actuator.start(folder)
    await until(lambda: not actuator.process.is_running, "the end of the first actuator")
    await actuator.start(folder)
    (receipt,) = await shared.receipts_of([key])
    assert (folder / "calls").read_text().splitlines() == [f"{key} backup"] * 2
    assert (receipt.outcome, receipt.attempts) == ("written", 2)
    assert receipt.call is not None
    assert receipt.call.result == 2


SMALL: Final = "max_payload: 65536"


@asynccontextmanager
async def on_small_log(folder: Path) -> AsyncGenerator[tuple[NatsServer, Acting]]:
    """On a NATS that takes records of 64 KiB."""
    async with (
        NatsServer(settings=SMALL) as server,
        Sandbox() as sandbox,
        Acting(Api(sandbox.url), server.url, f"sqlite:///{folder}/levelog.db", folder) as acting,
    ):
        yield server, acting


async def test_invariant_14_a_call_that_does_not_fit_into_the_log_fails_alone(tmp_path: Path) -> None:
    op, called = Operator("webs"), list[int]()

    @op.effect
    def page(request: Page) -> str:
        called.append(len(request.team))
        return "x" * 40_000

    @op.effect
    async def well(request: Page) -> None:
        """Does what it should."""

    async with on_small_log(tmp_path) as (_, acting), acting.running(effects=op):
        asked, returned, other = await acting.carried_out(
            wanted(body={"team": "x" * 60_000}, decided_at=NOON),
            wanted(body={"team": "x" * 20_000}, decided_at=NOON + timedelta(seconds=1)),
            wanted("well"),
        )
    assert called == [20_000]
    assert (asked.outcome, returned.outcome, other.outcome) == ("failed", "failed", "written")
    limit = "a record of {} bytes; NATS takes 65536 (its setting max_payload)"
    assert asked.error == (
        "effect page: is not called, since what it is asked would not fit into the log: "
        + limit.format(60_011 + 16_384)
    )
    assert returned.error.startswith("effect page: it took place, but what it was asked and returned does not fit into")


async def test_invariant_14_what_came_of_a_call_waits_until_the_log_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when NATS is set to take less than it took when the call was made."""
    monkeypatch.setattr(effects, "RECORD_BYTES", -100_000)
    op = Operator("webs")

    @op.effect
    async def page(request: Page) -> str:
        return request.team

    async with on_small_log(tmp_path) as (server, acting):
        (large,) = await acting.decide(wanted(body={"team": "x" * 50_000}))
        for _ in range(2):
            async with acting.running(effects=op):
                await until(lambda: "does not take what came of it" in caplog.text, "an error that says so")
                (receipt,) = await acting.carried_out(wanted())
                assert receipt.outcome == "written"
            assert caplog.text.count("call effect page for default/shop waits, as the log does not take") == 1
            caplog.clear()
        server.kill()
        server.configure("")
        await server.start()
        await acting.connection.wait_connected()
        async with acting.running(effects=op):
            (receipt,) = await acting.receipts_of([large])
    assert receipt.call is not None
    assert receipt.call.result == "x" * 50_000
