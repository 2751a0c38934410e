"""Invariant 11: no write hits another incarnation than the decision saw, and none brings a deleted object back."""

from typing import Any

import pytest

from rigs.acting import ACTUATOR, WEBS, Acting, config_map, owner_of, writes
from rigs.apirequests import asks
from rigs.faults import FailBefore, Hold

FIELDS: dict[str, dict[str, Any]] = {
    "configmaps": {"data": {"k": "1"}},
    "pods": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    WEBS: {"spec": {"k": "1"}},
}
LABELS = {"metadata": {"labels": {"by": "levelog"}}}
STATUS = {"status": {"message": "levelog"}}
JSON_PATCH = [{"op": "add", "path": "/metadata/labels", "value": {"by": "levelog"}}]

WRITES = [
    (resource, verb, body, options)
    for resource in FIELDS
    for verb, body, options in (
        ("apply", LABELS, {"force": True}),
        ("patch", LABELS, {}),
        ("patch", JSON_PATCH, {"patch_type": "json"}),
        ("patch_status", STATUS, {}),
        ("delete", None, {}),
    )
    if (resource, verb) != ("configmaps", "patch_status")  # they have none
]


async def intent_for(acting: Acting, resource: str, verb: str, body: Any, options: Any, *, name: str = "a") -> Any:
    seen = await acting.make(resource, name, **FIELDS[resource])
    if verb == "apply":
        head = {"apiVersion": seen["apiVersion"], "kind": seen["kind"]}
        body = {**body, **head, "metadata": {**body["metadata"], "name": name}}
    return acting.intent(verb, seen, body=body, options=options)


@pytest.mark.parametrize(
    ("is_doubtful", "is_made_anew"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
async def test_invariant_11_what_was_deleted_stays_deleted_and_what_has_its_name_is_left_alone(
    acting: Acting, subtests: pytest.Subtests, is_doubtful: bool, is_made_anew: bool
) -> None:
    """The object is deleted, or made anew too, while the request is on its way, the first one or one sent again."""
    async with acting.running():
        for number, (resource, verb, body, options) in enumerate(WRITES):
            with subtests.test(resource=resource, verb=verb, options=options):
                name = f"a-{number}"
                wanted = await intent_for(acting, resource, verb, body, options, name=name)
                if is_doubtful:
                    acting.proxy.add(FailBefore(), writes)
                held = acting.proxy.add(Hold(stage="request"), writes)
                (key,) = await acting.decide(wanted)
                await held.until_applied()
                await acting.remove(resource, name)
                other = await acting.make(resource, name, **FIELDS[resource]) if is_made_anew else None
                held.release()
                (receipt,) = await acting.receipts_of([key])
                assert receipt.outcome == "gone"
                now = await acting.get(resource, name)
                if other is None:
                    assert now is None
                else:
                    assert receipt.target_uid == wanted["target_uid"]
                    assert now["metadata"]["uid"] == other["metadata"]["uid"]
                    assert now["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]
    assert acting.effective() == []


@pytest.mark.parametrize("resource", [WEBS, "pods"])
async def test_invariant_11_a_status_that_others_change_all_the_time_is_never_written_to_another_incarnation(
    acting: Acting, resource: str
) -> None:
    """Each request finds another version, the last one another incarnation."""
    wanted = await intent_for(acting, resource, "patch_status", STATUS, {})
    first, second = [acting.proxy.add(Hold(stage="request"), writes) for _ in range(2)]
    async with acting.running():
        (key,) = await acting.decide(wanted)
        await first.until_applied()
        await acting.change(resource, "a", {"metadata": {"labels": {"a": "b"}}})
        first.release()
        await second.until_applied()
        await acting.remove(resource, "a")
        other = await acting.make(resource, "a", **FIELDS[resource])
        second.release()
        (receipt,) = await acting.receipts_of([key])
    assert receipt.outcome == "gone"
    now = await acting.get(resource, "a")
    assert now["metadata"]["resourceVersion"] == other["metadata"]["resourceVersion"]


async def test_invariant_11_a_create_that_was_lost_leaves_what_somebody_else_made_meanwhile(acting: Acting) -> None:
    web = await acting.make(WEBS, "w", spec={})
    acting.proxy.add(FailBefore(), writes)
    look = acting.proxy.add(Hold(stage="request"), asks("get", name="a", user_agent=ACTUATOR))
    async with acting.running():
        (key,) = await acting.decide(acting.intent("create", body=config_map("a", data={"k": "1"})))
        await look.until_applied()
        theirs = await acting.make(
            "configmaps", "a", data={"k": "theirs"}, metadata={"ownerReferences": [owner_of(web)]}
        )
        look.release()
        (receipt,) = await acting.receipts_of([key])
    assert receipt.outcome == "failed"
    now = await acting.get("configmaps", "a")
    assert now["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]
