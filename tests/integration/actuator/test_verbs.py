"""What each verb does at the API, and which receipt it leads to."""

import json
from typing import Any

import pytest

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.subjects import partition_of
from rigs.acting import WEBS, Acting, config_map, owner_of


async def test_apply_makes_an_object_that_the_decision_did_not_see(acting: Acting) -> None:
    web = await acting.make(WEBS, "w", spec={})
    parent = f"{WEBS}/{acting.namespace}/w"
    wanted = acting.intent(
        "apply", body=config_map("a", web, data={"k": "1"}), parent=parent, parent_uid=web["metadata"]["uid"]
    )
    async with acting.running():
        (receipt,) = await acting.carried_out(wanted)
        row = await acting.relayed(wanted["key"])
    made = await acting.get("configmaps", "a")
    assert made["data"] == {"k": "1"}
    assert made["metadata"]["ownerReferences"] == [owner_of(web)]
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["levelog-webs"]
    assert (receipt.outcome, receipt.attempts, receipt.view) == ("written", 1, "webs/pods")
    assert receipt.target_uid == made["metadata"]["uid"]
    assert receipt.target_version == int(made["metadata"]["resourceVersion"])
    assert row["state"] == "written"
    assert (row["result_uid"], row["result_version"]) == (receipt.target_uid, receipt.target_version)
    record = await acting.stream.last_record(f"levelog.{acting.scope.cluster}.*._receipt.*")
    assert record is not None
    assert record.record == receipt
    assert record.partition == partition_of(ObjectKey.parse(parent), acting.stream.partitions)


async def test_apply_changes_what_the_decision_saw_and_drops_what_it_leaves_out(acting: Acting) -> None:
    async with acting.running():
        await acting.does("apply", body=config_map("a", data={"k": "1", "old": "x"}))
        seen = await acting.change("configmaps", "a", {"data": {"theirs": "y"}})
        changed = await acting.does("apply", seen, body=config_map("a", data={"k": "2"}))
        after = await acting.get("configmaps", "a")
        same = await acting.does("apply", {**seen, **after}, body=config_map("a", data={"k": "2"}))
    assert after["data"] == {"k": "2", "theirs": "y"}
    assert (changed.outcome, changed.target_version) == ("written", int(after["metadata"]["resourceVersion"]))
    assert (same.outcome, same.target_version) == ("unchanged", changed.target_version)


async def test_apply_leaves_fields_of_another_manager_alone_unless_forced(acting: Acting) -> None:
    body = config_map("a", data={"k": "1"})
    _, seen = await acting.api.request(
        "PATCH",
        f"{acting.path('configmaps', 'a')}?fieldManager=somebody",
        {**body, "data": {"k": "0"}},
        content_type="application/apply-patch+yaml",
    )
    async with acting.running():
        refused = await acting.does("apply", seen, body=body)
        assert (await acting.get("configmaps", "a"))["data"] == {"k": "0"}
        forced = await acting.does("apply", seen, body=body, options={"force": True})
    assert refused.outcome == "failed"
    assert '.data.k (conflict with "somebody")' in refused.error
    assert forced.outcome == "written"
    assert (await acting.get("configmaps", "a"))["data"] == {"k": "1"}


async def test_apply_of_its_own_object_that_the_decision_did_not_see_is_written(acting: Acting) -> None:
    web = await acting.make(WEBS, "w", spec={})
    await acting.make("configmaps", "a", metadata={"ownerReferences": [owner_of(web)]})
    async with acting.running():
        receipt = await acting.does("apply", body=config_map("a", web, data={"x": "1"}))
    now = await acting.get("configmaps", "a")
    assert (receipt.outcome, receipt.target_version) == ("written", int(now["metadata"]["resourceVersion"]))
    assert now["data"] == {"x": "1"}


async def test_create_makes_an_object_once_and_accepts_its_own(acting: Acting) -> None:
    web = await acting.make(WEBS, "w", spec={})
    async with acting.running():
        made = await acting.does("create", body=config_map("a", web, data={"k": "1"}))
        again = await acting.does("create", body=config_map("a", web, data={"k": "2"}))
        foreign = await acting.does("create", body=config_map("a", None, data={"k": "3"}))
    assert [each.outcome for each in (made, again, foreign)] == ["written", "unchanged", "failed"]
    assert "controlled by Web/w" in foreign.error
    assert (await acting.get("configmaps", "a"))["data"] == {"k": "1"}


