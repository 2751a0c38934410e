"""The scale subresource of workloads: reading it, and the three ways to write it."""

import secrets
from typing import Any

import pytest
import pytest_asyncio

from rigs.clusterclient import JSON_PATCH, MERGE, STRATEGIC, TABLE, ClusterClient
from rigs.customresources import Webs, define, definition

Json = dict[str, Any]

LABELS = {"app": "x", "tier": "front"}
TEMPLATE: Json = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
EXPRESSIONS = [
    {"key": "tier", "operator": "In", "values": ["front", "back"]},
    {"key": "gone", "operator": "DoesNotExist"},
]


async def made(api: ClusterClient, namespace: str, plural: str) -> str:
    """The path of a workload with two replicas."""
    path = f"/apis/apps/v1/namespaces/{namespace}/{plural}"
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": EXPRESSIONS}
    spec = {"replicas": 2, "selector": selector, "template": TEMPLATE}
    answer = await api.create(path, {"metadata": {"name": "w"}, "spec": spec})
    assert answer.code == 201, answer.body
    return f"{path}/w"


@pytest_asyncio.fixture
async def workload(api: ClusterClient, namespace: str) -> str:
    return await made(api, namespace, "deployments")


@pytest.mark.parametrize("plural", ["deployments", "replicasets", "statefulsets"])
async def test_a_workload_has_a_scale(api: ClusterClient, namespace: str, plural: str) -> None:
    path = await made(api, namespace, plural)
    about = (await api.get(path)).metadata
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert (await api.get(f"{path}/scale")).body == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: about[key] for key in shown},
        "spec": {"replicas": 2},
        "status": {"replicas": 0, "selector": "app=x,!gone,tier in (back,front)"},
    }


async def test_the_replicas_of_the_status_are_those_of_the_workload(api: ClusterClient, workload: str) -> None:
    await api.merge(f"{workload}/status", {"status": {"replicas": 1}})
    assert (await api.get(f"{workload}/scale")).body["status"]["replicas"] == 1


async def test_a_replaced_scale_changes_the_replicas_and_nothing_else(api: ClusterClient, workload: str) -> None:
    before = (await api.get(workload)).body
    scale = (await api.get(f"{workload}/scale")).body
    labelled = {**scale["metadata"], "labels": {"a": "b"}}
    written = await api.replace(
        f"{workload}/scale", {**scale, "metadata": labelled, "spec": {"replicas": 3}, "status": {"replicas": 9}}
    )
    assert written.code == 200
    assert written.body == {
        **scale,
        "metadata": {**scale["metadata"], "resourceVersion": written.version},
        "spec": {"replicas": 3},
    }
    after = (await api.get(workload)).body
    assert after["spec"] == {**before["spec"], "replicas": 3}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert after["metadata"]["resourceVersion"] == written.version
    assert "labels" not in after["metadata"]
    late = await api.replace(f"{workload}/scale", scale)
    assert (late.code, late.reason) == (409, "Conflict")
    assert late.body["details"] == {"name": "w", "group": "apps", "kind": "deployments"}


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        (MERGE, {"spec": {"replicas": 5}}),
        (STRATEGIC, {"spec": {"replicas": 5}}),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 5}]),
    ],
)
async def test_a_scale_is_patched(api: ClusterClient, workload: str, content_type: str, patch: Any) -> None:
    patched = await api.ask("PATCH", f"{workload}/scale", patch, content_type=content_type)
    assert (patched.code, patched.body["kind"], patched.body["spec"]) == (200, "Scale", {"replicas": 5})
    assert (await api.get(workload)).body["spec"]["replicas"] == 5


async def test_who_scales_owns_the_replicas(api: ClusterClient, workload: str) -> None:
    await api.merge(f"{workload}/scale", {"spec": {"replicas": 5}}, fieldManager="scaler")
    entries = (await api.get(workload)).metadata["managedFields"]
    (entry,) = [entry for entry in entries if entry["manager"] == "scaler"]
    assert (entry["operation"], entry["apiVersion"], entry["subresource"]) == ("Update", "apps/v1", "scale")
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    # A scale of none says nothing, so nobody owns it.
    await api.merge(f"{workload}/scale", {"spec": {"replicas": 0}}, fieldManager="scaler")
    found = await api.get(workload)
    assert found.body["spec"]["replicas"] == 0
    assert "scaler" not in {entry["manager"] for entry in found.metadata["managedFields"]}
    assert (await api.get(f"{workload}/scale")).body["spec"] == {}
    # What nobody owns passes to nobody.
    await api.merge(f"{workload}/scale", {"spec": {"replicas": 4}}, fieldManager="scaler")
    found = await api.get(workload)
    assert found.body["spec"]["replicas"] == 4
    assert "scaler" not in {entry["manager"] for entry in found.metadata["managedFields"]}


