"""Actuators that are killed, stopped and started: what is written once stays written once."""

import asyncio
import os
import signal
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from levelog_actuator import Actuator, ActuatorSettings
from levelog_actuator.outbox import Outbox
from levelog_actuator.ownclaims import OwnClaims
from levelog_base.errors import IdentityMismatch
from levelog_base.wire.objects import Cluster, ObjectKey, Uid
from levelog_base.wire.records import ReceiptNoted
from levelog_log.publisher import BatchPublisher
from levelog_store.actuate.heartbeats import beat
from levelog_store.tables import intents
from rigs.acting import ACTUATOR, PATIENT, WEBS, Acting, writes
from rigs.actuatorprocess import ActuatorProcess
from rigs.apirequests import asks
from rigs.faults import Hold, Strike
from rigs.intents import NOON, claimed_intent, intent
from rigs.nats import NatsServer
from rigs.waiting import until


async def wanted_of(acting: Acting, kind: str) -> Any:
    match kind:
        case "apply":
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
            return acting.intent("apply", body=body)
        case "json":
            seen = await acting.make(WEBS, "a", spec={"list": []})
            operations = [{"op": "add", "path": "/spec/list/-", "value": "1"}]
            return acting.intent("patch", seen, body=operations, options={"patch_type": "json"})
        case _:
            return acting.intent("patch_status", await acting.make(WEBS, "a", spec={}), body={"status": {"k": "1"}})


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("request", "apply"),
        ("answer", "json"),  # not the same when done twice
    ],
)
async def test_invariant_7_an_actuator_killed_around_a_write_is_followed_by_one_that_looks_first(
    shared: Acting, actuator: ActuatorProcess, stage: Any, kind: str
) -> None:
    wanted = await wanted_of(shared, kind)
    await actuator.start()
    strike = shared.proxy.add(Strike(call=actuator.kill, stage=stage), writes)
    (key,) = await shared.decide(wanted)
    await strike.until_applied()
    row = (await shared.rows())[key]
    assert (row["state"], row["receipt"]) == ("claimed", None)
    await actuator.start()
    (receipt,) = await shared.receipts_of([key])
    assert receipt.outcome in {"written", "gone", "conflict"}
    assert len(shared.effective()) == 1
    looks = [each for each in shared.proxy.log if asks("get", name="a", user_agent=ACTUATOR)(each.request)]
    assert len(looks) == 1


async def test_a_receipt_that_was_stored_before_a_kill_reaches_the_log_after_it(
    shared: Acting, actuator: ActuatorProcess, nats_server: NatsServer
) -> None:
    wanted = await wanted_of(shared, "status")
    await actuator.start()
    nats_server.kill()
    (key,) = await shared.decide(wanted, is_notified=False)
    await until(shared.rows, "a receipt in SQL", accept=lambda found: found[key]["state"] == "written")
    assert not (await shared.rows())[key]["is_relayed"]
    actuator.kill()
    await nats_server.start()
    await shared.connection.wait_connected()
    await actuator.start()
    (receipt,) = await shared.receipts_of([key])
    assert receipt.outcome == "written"
    assert len(shared.sent()) == 1


async def test_a_receipt_that_its_own_actuator_never_relays_is_relayed_by_another(on_sandbox: Acting) -> None:
    parent = ObjectKey.parse(f"{WEBS}/default/shop")
    left = on_sandbox.intent("patch", target="configmaps/default/a")
    receipt = ReceiptNoted(
        application="webs",
        key=left["key"],
        view="webs/pods",
        parent=parent,
        parent_uid=Uid("u"),
        round=1,
        verb="patch",
        target=ObjectKey.parse("configmaps/default/a"),
        outcome="written",
        time=NOON,
    )
    async with on_sandbox.running():
        await on_sandbox.does("delete", await on_sandbox.make("configmaps", "a"))
        await on_sandbox.decide(left | {"state": "written", "receipt": msgspec.json.encode(receipt)}, is_notified=False)
        assert await on_sandbox.receipts_of([left["key"]]) == [receipt]
        await on_sandbox.relayed(left["key"])