async def test_patches_change_just_what_they_name(acting: Acting) -> None:
    seen = await acting.make("configmaps", "a", data={"k": "1", "gone": "x"})
    async with acting.running():
        merged = await acting.does("patch", seen, body={"data": {"k": "2", "gone": None}})
        seen = {**seen, **await acting.get("configmaps", "a")}
        assert seen["data"] == {"k": "2"}
        operations = [{"op": "test", "path": "/data/k", "value": "2"}, {"op": "add", "path": "/data/n", "value": "3"}]
        patched = await acting.does("patch", seen, body=operations, options={"patch_type": "json"})
        assert (await acting.get("configmaps", "a"))["data"] == {"k": "2", "n": "3"}
        seen = {**seen, **await acting.get("configmaps", "a")}
        same = await acting.does("patch", seen, body={"data": {"k": "2"}})
        refused = await acting.does(
            "patch", seen, body=[{"op": "test", "path": "/data/k", "value": "9"}], options={"patch_type": "json"}
        )
    assert [each.outcome for each in (merged, patched, same, refused)] == ["written", "written", "unchanged", "failed"]


async def test_a_json_patch_that_tests_what_it_changes_is_refused_only_if_that_has_changed(acting: Acting) -> None:
    seen = await acting.make("configmaps", "a", data={"k": "1"})
    await acting.change("configmaps", "a", {"data": {"other": "1"}})
    add = {"op": "add", "path": "/data/new", "value": "1"}
    tested = [{"op": "test", "path": "/data/new", "value": None}, add]
    async with acting.running():
        untested, written, refused = [
            (await acting.does("patch", seen, body=body, options={"patch_type": "json"}))
            for body in ([add], tested, tested)
        ]
    assert [each.outcome for each in (untested, written, refused)] == ["conflict", "written", "conflict"]
    assert (await acting.get("configmaps", "a"))["data"] == {"k": "1", "other": "1", "new": "1"}


async def test_the_patch_that_takes_off_the_last_finalizer_is_written_and_waits_for_the_end(acting: Acting) -> None:
    await acting.make("configmaps", "a", data={})
    held = await acting.change("configmaps", "a", {"metadata": {"finalizers": ["x.io/one", "x.io/two"]}})
    await acting.api.request("DELETE", acting.path("configmaps", "a"))
    receipts: list[Any] = []
    async with acting.running():
        for rest in (["x.io/one"], ["x.io/one"], []):
            seen = {**held, **await acting.get("configmaps", "a")}
            body = {"metadata": {"finalizers": rest}}
            receipts += await acting.carried_out(acting.intent("patch", seen, body=body))
    assert [each.outcome for each in receipts] == ["written", "unchanged", "written"]
    assert receipts[2].target_version > receipts[1].target_version


@pytest.mark.parametrize("resource", [WEBS, "pods"])
async def test_a_status_is_patched_also_after_other_fields_changed(acting: Acting, resource: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]} if resource == "pods" else {}
    seen = await acting.make(resource, "w", spec=spec)
    body = {"status": {"message": "one"}}
    async with acting.running():
        written = await acting.does("patch_status", seen, body=body)
        now = {**seen, **await acting.get(resource, "w")}
        assert now["status"]["message"] == "one"
        same = await acting.does("patch_status", now, body=body)
        await acting.change(resource, "w", {"metadata": {"labels": {"a": "b"}}})
        later = await acting.does("patch_status", now, body={"status": {"message": "two"}})
    assert [each.outcome for each in (written, same, later)] == ["written", "unchanged", "written"]
    now = await acting.get(resource, "w")
    assert (now["status"]["message"], now["metadata"]["labels"]) == ("two", {"a": "b"})
    assert later.target_version == int(now["metadata"]["resourceVersion"])


async def test_delete_ends_an_object_and_says_which(acting: Acting) -> None:
    seen = await acting.make("configmaps", "a")
    async with acting.running():
        deleted = await acting.does("delete", seen)
        assert await acting.get("configmaps", "a") is None
        again = await acting.does("delete", seen)
    assert (deleted.outcome, deleted.target_uid) == ("written", seen["metadata"]["uid"])
    assert (again.outcome, again.target_uid) == ("gone", seen["metadata"]["uid"])


