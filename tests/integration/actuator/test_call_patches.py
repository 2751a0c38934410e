"""Writes that are part of a call: made once, whatever goes wrong, and never over what others have written since."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from levelog import Operator, Struct, event
from levelog.effects import CallPatch
from levelog_actuator.ownclaims import RECHECK_SECONDS
from levelog_actuator.patching import Kept
from levelog_base.wire.canonical import canonical
from levelog_base.wire.records import ReceiptNoted
from levelog_store.actuate.elapsed import elapsed
from levelog_store.tables import intents
from rigs.acting import WEBS, Acting, writes
from rigs.faults import Action, FailAfter, FailBefore, Hold, Refuse
from rigs.intents import intent
from rigs.kinds import Web
from rigs.waiting import until

PATCH = {"status": {"phase": "made", "size": 2}, "metadata": {"labels": {"made": "yes"}}}
WENT_WRONG = (FailAfter(), FailAfter(how="reset"), FailBefore(), Refuse(code=500), Refuse(code=429, retry_after=1))


class Asked(Struct):
    object: dict[str, Any]


class Shaping:
    """An operator whose one effect has its result written, and how often it was called."""

    def __init__(self, *, notes: tuple[str, ...] = ()) -> None:
        self.op = Operator("webs")
        self.called = 0

        @self.op.effect
        async def shape(request: Asked) -> dict[str, Any]:
            self.called += 1
            return {"phase": request.object.get("wanted", PATCH)}

        def patched(request: Asked, result: Mapping[str, Any]) -> CallPatch:
            events = [event("Shaped", each) for each in notes]
            return CallPatch(of=Web, patch=result["phase"], seen=request.object, events=events)

        self.op.effects["shape"].patches = patched


def call_for(seen: Any, *, of: str = "shape", **columns: Any) -> dict[str, Any]:
    """A call of the effect for an object as the decision saw it."""
    about = seen["metadata"]
    namespace, name = about["namespace"], about["name"]
    place = {"parent": f"{WEBS}/{namespace}/{name}", "parent_uid": about["uid"], "partition": 0}
    given: dict[str, Any] = {"api_version": "effects/v1", "kind": of, "is_watched": False, **place, **columns}
    return intent(f"{of}.effects/{namespace}/{name}", verb="call", body={"object": seen}, **given)


def told(receipt: ReceiptNoted) -> list[tuple[str, str]]:
    return [(each.verb, each.outcome) for each in receipt.patches]


async def test_what_a_call_asks_for_is_written_before_its_receipt(acting: Acting) -> None:
    seen, shaping = await acting.make(WEBS, "a", spec={}), Shaping(notes=("it is made",))
    async with acting.running(effects=shaping.op):
        (receipt,) = await acting.carried_out(call_for(seen))
    found = await acting.get(WEBS, "a")
    assert (found["status"], found["metadata"]["labels"]) == (PATCH["status"], {"made": "yes"})
    assert told(receipt) == [("patch_status", "written"), ("patch", "written")]
    assert (receipt.target_uid, receipt.target_version) == (
        found["metadata"]["uid"],
        int(found["metadata"]["resourceVersion"]),
    )
    assert len(acting.sent(name="a")) == 2
    assert [each.resource for each in acting.sent()] == [WEBS, WEBS, "events.events.k8s.io"]


@pytest.mark.parametrize("action", WENT_WRONG, ids=str)
@pytest.mark.parametrize("part", ["status", ""])
async def test_each_part_takes_effect_once_and_the_function_is_called_once(
    on_sandbox: Acting, action: Action, part: str
) -> None:
    acting = on_sandbox
    seen, shaping = await acting.make(WEBS, "a", spec={}), Shaping()
    rule = acting.proxy.add(action, lambda request: writes(request) and request.subresource == part)
    async with acting.running(effects=shaping.op):
        (receipt,) = await acting.carried_out(call_for(seen))
    assert rule.applied
    found = await acting.get(WEBS, "a")
    assert (found["status"], found["metadata"]["labels"]) == (PATCH["status"], {"made": "yes"})
    assert (receipt.outcome, shaping.called) == ("written", 1)
    assert len(acting.effective(name="a")) == 2


@pytest.mark.parametrize("changed", [None, {"metadata": {"labels": {"made": "no", "other": "yes"}}}])
async def test_a_process_that_died_after_its_write_leaves_nothing_to_be_called_or_written(
    acting: Acting, changed: Any
) -> None:
    seen, shaping = await acting.make(WEBS, "a", spec={}), Shaping()
    await acting.change(WEBS, "a", {"status": PATCH["status"]}, "status")
    await acting.change(WEBS, "a", {"metadata": PATCH["metadata"]})
    if changed is not None:
        await acting.change(WEBS, "a", changed)
    before = await acting.get(WEBS, "a")
    kept = canonical(Kept(returned={"phase": PATCH}, at=datetime.now(UTC)))
    row = call_for(seen, state="claimed", attempts=1, owner="gone", progress=kept)
    async with acting.running(effects=shaping.op):
        (receipt,) = await acting.carried_out(row)
    assert (receipt.outcome, shaping.called, await acting.get(WEBS, "a")) == ("written", 0, before)
    assert not acting.effective()


async def test_what_others_have_written_since_the_call_was_decided_on_stays(acting: Acting) -> None:
    seen, shaping = await acting.make(WEBS, "a", spec={}), Shaping()
    await acting.change(WEBS, "a", {"status": {"phase": "theirs"}}, "status")
    async with acting.running(effects=shaping.op):
        (receipt,) = await acting.carried_out(call_for(seen))
    found = await acting.get(WEBS, "a")
    assert (found["status"], found["metadata"]["labels"]) == ({"phase": "theirs", "size": 2}, {"made": "yes"})
    assert told(receipt) == [("patch_status", "written"), ("patch", "written")]


async def test_calls_of_one_object_do_not_hold_each_other_up_nor_write_what_is_there(acting: Acting) -> None:
    made, shaping = await acting.make(WEBS, "a", spec={}), Shaping()
    bodies = [{"status": {each: 1}, "metadata": {"labels": {each: "x"}}} for each in ("one", "two", "three")]
    calls = [call_for({**made, "wanted": each}, options={"name": str(n)}) for n, each in enumerate(bodies)]
    targets = [{**each, "target": f"{each['target']}:{n}"} for n, each in enumerate(calls)]
    async with acting.running(effects=shaping.op):
        await acting.carried_out(*targets)
        found = await acting.get(WEBS, "a")
        (again,) = await acting.carried_out(call_for({**found, "wanted": bodies[0]}))
    assert found["status"] == {"one": 1, "two": 1, "three": 1}
    assert found["metadata"]["labels"] == {"one": "x", "two": "x", "three": "x"}
    assert (len(acting.sent(name="a")), told(again)) == (6, [])
    assert len(acting.effective(name="a")) == 6


async def test_a_part_that_waited_for_the_one_before_is_not_sent_under_a_claim_that_was_lost(acting: Acting) -> None:
    seen, shaping, passed = await acting.make(WEBS, "a", spec={}), Shaping(), 0.0
    acting.clock = lambda: elapsed() + passed
    held = acting.proxy.add(Hold(stage="answer"), lambda request: writes(request) and request.subresource == "status")
    async with acting.running(effects=shaping.op):
        (key,) = await acting.decide(call_for(seen))
        await held.until_applied()
        async with acting.database.transaction() as connection:
            await connection.execute(update(intents).where(intents.c.key == key).values(owner="another"))
        passed = 2 * RECHECK_SECONDS
        held.release()
        await until(lambda: acting.postponed > 0, "the end of the call")
    assert [each.subresource for each in acting.sent(name="a")] == ["status"]


async def test_another_incarnation_is_left_alone(acting: Acting) -> None:
    seen, shaping = await acting.make(WEBS, "a", spec={}), Shaping()
    await acting.remove(WEBS, "a")
    other = await acting.make(WEBS, "a", spec={})
    async with acting.running(effects=shaping.op):
        (receipt,) = await acting.carried_out(call_for(seen))
    assert receipt.outcome == "written"
    assert {outcome for _, outcome in told(receipt)} == {"gone"}
    assert (await acting.get(WEBS, "a"))["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]
