"""Server-side apply on a custom resource: who owns what, and what happens to what nobody says any more."""

from typing import Any

import pytest

from rigs.clusterclient import Answer, ClusterClient
from rigs.customresources import Webs


def owned(answer: Answer) -> dict[tuple[str, str], Any]:
    """Fields by manager and operation."""
    entries = answer.metadata["managedFields"]
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


async def test_the_first_apply_creates_and_owns_what_it_says(webs: Webs) -> None:
    spec = {
        "image": "one",
        "parts": [{"name": "x", "size": 1}],
        "tags": ["a"],
        "arguments": ["b"],
        "settings": {"k": "v"},
        "selector": {"s": "t"},
        "free": {"a": {"b": 1}, "list": [1], "empty": {}},
    }
    made = await webs.apply("a", spec)
    assert made.code == 201
    assert made.body["spec"] == {**spec, "replicas": 1}
    assert made.metadata["generation"] == 1
    assert owned(made) == {
        ("one", "Apply"): {
            "f:spec": {
                "f:image": {},
                "f:parts": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:size": {}}},
                "f:tags": {'v:"a"': {}},
                "f:arguments": {},
                "f:settings": {"f:k": {}},
                "f:selector": {},
                "f:free": {"f:a": {".": {}, "f:b": {}}, "f:list": {}, "f:empty": {}},
            }
        }
    }


async def test_the_same_apply_twice_leaves_the_version(webs: Webs) -> None:
    spec = {"image": "one", "parts": [{"name": "x", "size": 1}], "free": {"a": {"b": [1, None]}}}
    made = await webs.apply("a", spec)
    again = await webs.apply("a", spec)
    assert again.code == 200
    assert again.body == made.body
    forced = await webs.apply("a", spec, force="true")
    assert forced.body == made.body


async def test_a_field_of_another_manager_is_not_taken(webs: Webs) -> None:
    await webs.apply("a", {"image": "one", "replicas": 2}, "first")
    refused = await webs.apply("a", {"image": "two"}, "second")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "first": .spec.image'
    assert refused.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".spec.image"}
    ]
    assert (await webs.api.get(webs.at("a"))).body["spec"]["image"] == "one"


async def test_several_conflicts_name_each_field_and_manager(webs: Webs) -> None:
    await webs.apply("a", {"image": "one", "arguments": ["a"]}, "first")
    await webs.apply("a", {"image": "one", "parts": [{"name": "x", "size": 1}]}, "second")
    refused = await webs.apply("a", {"image": "z", "arguments": ["z"], "parts": [{"name": "x", "size": 9}]}, "third")
    assert refused.code == 409
    assert refused.body["message"].startswith('Apply failed with 4 conflicts: conflicts with "first":\n- .spec.')
    fields = {(cause["field"], cause["message"]) for cause in refused.body["details"]["causes"]}
    assert fields == {
        (".spec.image", 'conflict with "first"'),
        (".spec.image", 'conflict with "second"'),
        (".spec.arguments", 'conflict with "first"'),
        ('.spec.parts[name="x"].size', 'conflict with "second"'),
    }