async def test_delete_leaves_an_object_with_finalizers_to_them(acting: Acting) -> None:
    seen = await acting.make(WEBS, "w", metadata={"finalizers": ["example.com/wait"]}, spec={})
    async with acting.running():
        options = {"propagation": "Orphan"}
        deleted = await acting.does("delete", seen, options=options)
    now = await acting.get(WEBS, "w")
    assert now["metadata"]["deletionTimestamp"]
    (request,) = acting.sent()
    assert json.loads(request.body)["propagationPolicy"] == "Orphan"
    assert deleted.outcome == "written"
    # The garbage collector may have removed its own finalizer meanwhile.
    assert int(seen["metadata"]["resourceVersion"]) < deleted.target_version <= int(now["metadata"]["resourceVersion"])
    await acting.change(WEBS, "w", {"metadata": {"finalizers": None}})


async def test_a_target_that_nobody_saw_is_looked_at_first(acting: Acting) -> None:
    """No uid is known, so that of the object that is found guards the write."""
    await acting.make("configmaps", "a", data={"k": "1"})
    await acting.make(WEBS, "w", spec={})
    names = {"is_watched": False}
    configs, webs = f"configmaps/{acting.namespace}", f"{WEBS}/{acting.namespace}"
    async with acting.running():
        outcomes = [
            (await acting.carried_out(wanted))[0].outcome
            for wanted in (
                acting.intent("patch", target=f"{configs}/a", body={"data": {"k": "2"}}, **names),
                acting.intent("patch_status", target=f"{webs}/w", body={"status": {"a": 1}}, **names),
                acting.intent("delete", target=f"{configs}/a", **names),  # nobody controls it
                acting.intent("delete", target=f"{configs}/a", options={"owned": False}, **names),
                acting.intent("delete", target=f"{configs}/a", **names),
                acting.intent("patch", target=f"{configs}/a", body={"data": {"k": "3"}}, **names),
            )
        ]
    assert outcomes == ["written", "written", "failed", "written", "gone", "gone"]
    assert (await acting.get(WEBS, "w"))["status"] == {"a": 1}


@pytest.mark.parametrize(
    ("verb", "body", "options"),
    [
        ("apply", config_map("a", data={"k": "2"}), {}),
        ("patch", {"data": {"k": "2"}}, {}),
        ("patch", [{"op": "add", "path": "/data", "value": {"k": "2"}}], {"patch_type": "json"}),
        ("delete", None, {}),
    ],
)
async def test_if_unchanged_refuses_what_was_changed_since_and_lets_the_next_round_decide(
    acting: Acting, verb: str, body: Any, options: Any
) -> None:
    seen = await acting.make("configmaps", "a", data={"theirs": "1"})
    before = await acting.change("configmaps", "a", {"data": {"theirs": "2"}})
    options = {**options, "if_unchanged": True}
    async with acting.running():
        refused = await acting.does(verb, seen, body=body, options=options)
        assert (await acting.get("configmaps", "a"))["metadata"]["resourceVersion"] == before["metadata"][
            "resourceVersion"
        ]
        taken = await acting.does(verb, before, body=body, options=options)
    assert (refused.outcome, taken.outcome) == ("conflict", "written")
    assert (await acting.rows())[refused.key]["state"] == "written"  # until the log shows what was in the way


async def test_what_the_api_refuses_fails_with_its_words(acting: Acting) -> None:
    pod = await acting.make("pods", "p", spec={"containers": [{"name": "c", "image": "i"}]})
    async with acting.running():
        invalid, no_kind, mistyped = [
            (await acting.carried_out(wanted))[0]
            for wanted in (
                acting.intent("patch", pod, body={"spec": {"containers": [{"name": "UPPER", "image": "i"}]}}),
                acting.intent(
                    "apply", target=f"configmaps/{acting.namespace}/a", body={"kind": "Pod", "apiVersion": "v1"}
                ),
                acting.intent("apply", body=config_map("a", data={"k": {"not": "text"}})),
            )
        ]
    assert [each.outcome for each in (invalid, no_kind, mistyped)] == ["failed"] * 3
    assert [each.attempts for each in (invalid, no_kind, mistyped)] == [1] * 3
    assert invalid.error.startswith(f"patch pods/{acting.namespace}/p: 422 Invalid: ")
    assert await acting.get("configmaps", "a") is None
