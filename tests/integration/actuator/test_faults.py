"""What goes wrong between the actuator and the API: one effective write for each intent, whatever happens."""

from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from levelog_base.wire.canonical import canonical
from rigs.acting import ACTUATOR, QUICK, WEBS, Acting, writes
from rigs.apirequests import ApiRequest, asks
from rigs.faults import FailBefore, Hold, Refuse
from rigs.waiting import until


async def apply_seen(acting: Acting) -> Any:
    path = f"{acting.path('configmaps', 'a')}?fieldManager=levelog-webs"
    old, new = (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
        for data in ({"k": "1", "old": "x"}, {"k": "2"})
    )
    _, seen = await acting.api.request("PATCH", path, old, content_type="application/apply-patch+yaml")
    return acting.intent("apply", seen, body=new)


async def patch(acting: Acting) -> Any:
    seen = await acting.make("configmaps", "a", data={"k": "1"})
    return acting.intent("patch", seen, body={"data": {"k": "2"}})


async def json_patch(acting: Acting) -> Any:
    """Not the same when done twice."""
    seen = await acting.make(WEBS, "a", spec={"list": ["1"]})
    operations = [{"op": "add", "path": "/spec/list/-", "value": "2"}]
    return acting.intent("patch", seen, body=operations, options={"patch_type": "json"})


async def patch_status(acting: Acting) -> Any:
    seen = await acting.make(WEBS, "a", spec={})
    return acting.intent("patch_status", seen, body={"status": {"ready": 1}})


def resource_of(wanted: Any) -> str:
    return str(wanted["target"]).partition("/")[0]


@pytest.mark.parametrize("make", [apply_seen, patch, patch_status])
async def test_invariant_7_what_was_written_late_and_changed_by_others_is_not_written_again(
    acting: Acting, make: Any
) -> None:
    """The lost request arrives, somebody changes the same field, and only then comes the one sent in its place."""
    wanted = await make(acting)
    if make is apply_seen:
        wanted["options"] = canonical({"force": True})
    resource = resource_of(wanted)
    lost = acting.proxy.add(FailBefore(), writes)
    again = acting.proxy.add(Hold(stage="request"), writes)
    theirs = {"status": {"ready": 9}} if make is patch_status else {"data": {"k": "9"}}
    async with acting.running():
        (key,) = await acting.decide(wanted)
        await again.until_applied()
        await arrive(acting, await lost.until_applied())
        await acting.change(resource, "a", theirs, subresource="status" if make is patch_status else "")
        again.release()
        (receipt,) = await acting.receipts_of([key])
    assert receipt.outcome == "conflict"
    now = await acting.get(resource, "a")
    assert theirs.items() <= now.items()
    assert len(acting.effective()) == 1


async def arrive(acting: Acting, request: ApiRequest) -> None:
    """Send a request of the actuator as it was."""
    headers = {"User-Agent": request.user_agent, "Content-Type": request.content_type}
    if acting.api.token:
        headers["Authorization"] = f"Bearer {acting.api.token}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            request.method, acting.proxy.url + request.path, params=request.query, data=request.body, headers=headers
        ) as answer,
    ):
        await answer.read()


@pytest.mark.parametrize("make", [apply_seen, patch, patch_status, json_patch])
async def test_a_lost_answer_under_somebody_elses_change_is_left_to_the_next_round(acting: Acting, make: Any) -> None:
    """It cannot be told whether the write was in it, so that it must not be made a second time."""
    wanted = await make(acting)
    resource = resource_of(wanted)
    rule = acting.proxy.add(FailBefore(), writes)
    look = acting.proxy.add(Hold(stage="request"), asks("get", name="a", user_agent=ACTUATOR))
    async with acting.running():
        (key,) = await acting.decide(wanted)
        await look.until_applied()
        await acting.change(resource, "a", {"metadata": {"labels": {"a": "b"}}})
        look.release()
        (receipt,) = await acting.receipts_of([key])
    assert rule.applied
    assert receipt.outcome == "conflict"
    assert len(acting.sent()) == 1
    assert acting.effective() == []


async def test_after_the_last_attempt_an_intent_fails_and_says_why(on_sandbox: Acting) -> None:
    wanted = await patch(on_sandbox)
    on_sandbox.proxy.add(Refuse(code=503, message="not now"), writes, times=None)
    settings = msgspec.structs.replace(QUICK, attempts=3)
    async with on_sandbox.running(settings):
        (receipt,) = await on_sandbox.carried_out(wanted)
    assert (receipt.outcome, receipt.attempts, receipt.answer) == ("failed", 3, 503)
    assert "given up after 3 attempts: patch configmaps/" in receipt.error
    assert receipt.error.endswith("503 ServiceUnavailable: not now")
    assert len(on_sandbox.sent()) == 3
    assert on_sandbox.postponed == 2