async def test_a_conflict_with_an_updater_names_its_version(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    refused = await webs.apply("a", {"image": "two"})
    assert refused.body["message"] == (
        'Apply failed with 1 conflict: conflict with "contract" using contract.example.com/v1: .spec.image'
    )
    await api.merge(webs.at("a", "status"), {"status": {"phase": "x"}}, fieldManager="reporter")
    status = webs.manifest("a", status={"phase": "y"})
    refused = await api.apply(webs.at("a", "status"), status, "other")
    assert refused.body["message"] == (
        'Apply failed with 1 conflict: conflict with "reporter" with subresource "status" '
        "using contract.example.com/v1: .status.phase"
    )


async def test_force_takes_the_fields(webs: Webs) -> None:
    await webs.apply("a", {"image": "one", "replicas": 2}, "first")
    taken = await webs.apply("a", {"image": "two"}, "second", force="true")
    assert taken.code == 200
    assert taken.body["spec"] == {"image": "two", "replicas": 2}
    assert taken.metadata["generation"] == 2
    assert owned(taken) == {
        ("first", "Apply"): {"f:spec": {"f:replicas": {}}},
        ("second", "Apply"): {"f:spec": {"f:image": {}}},
    }


async def test_the_same_value_is_owned_together(webs: Webs) -> None:
    made = await webs.apply("a", {"image": "one"}, "first")
    shared = await webs.apply("a", {"image": "one"}, "second")
    assert shared.code == 200
    assert int(shared.version) > int(made.version)
    assert shared.metadata["generation"] == 1
    assert set(owned(shared)) == {("first", "Apply"), ("second", "Apply")}
    # One may let go of it; it stays while the other holds it.
    alone = await webs.apply("a", None, "first")
    assert alone.body["spec"]["image"] == "one"
    assert set(owned(alone)) == {("second", "Apply")}


async def test_what_is_no_longer_said_goes(webs: Webs) -> None:
    await webs.apply(
        "a",
        {
            "image": "one",
            "mode": "fast",
            "parts": [{"name": "x", "size": 1}, {"name": "y", "size": 2}],
            "tags": ["a", "b"],
            "arguments": ["c"],
            "settings": {"k": "v", "l": "w"},
            "nested": {"x": "1", "y": 2},
        },
    )
    less = await webs.apply(
        "a",
        {"image": "one", "parts": [{"name": "y"}], "tags": ["b"], "settings": {"l": "w"}, "nested": {"x": "1"}},
    )
    assert less.body["spec"] == {
        "image": "one",
        "replicas": 1,
        "parts": [{"name": "y"}],
        "tags": ["b"],
        "settings": {"l": "w"},
        "nested": {"x": "1"},
    }
    least = await webs.apply("a", {"image": "one"})
    assert least.body["spec"] == {"image": "one", "replicas": 1}


async def test_what_others_own_stays_when_it_is_no_longer_said(api: ClusterClient, webs: Webs) -> None:
    await webs.apply("a", {"image": "one", "parts": [{"name": "x", "size": 1}], "settings": {"k": "v"}}, "first")
    await webs.apply("a", {"image": "one", "parts": [{"name": "x"}], "settings": {"l": "w"}}, "second")
    await api.merge(webs.at("a"), {"spec": {"mode": "slow"}}, fieldManager="updater")
    left = await webs.apply("a", {"image": "one"}, "first")
    assert left.body["spec"] == {
        "image": "one",
        "replicas": 1,
        "mode": "slow",
        "parts": [{"name": "x"}],
        "settings": {"l": "w"},
    }


async def test_a_required_field_cannot_be_let_go(webs: Webs) -> None:
    await webs.apply("a", {"image": "one", "mode": "fast"})
    refused = await webs.apply("a", {"mode": "fast"})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("spec.image", "FieldValueRequired")}


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("abcd", "dnb", "acdnb"),
        ("abefcd", "de", "abfcde"),
        ("fba", "af", "baf"),
        ("ceabfd", "hcfged", "hcabfged"),
        ("ebcd", "gdhb", "ecgdhb"),
        ("bad", "", "bad"),
        ("", "ba", "ba"),
    ],
)
async def test_items_come_in_applied_order_between_those_of_others(
    webs: Webs, live: str, applied: str, merged: str
) -> None:
    spec = {"image": "one", "parts": [{"name": name} for name in live], "tags": list(live)}
    await webs.create("a", spec)
    answer = await webs.apply("a", {"parts": [{"name": name} for name in applied], "tags": list(applied)})
    assert "".join(part["name"] for part in answer.body["spec"]["parts"]) == merged
    assert "".join(answer.body["spec"]["tags"]) == merged