async def test_a_scale_is_applied(api: ClusterClient, workload: str) -> None:
    await api.merge(f"{workload}/scale", {"spec": {"replicas": 5}}, fieldManager="scaler")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 7}}
    refused = await api.apply(f"{workload}/scale", scale, "applier")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.faults == {(".spec.replicas", "FieldManagerConflict")}
    applied = await api.apply(f"{workload}/scale", scale, "applier", force="true")
    assert (applied.code, applied.body["spec"]) == (200, {"replicas": 7})
    entries = (await api.get(workload)).metadata["managedFields"]
    (entry,) = [entry for entry in entries if entry["manager"] == "applier"]
    assert (entry["operation"], entry["apiVersion"], entry["subresource"]) == ("Apply", "apps/v1", "scale")


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"replicas": -1}}, 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"spec": {"replicas": "x"}}, 422, "patch: Invalid value"),
        ({"metadata": {"name": "other"}}, 400, "the name of the object (other) does not match the name on the URL (w)"),
        ({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, 409, "Precondition failed: UID in precond"),
        ({"metadata": {"resourceVersion": "1"}}, 409, "the object has been modified"),
    ],
    ids=str,
)
async def test_a_wrong_scale_is_refused(
    api: ClusterClient, workload: str, patch: Json, code: int, message: str
) -> None:
    refused = await api.merge(f"{workload}/scale", patch)
    assert refused.code == code
    assert message in refused.body["message"]
    assert (await api.get(workload)).body["spec"]["replicas"] == 2


async def test_a_scale_without_a_name_or_of_another_kind_is_a_bad_request(api: ClusterClient, workload: str) -> None:
    for body in ({"spec": {"replicas": 1}}, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}}):
        refused = await api.replace(f"{workload}/scale", body)
        assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_a_scale_is_neither_created_nor_deleted(api: ClusterClient, workload: str) -> None:
    assert (await api.create(f"{workload}/scale", {})).code == 405
    assert (await api.delete(f"{workload}/scale")).code == 405
    absent = await api.merge(f"{workload}x/scale", {"spec": {"replicas": 1}})
    assert (absent.code, absent.body["details"]) == (404, {"name": "wx", "group": "apps", "kind": "deployments"})


async def test_a_scale_has_columns_of_its_own(api: ClusterClient, workload: str) -> None:
    table = (await api.get(f"{workload}/scale", accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["w", 2, 0]


async def test_scales_are_listed_with_the_resources(api: ClusterClient, webs: Webs) -> None:
    listed = (await api.get("/apis/apps/v1")).body["resources"]
    (entry,) = [each for each in listed if each["name"] == "deployments/scale"]
    assert {**entry, "verbs": sorted(entry["verbs"])} == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    # Daemon sets have none, nor have custom resources that ask for none.
    assert not [each for each in listed if each["name"] == "daemonsets/scale"]
    await webs.create("a")
    assert (await api.get(f"{webs.at('a')}/scale")).code == 404


async def test_a_custom_resource_is_scaled_where_its_definition_says(api: ClusterClient, namespace: str) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    paths = {
        "specReplicasPath": ".spec.nested.y",
        "statusReplicasPath": ".status.count",
        "labelSelectorPath": ".status.selector",
    }
    await define(api, definition(group, "rocks", "Rock", subresources={"status": {}, "scale": paths}))
    path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one"}}
    await api.create(path, rock)
    unknown = await api.get(f"{path}/a/scale")
    assert (unknown.code, unknown.reason) == (500, "InternalError")
    why = 'the spec replicas field ".spec.nested.y" does not exist'
    assert unknown.body["details"] == {"causes": [{"message": why}]}
    assert unknown.body["message"] == f"Internal error occurred: {why}"

    await api.merge(f"{path}/a", {"spec": {"nested": {"y": 1}}})
    await api.merge(f"{path}/a/status", {"status": {"count": 1, "selector": "app=x"}})
    patched = await api.merge(f"{path}/a/scale", {"spec": {"replicas": 3}}, fieldManager="scaler")
    assert (patched.code, patched.body["spec"]) == (200, {"replicas": 3})
    assert patched.body["status"] == {"replicas": 1, "selector": "app=x"}
    found = await api.get(f"{path}/a")
    assert (found.body["spec"]["nested"], found.metadata["generation"]) == ({"y": 3}, 3)
    assert (await api.get(f"{path}/a/scale")).body == patched.body
    (entry,) = [entry for entry in found.metadata["managedFields"] if entry["manager"] == "scaler"]
    assert (entry["operation"], entry["apiVersion"], entry["subresource"]) == ("Update", f"{group}/v1", "scale")
    assert entry["fieldsV1"] == {"f:spec": {"f:nested": {"f:y": {}}}}

    written = await api.replace(f"{path}/a/scale", {**patched.body, "spec": {"replicas": 5}})
    assert (written.code, written.body["spec"]) == (200, {"replicas": 5})
    late = await api.replace(f"{path}/a/scale", patched.body)
    assert (late.code, late.body["details"]) == (409, {"name": "a", "group": group, "kind": "rocks"})
    for body, field in (
        ({"spec": {"replicas": -1}}, ".spec.nested.y"),
        ({"spec": {"replicas": "x"}}, "patch"),
    ):
        refused = await api.merge(f"{path}/a/scale", body)
        assert (refused.code, refused.faults) == (422, {(field, "FieldValueInvalid")})
    large = await api.merge(f"{path}/a", {"spec": {"nested": {"y": 2**31}}})
    assert (large.code, large.faults) == (422, {(".spec.nested.y", "FieldValueInvalid")})
    strategic = await api.patch(f"{path}/a/scale", {"spec": {"replicas": 1}})
    assert (strategic.code, strategic.reason) == (415, "UnsupportedMediaType")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 7}}
    applied = await api.apply(f"{path}/a/scale", scale, force="true")
    assert (applied.code, applied.reason) == (500, "")
    assert applied.body["message"].endswith("request to convert CR to an invalid group/version: autoscaling/v1")
    listed = {each["name"]: each for each in (await api.get(f"/apis/{group}/v1")).body["resources"]}
    assert (listed["rocks/scale"]["group"], listed["rocks/scale"]["kind"]) == ("autoscaling", "Scale")