async def test_invariant_14_a_write_that_keeps_failing_holds_up_no_other_of_its_kind(on_sandbox: Acting) -> None:
    stuck, *others = [await on_sandbox.make("configmaps", name) for name in ("stuck", "a", "b", "c")]
    on_sandbox.proxy.add(Refuse(code=503), asks("patch", name="stuck"), times=None)
    body = {"data": {"k": "1"}}
    async with on_sandbox.running(msgspec.structs.replace(QUICK, requests=1)):
        (key,) = await on_sandbox.decide(on_sandbox.intent("patch", stuck, body=body))
        await until(lambda: on_sandbox.postponed > 0, "a vain try")
        receipts = await on_sandbox.carried_out(*(on_sandbox.intent("patch", each, body=body) for each in others))
        row = (await on_sandbox.rows())[key]
    assert [each.outcome for each in receipts] == ["written"] * 3
    assert (row["receipt"], "503" in row["error"]) == (None, True)


async def test_two_intents_for_one_object_are_sent_one_after_the_other(on_sandbox: Acting) -> None:
    seen = await on_sandbox.make("configmaps", "a")
    first, second = [on_sandbox.intent("patch", seen, body={"data": {"k": value}}) for value in "12"]
    held = on_sandbox.proxy.add(Hold(stage="answer"), writes)
    async with on_sandbox.running():
        keys = await on_sandbox.decide(first, second)
        await held.until_applied()
        await on_sandbox.does("patch", await on_sandbox.make("configmaps", "b"), body={})
        assert len(on_sandbox.sent(name="a")) == 1
        held.release()
        receipts = await on_sandbox.receipts_of(keys)
    assert [each.outcome for each in receipts] == ["written", "written"]
    assert (await on_sandbox.get("configmaps", "a"))["data"] == {"k": "2"}


async def test_while_the_server_is_away_nothing_is_sent_and_no_attempt_used_up(on_sandbox: Acting) -> None:
    seen = [await on_sandbox.make("configmaps", f"a-{number}") for number in range(20)]
    settings = msgspec.structs.replace(QUICK, attempts=2, most_delay=timedelta(milliseconds=50))
    async with on_sandbox.running(settings):
        await on_sandbox.carried_out(await patch(on_sandbox))
        on_sandbox.door.refuse()
        on_sandbox.door.cut()
        keys = await on_sandbox.decide(*(on_sandbox.intent("patch", each, body={"data": {"k": "1"}}) for each in seen))
        await until(lambda: on_sandbox.postponed > 25, "several vain tries")
        rows = await on_sandbox.rows()
        assert {rows[key]["attempts"] for key in keys} <= {0, 1}  # 1: it is being tried
        await on_sandbox.door.accept()
        receipts = await on_sandbox.receipts_of(keys)
    assert {(each.outcome, each.attempts) for each in receipts} == {("written", 1)}
    assert len(on_sandbox.effective()) == 21


async def test_a_group_that_has_too_much_to_do_rests_and_stops_no_other(on_sandbox: Acting) -> None:
    """What is decided anew meanwhile waits for the time that the server named, too."""
    web, config = await on_sandbox.make(WEBS, "a", spec={}), await on_sandbox.make("configmaps", "a")
    busy = on_sandbox.proxy.add(Refuse(code=429, retry_after=2), writes)
    async with on_sandbox.running():
        (first,) = await on_sandbox.decide(on_sandbox.intent("patch", web, body={"spec": {"k": "1"}}))
        await busy.until_applied()
        other = await on_sandbox.does("patch", config, body={"data": {"k": "1"}})
        assert (other.outcome, (await on_sandbox.rows())[first]["receipt"]) == ("written", None)
        later = on_sandbox.intent("patch", await on_sandbox.make(WEBS, "b", spec={}), body={"spec": {"k": "1"}})
        second = await on_sandbox.carried_out(later)
        receipts = [*await on_sandbox.receipts_of([first]), *second]
    assert [(each.outcome, each.attempts) for each in receipts] == [("written", 2), ("written", 1)]
    assert len(on_sandbox.sent(name="b")) == 1


async def test_a_group_that_hangs_takes_its_own_turns_and_no_others(on_sandbox: Acting) -> None:
    settings = msgspec.structs.replace(
        QUICK, requests=2, group_requests=1, claimed=6, request=timedelta(seconds=20), lease=timedelta(seconds=60)
    )
    held = on_sandbox.proxy.add(Hold(stage="request"), asks("patch", WEBS), times=None)
    webs = [await on_sandbox.make(WEBS, f"a-{number}", spec={}) for number in range(12)]
    configs = [await on_sandbox.make("configmaps", f"a-{number}") for number in range(3)]
    async with on_sandbox.running(settings):
        keys = await on_sandbox.decide(
            *(on_sandbox.intent("patch", each, body={"spec": {"k": "1"}}) for each in webs),
            *(on_sandbox.intent("patch", each, body={"data": {"k": "1"}}) for each in configs),
        )
        receipts = await on_sandbox.receipts_of(keys[-3:])
        assert len([each for each in on_sandbox.sent() if each.resource == WEBS]) == 1
        held.release()
        receipts += await on_sandbox.receipts_of(keys[:-3])
    assert {each.outcome for each in receipts} == {"written"}
    assert len(on_sandbox.effective()) == 15