async def test_labels_annotations_finalizers_and_owners_are_owned_one_by_one(api: ClusterClient, webs: Webs) -> None:
    uid = "22222222-2222-2222-2222-222222222222"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid}
    manifest = webs.manifest(
        "a",
        {"image": "one"},
        labels={"l": "1"},
        annotations={"a": "2"},
        finalizers=["example.com/hold"],
        ownerReferences=[owner],
    )
    made = await api.apply(webs.at("a"), manifest)
    assert owned(made)["one", "Apply"]["f:metadata"] == {
        "f:labels": {"f:l": {}},
        "f:annotations": {"f:a": {}},
        "f:finalizers": {'v:"example.com/hold"': {}},
        "f:ownerReferences": {f'k:{{"uid":"{uid}"}}': {}},
    }
    refused = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, labels={"l": "9"}), "two")
    assert ".metadata.labels.l" in refused.body["message"]
    other = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, labels={"m": "3"}), "two")
    assert other.metadata["labels"] == {"l": "1", "m": "3"}
    gone = await webs.apply("a", {"image": "one"})
    assert gone.metadata["labels"] == {"m": "3"}
    assert not {"annotations", "finalizers", "ownerReferences"} & gone.metadata.keys()


async def test_an_apply_that_names_an_absent_incarnation_resurrects_nothing(api: ClusterClient, webs: Webs) -> None:
    uid = "11111111-1111-1111-1111-111111111111"
    refused = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, uid=uid))
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.body["message"] == (
        f'Operation cannot be fulfilled on webs.contract.example.com "a": uid mismatch: the provided object specified '
        f"uid {uid}, and no existing object was found"
    )
    assert (await api.get(webs.at("a"))).code == 404


async def test_an_apply_that_names_another_incarnation_is_refused(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    uid = "11111111-1111-1111-1111-111111111111"
    refused = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, uid=uid))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("metadata.uid", "FieldValueInvalid")}
    same = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, uid=made.metadata["uid"]))
    assert same.code == 200


async def test_an_apply_with_a_version_creates_what_is_absent_and_guards_what_is_there(
    api: ClusterClient, webs: Webs
) -> None:
    made = await api.apply(webs.at("a"), webs.manifest("a", {"image": "one"}, resourceVersion="5"))
    assert made.code == 201
    refused = await api.apply(webs.at("a"), webs.manifest("a", {"image": "two"}, resourceVersion="5"))
    assert (refused.code, refused.reason) == (409, "Conflict")
    current = webs.manifest("a", {"image": "two"}, resourceVersion=made.version)
    assert (await api.apply(webs.at("a"), current)).code == 200


async def test_a_dry_run_of_an_apply_stores_nothing(webs: Webs) -> None:
    tried = await webs.apply("a", {"image": "one"}, dryRun="All")
    assert tried.code == 201
    assert (await webs.api.get(webs.at("a"))).code == 404
    made = await webs.apply("a", {"image": "one"})
    tried = await webs.apply("a", {"image": "two"}, dryRun="All")
    assert tried.body["spec"]["image"] == "two"
    assert tried.metadata["generation"] == 2
    assert (await webs.api.get(webs.at("a"))).body == made.body


