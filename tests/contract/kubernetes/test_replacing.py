"""PUT: whole objects, and the versions that guard them."""

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs


async def test_a_replacement_needs_the_current_version(api: ClusterClient, config_maps: str) -> None:
    made = await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    replaced = await api.replace(f"{config_maps}/a", {**made.body, "data": {"x": "2"}})
    assert replaced.code == 200
    assert int(replaced.version) > int(made.version)
    late = await api.replace(f"{config_maps}/a", {**made.body, "data": {"x": "3"}})
    assert (late.code, late.reason) == (409, "Conflict")
    assert late.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert late.body["details"] == {"name": "a", "kind": "configmaps"}
    assert (await api.get(f"{config_maps}/a")).body["data"] == {"x": "2"}


async def test_a_core_kind_is_replaced_without_a_version_and_a_custom_one_is_not(
    api: ClusterClient, config_maps: str, webs: Webs
) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert (await api.replace(f"{config_maps}/a", {"metadata": {"name": "a"}})).code == 200
    await webs.create("a")
    refused = await api.replace(webs.at("a"), webs.manifest("a", {"image": "two"}))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.faults == {("metadata.resourceVersion", "FieldValueInvalid")}


async def test_a_replacement_that_changes_nothing_leaves_the_version(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a")
    same = await api.replace(webs.at("a"), made.body)
    assert same.code == 200
    assert same.body == made.body


async def test_fields_that_are_left_out_go_and_defaults_come_back(api: ClusterClient, webs: Webs) -> None:
    made = await webs.create("a", {"image": "one", "replicas": 3, "mode": "fast"}, labels={"k": "v"})
    bare = webs.manifest("a", {"image": "one"}, resourceVersion=made.version)
    replaced = await api.replace(webs.at("a"), bare)
    assert replaced.body["spec"] == {"image": "one", "replicas": 1}
    assert "labels" not in replaced.metadata
    assert replaced.metadata["uid"] == made.metadata["uid"]
    assert replaced.metadata["creationTimestamp"] == made.metadata["creationTimestamp"]


async def test_another_incarnation_is_not_replaced(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    other = {"metadata": {"name": "a", "uid": "11111111-1111-1111-1111-111111111111"}, "data": {"x": "1"}}
    refused = await api.replace(f"{config_maps}/a", other)
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert "UID in precondition: 11111111-1111-1111-1111-111111111111" in refused.body["message"]


async def test_the_name_must_be_that_of_the_url(api: ClusterClient, config_maps: str) -> None:
    await api.create(config_maps, {"metadata": {"name": "a"}})
    refused = await api.replace(f"{config_maps}/a", {"metadata": {"name": "b"}})
    assert (refused.code, refused.reason) == (400, "BadRequest")
    assert refused.body["message"] == "the name of the object (b) does not match the name on the URL (a)"


async def test_an_absent_object_is_not_replaced_except_kinds_that_are_created_so(
    api: ClusterClient, namespace: str, config_maps: str, webs: Webs
) -> None:
    assert (await api.replace(f"{config_maps}/a", {"metadata": {"name": "a"}})).code == 404
    absent = webs.manifest("a", {"image": "one"}, resourceVersion="1")
    assert (await api.replace(webs.at("a"), absent)).code == 404
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 5}}
    assert (await api.replace(f"{leases}/a", lease)).code == 201


async def test_a_lease_changes_hands_only_at_its_current_version(api: ClusterClient, namespace: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    lease = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 5}}
    held = await api.create(leases, lease)
    taken = {**held.body, "spec": {**held.body["spec"], "holderIdentity": "you"}}
    assert (await api.replace(f"{leases}/a", taken)).code == 200
    assert (await api.replace(f"{leases}/a", taken)).code == 409
    assert (await api.replace(f"{leases}/a", lease)).code == 422


async def test_owners_and_finalizers_are_the_writers_to_set(api: ClusterClient, config_maps: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "22222222-2222-2222-2222-222222222222"}
    made = await api.create(config_maps, {"metadata": {"name": "a"}})
    metadata = {**made.metadata, "ownerReferences": [owner], "finalizers": ["example.com/hold"]}
    replaced = await api.replace(f"{config_maps}/a", {**made.body, "metadata": metadata})
    assert replaced.metadata["ownerReferences"] == [owner]
    assert replaced.metadata["finalizers"] == ["example.com/hold"]