async def test_a_stopped_actuator_ends_its_requests_and_gives_the_rest_back(
    shared: Acting, actuator: ActuatorProcess
) -> None:
    seen = [await shared.make("configmaps", f"a-{number}") for number in range(40)]  # more than requests at once
    held = shared.proxy.add(Hold(stage="answer"), writes, times=None)
    await actuator.start("--patient")
    keys = await shared.decide(*(shared.intent("patch", each, body={"data": {"k": "1"}}) for each in seen))
    await held.until_applied(PATIENT.requests)
    stopping = asyncio.create_task(asyncio.to_thread(actuator.process.stop, signal.SIGTERM))

    async def are_given_back() -> bool:
        rows = await shared.rows()
        return Counter(rows[key]["state"] for key in keys)["pending"] == 40 - PATIENT.requests

    await until(are_given_back, "what was not sent yet, given back")
    held.release()
    await stopping
    rows = await shared.rows()
    assert Counter(rows[key]["state"] for key in keys) == {"written": PATIENT.requests, "pending": 36}
    assert len(shared.sent()) == PATIENT.requests
    shared.proxy.remove(held)
    async with shared.running():
        await shared.receipts_of(keys)
    assert len(shared.sent()) == 40


async def test_an_actuator_that_stood_still_past_its_claim_writes_nothing_more(
    shared: Acting, actuator: ActuatorProcess
) -> None:
    """Stopped with claims in its queue, while another one carries them out."""
    seen = [await shared.make("configmaps", f"a-{number}") for number in range(60)]
    await actuator.start("--patient")
    stopped = Strike(call=lambda: os.kill(actuator.process.pid, signal.SIGSTOP), stage="answer")
    strike = shared.proxy.add(stopped, writes, times=None)
    keys = await shared.decide(*(shared.intent("patch", each, body={"data": {"k": "1"}}) for each in seen))
    await strike.until_applied()
    shared.proxy.remove(strike)
    async with shared.running(PATIENT):
        await shared.receipts_of(keys, seconds=120)
    sent = len(shared.sent())
    os.kill(actuator.process.pid, signal.SIGCONT)
    seen_later = await shared.make("configmaps", "later")
    (key,) = await shared.decide(shared.intent("patch", seen_later, body={"data": {"k": "1"}}))
    await shared.receipts_of([key])
    # what had its turn when it was stopped may still be sent, which nobody can fence; of the queue behind it nothing
    assert len(shared.sent()) - sent - 1 <= PATIENT.requests < len(seen) - PATIENT.requests
    assert Counter(request.name for request in shared.effective()) == {
        each["metadata"]["name"]: 1 for each in [*seen, seen_later]
    }


async def test_the_claims_of_a_killed_actuator_are_taken_over_as_soon_as_its_heartbeat_expires(
    shared: Acting, actuator: ActuatorProcess
) -> None:
    """Killed with requests on their way; its claims would last for another hour."""
    seen = [await shared.make("configmaps", f"a-{number}") for number in range(40)]
    await actuator.start("--patient")
    # the first that is answered in time: the strike is lost with a request that is not
    strike = shared.proxy.add(Strike(call=actuator.kill, stage="answer"), writes, times=None)
    keys = await shared.decide(*(shared.intent("patch", each, body={"data": {"k": "1"}}) for each in seen))
    await strike.until_applied()
    shared.proxy.remove(strike)
    async with shared.database.transaction() as connection:
        later = NOON + timedelta(days=36500)
        held = await connection.execute(
            update(intents).where(intents.c.state == "claimed").values(due_at=later, expires_at=later)
        )
        assert held.rowcount
    async with shared.running():
        receipts = await shared.receipts_of(keys)
    assert {each.outcome for each in receipts} <= {"written", "unchanged"}
    assert Counter(request.name for request in shared.effective()) == {each["metadata"]["name"]: 1 for each in seen}


FIRST = claimed_intent(intent("pods/default/a"))
AGAIN = msgspec.structs.replace(FIRST, attempts=2)


