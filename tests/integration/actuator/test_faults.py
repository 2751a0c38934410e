"""What goes wrong between the actuator and the API: one effective write for each intent, whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import aiohttp
import msgspec
import pytest

from levelog.wire.canonical import canonical
from rigs.acting import ACTUATOR, QUICK, WEBS, Acting, writes
from rigs.apirequests import ApiRequest, asks
from rigs.faults import Action, FailAfter, FailBefore, ForwardTwice, Hold, Refuse
from rigs.waiting import until


async def apply_new(acting: Acting, name: str = "a") -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "2"}}
    return acting.intent("apply", target=f"configmaps/{acting.namespace}/{name}", body=body)


async def apply_seen(acting: Acting, name: str = "a") -> Any:
    wanted = await apply_new(acting, name)
    path = f"{acting.path('configmaps', name)}?fieldManager=levelog-webs"
    old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "1", "old": "x"}}
    _, seen = await acting.api.request("PATCH", path, old, content_type="application/apply-patch+yaml")
    return acting.intent("apply", seen, body=msgspec.json.decode(wanted["body"]))


async def create(acting: Acting, name: str = "a") -> Any:
    return {**await apply_new(acting, name), "verb": "create"}


async def patch(acting: Acting, name: str = "a") -> Any:
    seen = await acting.make("configmaps", name, data={"k": "1"})
    return acting.intent("patch", seen, body={"data": {"k": "2"}})


async def json_patch(acting: Acting, name: str = "a") -> Any:
    """Not the same when done twice."""
    seen = await acting.make(WEBS, name, spec={"list": ["1"]})
    operations = [{"op": "add", "path": "/spec/list/-", "value": "2"}]
    return acting.intent("patch", seen, body=operations, options={"patch_type": "json"})


async def patch_status(acting: Acting, name: str = "a") -> Any:
    seen = await acting.make(WEBS, name, spec={})
    return acting.intent("patch_status", seen, body={"status": {"ready": 1}})


async def delete(acting: Acting, name: str = "a") -> Any:
    return acting.intent("delete", await acting.make("configmaps", name))


VERBS: tuple[Callable[[Acting, str], Awaitable[Any]], ...] = (
    apply_new,
    apply_seen,
    create,
    patch,
    json_patch,
    patch_status,
    delete,
)
LOST_AFTER = (FailAfter(), FailAfter(how="reset"))
LOST_BEFORE = (FailBefore(), FailBefore(how="reset"), Refuse(code=500), Refuse(code=503), Refuse(code=504))
BUSY = (Refuse(code=429, retry_after=1), Refuse(code=401))


def name_for(make: Callable[[Acting, str], Awaitable[Any]]) -> str:
    return make.__name__.replace("_", "-")


async def carried_out(acting: Acting, wanted: Any, action: Action) -> Any:
    """The receipt of an intent whose first write goes wrong, once the actuator rests."""
    async with acting.running():
        return await carried_out_by_running(acting, wanted, action)


async def carried_out_by_running(acting: Acting, wanted: Any, action: Action) -> Any:
    rule = acting.proxy.add(action, writes)
    (receipt,) = await acting.carried_out(wanted)
    rule.release()
    assert rule.applied
    return receipt


def resource_of(wanted: Any) -> str:
    return str(wanted["target"]).partition("/")[0]


async def is_done(acting: Acting, wanted: Any) -> bool:
    """Whether the object is as the intent wants it."""
    body = await acting.get(resource_of(wanted), wanted["target"].rpartition("/")[2])
    if body is None or wanted["verb"] == "delete":
        return body is None and wanted["verb"] == "delete"
    return (body.get("data") or body.get("status") or body["spec"]) in ({"k": "2"}, {"ready": 1}, {"list": ["1", "2"]})


@pytest.mark.parametrize("action", [*LOST_BEFORE, *BUSY], ids=repr)
async def test_a_write_that_was_lost_before_it_took_effect_is_made_once(
    on_sandbox: Acting, subtests: pytest.Subtests, action: Action
) -> None:
    async with on_sandbox.running():
        for make in VERBS:
            with subtests.test(verb=make.__name__):
                name = name_for(make)
                wanted = await make(on_sandbox, name)
                receipt = await carried_out_by_running(on_sandbox, wanted, action)
                assert (receipt.outcome, receipt.attempts) == ("written", 2)
                assert await is_done(on_sandbox, wanted)
                assert len(on_sandbox.effective(name=name)) == 1


@pytest.mark.parametrize("action", LOST_AFTER, ids=repr)
async def test_invariant_7_a_write_whose_answer_was_lost_is_found_and_not_made_again(
    acting: Acting, subtests: pytest.Subtests, action: Action
) -> None:
    async with acting.running():
        for make in VERBS:
            with subtests.test(verb=make.__name__):
                name = name_for(make)
                wanted = await make(acting, name)
                receipt = await carried_out_by_running(acting, wanted, action)
                # Whether a JSON patch was in the change cannot be seen: the next round decides on the object as it is.
                expected = {"delete": "gone", "json_patch": "conflict"}.get(make.__name__, "written")
                assert receipt.outcome == expected
                assert await is_done(acting, wanted)
                assert len(acting.effective(name=name)) == 1
                assert len(acting.sent(name=name)) == 1


@pytest.mark.parametrize("is_overtaken", [True, False])
async def test_invariant_7_a_write_that_arrives_after_it_was_given_up_is_not_made_twice(
    acting: Acting, subtests: pytest.Subtests, is_overtaken: bool
) -> None:
    """It was lost on its way, and arrives just before or just after the one that was sent in its place."""
    async with acting.running():
        for make in VERBS:
            with subtests.test(verb=make.__name__):
                name = name_for(make)
                wanted = await make(acting, name)
                lost = acting.proxy.add(FailBefore(), writes)
                again = acting.proxy.add(Hold(stage="answer" if is_overtaken else "request"), writes)
                (key,) = await acting.decide(wanted)
                await again.until_applied()
                await arrive(acting, await lost.until_applied())
                again.release()
                (receipt,) = await acting.receipts_of([key])
                assert receipt.outcome in {"written", "unchanged", "gone", "conflict"}
                assert await is_done(acting, wanted)
                assert len(acting.effective(name=name)) == 1


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


async def test_invariant_7_a_request_that_is_repeated_on_its_way_is_one_write(
    acting: Acting, subtests: pytest.Subtests
) -> None:
    async with acting.running():
        for make in VERBS:
            with subtests.test(verb=make.__name__):
                name = name_for(make)
                wanted = await make(acting, name)
                await carried_out_by_running(acting, wanted, ForwardTwice())
                assert await is_done(acting, wanted)
                assert len(acting.effective(name=name)) == 1


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


async def test_retry_after_is_waited_for(acting: Acting) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    receipt = await carried_out(acting, await patch(acting), Refuse(code=429, retry_after=1))
    assert receipt.outcome == "written"
    assert loop.time() - began >= 1


async def test_after_the_last_attempt_an_intent_fails_and_says_why(on_sandbox: Acting) -> None:
    wanted = await patch(on_sandbox)
    on_sandbox.proxy.add(Refuse(code=503, message="not now"), writes, times=None)
    settings = msgspec.structs.replace(QUICK, attempts=3)
    async with on_sandbox.running(settings):
        (receipt,) = await on_sandbox.carried_out(wanted)
    assert (receipt.outcome, receipt.attempts) == ("failed", 3)
    assert "given up after 3 attempts: patch configmaps/" in receipt.error
    assert receipt.error.endswith("503 ServiceUnavailable: not now")
    assert len(on_sandbox.sent()) == 3
    assert on_sandbox.postponed == 2


async def test_an_intent_that_cannot_be_sent_holds_up_no_other(on_sandbox: Acting) -> None:
    stuck = await on_sandbox.make("configmaps", "stuck")
    others = [await on_sandbox.make("configmaps", f"other-{number}") for number in range(5)]
    on_sandbox.proxy.add(Refuse(code=503), asks("patch", name="stuck"), times=None)
    body = {"data": {"k": "1"}}
    async with on_sandbox.running():
        (key,) = await on_sandbox.decide(on_sandbox.intent("patch", stuck, body=body))
        receipts = await on_sandbox.carried_out(*(on_sandbox.intent("patch", each, body=body) for each in others))
        assert [each.outcome for each in receipts] == ["written"] * 5

        async def is_told() -> bool:
            return "503" in (await on_sandbox.rows())[key]["error"]

        await until(is_told, "a row that says what its write fails with")
        assert (await on_sandbox.rows())[key]["receipt"] is None


async def test_two_intents_for_one_object_are_sent_one_after_the_other(on_sandbox: Acting) -> None:
    seen = await on_sandbox.make("configmaps", "a")
    first, second = [on_sandbox.intent("patch", seen, body={"data": {"k": value}}) for value in "12"]
    held = on_sandbox.proxy.add(Hold(stage="answer"), writes)
    async with on_sandbox.running():
        keys = await on_sandbox.decide(first, second)
        await held.until_applied()
        await on_sandbox.carried_out(on_sandbox.intent("patch", await on_sandbox.make("configmaps", "b"), body={}))
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

        async def has_been_tried() -> bool:
            return on_sandbox.postponed > 25

        await until(has_been_tried, "several vain tries")
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
    loop = asyncio.get_running_loop()
    async with on_sandbox.running():
        began = loop.time()
        (first,) = await on_sandbox.decide(on_sandbox.intent("patch", web, body={"spec": {"k": "1"}}))
        await busy.until_applied()
        (other,) = await on_sandbox.carried_out(on_sandbox.intent("patch", config, body={"data": {"k": "1"}}))
        assert (other.outcome, loop.time() - began < 2) == ("written", True)
        later = on_sandbox.intent("patch", await on_sandbox.make(WEBS, "b", spec={}), body={"spec": {"k": "1"}})
        second = await on_sandbox.carried_out(later)
        assert loop.time() - began >= 2
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
