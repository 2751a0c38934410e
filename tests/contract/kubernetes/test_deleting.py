"""DELETE: preconditions, finalizers, grace, collections. What controllers do afterwards is in test_garbage.py."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

OTHER = "11111111-1111-1111-1111-111111111111"
CONTAINERS = {"containers": [{"name": "c", "image": "x"}]}


async def test_a_deleted_object_is_gone(api: ClusterClient, config_maps: str, webs: Webs) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}})
    deleted = await api.delete(f"{config_maps}/a")
    assert deleted.code == 200
    assert deleted.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made.metadata["uid"]},
    }
    assert (await api.get(f"{config_maps}/a")).code == 404
    assert (await api.delete(f"{config_maps}/a")).code == 404
    await webs.create("a")
    assert (await api.delete(webs.at("a"))).body["details"]["group"] == "contract.example.com"


async def test_a_delete_holds_only_for_its_incarnation_and_version(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    for preconditions in ({"uid": OTHER}, {"resourceVersion": "1"}):
        refused = await api.delete(webs.at("a"), {"preconditions": preconditions})
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "does not match" in refused.body["message"]
        assert refused.body["details"] == {"name": "a", "group": "contract.example.com", "kind": "Web"}
    current = {"uid": made.metadata["uid"], "resourceVersion": made.version}
    assert (await api.delete(webs.at("a"), {"preconditions": current})).code == 200


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({"gracePeriodSeconds": "soon"}, {}),
        ({"gracePeriodSeconds": 1.5}, {}),
        ({"preconditions": "none"}, {}),
        ({"preconditions": {"uid": 7}}, {}),
        ({"propagationPolicy": 1}, {}),
        ([], {}),
        (None, {"gracePeriodSeconds": "soon"}),
    ],
)
async def test_a_delete_with_options_of_other_types_is_refused(
    api: ClusterClient, config_maps: str, options: Any, query: dict[str, str]
) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.delete(f"{config_maps}/a", options, **query)
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert (await api.get(f"{config_maps}/a")).code == 200


async def test_a_dry_run_deletes_nothing(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    tried = await api.delete(f"{config_maps}/a", dryRun="All")
    assert tried.body["status"] == "Success"
    assert (await api.get(f"{config_maps}/a")).code == 200


async def test_finalizers_hold_a_deleted_object_until_the_last_is_removed(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a", finalizers=["example.com/one", "example.com/two"])
    marked = await api.delete(webs.at("a"))
    assert marked.code == 200
    assert marked.body["kind"] == "Web"
    assert marked.metadata["deletionTimestamp"]
    assert marked.metadata["deletionGracePeriodSeconds"] == 0
    assert marked.metadata["generation"] == made.metadata["generation"] + 1
    assert int(marked.version) > int(made.version)
    again = await api.delete(webs.at("a"))
    assert again.body == marked.body
    one = await api.merge(webs.at("a"), {"metadata": {"finalizers": ["example.com/two"]}})
    assert one.metadata["finalizers"] == ["example.com/two"]
    assert one.metadata["deletionTimestamp"] == marked.metadata["deletionTimestamp"]
    last = await api.merge(webs.at("a"), {"metadata": {"finalizers": None}})
    assert last.code == 200
    assert "finalizers" not in last.metadata
    assert (await api.get(webs.at("a"))).code == 404


async def test_a_marked_object_can_be_changed_but_takes_no_new_finalizers(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a", finalizers=["example.com/one"])
    await api.delete(webs.at("a"))
    changed = await api.merge(webs.at("a"), {"spec": {"image": "two"}})
    assert changed.body["spec"]["image"] == "two"
    assert "deletionTimestamp" in changed.metadata
    both = {"metadata": {"finalizers": ["example.com/one", "example.com/two"]}}
    refused = await api.merge(webs.at("a"), both)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("metadata.finalizers", "FieldValueForbidden")}
    assert "deletionTimestamp" in (await api.merge(webs.at("a"), {"metadata": {"deletionTimestamp": None}})).metadata


async def test_removing_finalizers_of_an_object_that_is_not_deleted_keeps_it(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a", finalizers=["example.com/one"])
    await api.merge(webs.at("a"), {"metadata": {"finalizers": None}})
    assert (await api.get(webs.at("a"))).code == 200


async def test_a_pod_without_a_node_goes_at_once_and_is_answered_whole(api: ClusterClient, pods: str) -> None:
    await api.create(pods, {"metadata": {"name": "a"}, "spec": CONTAINERS})
    deleted = await api.delete(f"{pods}/a")
    assert deleted.body["kind"] == "Pod"
    assert deleted.metadata["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{pods}/a")).code == 404


async def test_a_pod_on_a_node_is_given_time_and_the_time_can_be_shortened(api: ClusterClient, pods: str) -> None:
    await api.create(pods, {"metadata": {"name": "a"}, "spec": {**CONTAINERS, "nodeName": "somewhere"}})
    marked = await api.delete(f"{pods}/a")
    assert marked.metadata["deletionGracePeriodSeconds"] == 30
    assert (await api.get(f"{pods}/a")).code == 200
    sooner = await api.delete(f"{pods}/a", gracePeriodSeconds="5")
    assert sooner.metadata["deletionGracePeriodSeconds"] == 5
    ends = [datetime.fromisoformat(each.metadata["deletionTimestamp"]) for each in (marked, sooner)]
    assert ends[0] - ends[1] == timedelta(seconds=25)
    assert (await api.delete(f"{pods}/a", gracePeriodSeconds="-3")).metadata["deletionGracePeriodSeconds"] == 1
    await api.delete(f"{pods}/a", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{pods}/a")).code == 404


async def test_a_collection_is_deleted_as_far_as_the_selectors_reach(api: ClusterClient, webs: Webs) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await webs.create(name, labels={"app": app})
    deleted = await api.delete(webs.path, labelSelector="app=x")
    assert deleted.code == 200
    assert deleted.body["kind"] == "WebList"
    assert deleted.names == ["a", "b"]
    assert (await api.get(webs.path)).names == ["c"]
    await api.delete(webs.path)
    assert (await api.get(webs.path)).names == []


async def test_dependents_of_a_deleted_owner_are_not_waited_for(api: ClusterClient, webs: Webs) -> None:
    await webs.create("a")
    for options, query in (({"propagationPolicy": "Background"}, {}), (None, {"propagationPolicy": "Background"})):
        await webs.create("b")
        assert (await api.delete(webs.at("b"), options, **query)).code == 200
        assert (await api.get(webs.at("b"))).code == 404


async def test_other_policies_hold_the_owner_by_finalizers(api: ClusterClient, webs: Webs) -> None:
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        await webs.create(name)
        marked = await api.delete(webs.at(name), propagationPolicy=policy)
        assert marked.metadata["finalizers"] == [finalizer]
        assert "deletionTimestamp" in marked.metadata


async def test_an_unknown_policy_is_refused(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.delete(f"{config_maps}/a", propagationPolicy="Sideways")
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("propagationPolicy", "FieldValueNotSupported")}