async def test_a_request_is_over_before_the_heartbeat_of_its_actuator_expires(shared: Acting) -> None:
    """A first attempt is taken over when the heartbeat expires, others when a long request is over as well."""
    at, settings = [0.0], ActuatorSettings()
    own = OwnClaims(Outbox(shared.database, shared.scope, "one", settings), lambda: None, lambda: at[0])
    own.begin(FIRST, 0.0)
    assert (own.outlasts(FIRST), own.outlasts(AGAIN)) == (False, False)
    assert (own.limit(FIRST), own.limit(AGAIN)) == (settings.brief, settings.request)
    found = []
    await own.beat()
    for at[0] in (0.0, 2.9, 3.1, 5.9, 6.1):
        found.append((own.outlasts(FIRST), own.outlasts(AGAIN)))
    assert found == [(True, True), (True, True), (False, True), (False, True), (False, False)]
    await own.beat()
    assert (own.alive_since, own.outlasts(FIRST)) == (6.1, True), "what it claimed before may be others' now"
    at[0] = 11.0
    await own.beat()
    assert own.alive_since == 6.1


async def test_a_heartbeat_counts_from_before_it_was_sent(shared: Acting) -> None:
    """It may be said at any time between the two; each look at the clock here is a second later than the one before."""
    seconds = iter(map(float, range(100)))
    outbox = Outbox(shared.database, shared.scope, "one", ActuatorSettings())
    own = OwnClaims(outbox, lambda: None, lambda: next(seconds))
    await own.beat()
    ends_at = ActuatorSettings().heartbeat_timeout.total_seconds()
    brief = ActuatorSettings().brief.total_seconds()
    asked_at = next(seconds)
    found = [own.is_fresh for _ in range(10)]
    assert found.count(True) == len([at for at in range(1, 11) if asked_at + at + brief <= ends_at])


async def test_who_was_without_the_database_itself_takes_nobody_for_gone(shared: Acting) -> None:
    at, ended = [0.0], list[float]()
    outbox = Outbox(shared.database, shared.scope, "one", ActuatorSettings())
    own = OwnClaims(outbox, lambda: ended.append(at[0]), lambda: at[0])
    later = NOON + timedelta(days=36500)
    left = shared.intent("patch", target=f"configmaps/{shared.namespace}/a") | {
        "state": "claimed",
        "owner": "two",
        "due_at": later,
        "expires_at": later,
        "attempts": 1,
    }
    await shared.decide(left, is_notified=False)
    async with shared.database.transaction() as connection:
        await beat(connection, shared.scope, "two", timedelta(seconds=-1))
    for at[0] in (0.0, 5.0, 20.0, 25.0, 26.0):  # away for a while before the 20
        await own.beat()
    assert ended == [26.0]


async def test_nothing_is_written_to_another_cluster_or_under_another_log(on_sandbox: Acting) -> None:
    seen = await on_sandbox.make("configmaps", "a")
    await on_sandbox.decide(on_sandbox.intent("patch", seen, body={"data": {"k": "1"}}))
    other_cluster = msgspec.structs.replace(on_sandbox.scope, cluster=Cluster("other"))
    other_log = msgspec.structs.replace(on_sandbox.scope, stream_created="another time")
    for changed, words in ((other_cluster, "the cluster at"), (other_log, "the stream levelog-")):
        publisher = BatchPublisher(on_sandbox.stream)
        stranger = Actuator(on_sandbox.database, changed, on_sandbox.client, publisher, on_sandbox.notifier)
        with pytest.raises(IdentityMismatch, match=words):
            await stranger.run()
    assert on_sandbox.sent() == []
    async with on_sandbox.running():
        await on_sandbox.receipts_of(list(await on_sandbox.rows()))


async def test_on_sqlite_the_claims_of_the_process_before_end_at_once(on_sandbox: Acting) -> None:
    """Nobody else can be alive: the file is locked by one process."""
    seen = await on_sandbox.make("configmaps", "a")
    left = on_sandbox.intent("patch", seen, body={"data": {"k": "1"}}) | {
        "state": "claimed",
        "owner": "dead",
        "due_at": NOON + timedelta(days=36500),
        "expires_at": NOON + timedelta(days=36500),
        "attempts": 1,
    }
    (key,) = await on_sandbox.decide(left)
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.receipts_of([key])
    assert (receipt.outcome, receipt.attempts) == ("written", 2)