async def test_an_applied_configuration_must_fit_its_schema(webs: Webs) -> None:
    await webs.apply("a", {"image": "one"})
    for spec, words in (
        ({"image": "one", "bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"image": 5}, ".spec.image: expected string"),
        ({"image": "one", "parts": [{"name": "x"}, {"name": "x"}]}, ".spec.parts: duplicate entries for key"),
        ({"image": "one", "parts": [{"size": 1}]}, ".spec.parts: element 0: associative list with keys"),
        ({"image": "one", "tags": ["x", "x"]}, ".spec.tags: duplicate entries for key"),
    ):
        refused = await webs.apply("a", spec)
        assert refused.code == 500
        assert "reason" not in refused.body
        assert refused.body["message"].startswith("failed to create typed patch object (/a; contract.example.com/v1, ")
        assert words in refused.body["message"]


@pytest.mark.parametrize(("field", "keyed"), [("tags", "without"), ("parts", "with")])
async def test_null_is_no_item_of_a_set_or_keyed_list(webs: Webs, field: str, keyed: str) -> None:
    refused = await webs.apply("a", {"image": "one", field: [None]})
    assert refused.code == 500
    assert f".spec.{field}: element 0: associative list {keyed} keys " in refused.body["message"]


async def test_values_are_checked_after_the_merge(webs: Webs) -> None:
    await webs.apply("a", {"image": "one"})
    refused = await webs.apply("a", {"image": "one", "mode": "odd", "replicas": -1})
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("spec.mode", "FieldValueNotSupported"), ("spec.replicas", "FieldValueInvalid")}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Other"},
        {"apiVersion": "v1"},
        {"kind": None},
        {"metadata": {"name": "b"}},
        {"metadata": {"name": "a", "namespace": "elsewhere"}},
        {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}},
    ],
    ids=["kind", "version", "no kind", "name", "namespace", "managedFields"],
)
async def test_an_applied_configuration_must_be_of_what_the_url_names(webs: Webs, change: dict[str, Any]) -> None:
    manifest = {**webs.manifest("a", {"image": "one"}), **change}
    refused = await webs.api.apply(webs.at("a"), {key: value for key, value in manifest.items() if value is not None})
    assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_the_name_may_be_left_to_the_url_only_of_what_is_there(webs: Webs) -> None:
    nameless = {"apiVersion": webs.api_version, "kind": "Web", "spec": {"mode": "fast"}}
    refused = await webs.api.apply(webs.at("a"), nameless)
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert (
        refused.body["message"] == "the name of the object (a based on URL) was undeterminable: name must be provided"
    )
    await webs.create("a")
    applied = await webs.api.apply(webs.at("a"), nameless)
    assert applied.code == 200
    assert applied.body["spec"]["mode"] == "fast"


async def test_an_apply_needs_a_manager_and_a_namespace_that_exists(api: ClusterClient, webs: Webs) -> None:
    refused = await webs.apply("a", {"image": "one"}, "")
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("fieldManager", "FieldValueRequired")}
    elsewhere = "/apis/contract.example.com/v1/namespaces/absent/webs/a"
    assert (await api.apply(elsewhere, webs.manifest("a", {"image": "one"}))).code == 404


async def test_yaml_is_applied_as_json_is(api: ClusterClient, webs: Webs) -> None:
    text = f"apiVersion: {webs.api_version}\nkind: Web\nmetadata:\n  name: a\nspec:\n  image: one\n"
    made = await api.ask(
        "PATCH", webs.at("a"), text, content_type="application/apply-patch+yaml", query={"fieldManager": "m"}
    )
    assert made.code == 201
    assert made.body["spec"]["image"] == "one"


async def test_defaults_are_owned_by_who_creates_but_not_by_who_applies(webs: Webs) -> None:
    applied = await webs.apply("a", {"image": "one"})
    assert owned(applied) == {("one", "Apply"): {"f:spec": {"f:image": {}}}}
    created = await webs.create("b")
    assert owned(created) == {("contract", "Update"): {"f:spec": {".": {}, "f:image": {}, "f:replicas": {}}}}


async def test_an_update_takes_fields_from_an_applier_and_an_apply_takes_them_back(
    api: ClusterClient, webs: Webs
) -> None:
    await webs.apply("a", {"image": "one", "mode": "fast"})
    patched = await api.merge(webs.at("a"), {"spec": {"image": "two"}}, fieldManager="updater")
    assert owned(patched) == {
        ("one", "Apply"): {"f:spec": {"f:mode": {}}},
        ("updater", "Update"): {"f:spec": {"f:image": {}}},
    }
    assert (await webs.apply("a", {"image": "one", "mode": "fast"})).code == 409
    back = await webs.apply("a", {"image": "one", "mode": "fast"}, force="true")
    assert owned(back) == {("one", "Apply"): {"f:spec": {"f:image": {}, "f:mode": {}}}}
