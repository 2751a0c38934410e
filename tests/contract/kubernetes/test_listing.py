"""Lists: order, pages, selectors, and the revision that they show."""

import pytest
import pytest_asyncio

from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

LABELS: dict[str, dict[str, str]] = {
    "a": {"app": "x", "n": "1"},
    "b": {"app": "y", "n": "2"},
    "c": {"app": "x"},
    "d": {},
    "e": {"app": "z"},
}
PODS_OF_NOBODY = "spec.nodeName=,status.phase=Pending"


@pytest_asyncio.fixture
async def secrets(api: ClusterClient, namespace: str) -> str:
    """The path of five labelled secrets: of config maps, controllers may add one of their own."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, labels in LABELS.items():
        await api.create(path, {"metadata": {"name": name, "labels": labels}})
    return path


async def test_a_list_is_in_the_order_of_names_and_at_one_version(api: ClusterClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name in ("b", "a-1", "a", "a.b", "c"):
        last = await api.create(path, {"metadata": {"name": name}})
    listed = await api.get(path)
    assert listed.body["kind"] == "SecretList"
    assert listed.body["apiVersion"] == "v1"
    assert listed.names == ["a", "a-1", "a.b", "b", "c"]
    assert int(listed.version) >= int(last.version)


async def test_items_of_core_kinds_carry_no_kind_and_custom_ones_do(
    api: ClusterClient, secrets: str, webs: Webs
) -> None:
    assert all({"kind", "apiVersion"}.isdisjoint(item) for item in (await api.get(secrets)).body["items"])
    await webs.create("a")
    (item,) = (await api.get(webs.path)).body["items"]
    assert (item["kind"], item["apiVersion"]) == ("Web", "contract.example.com/v1")


async def test_a_list_across_namespaces_is_in_the_order_of_keys(api: ClusterClient, namespace: str) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": f"{namespace}-more"}})
    for home in (namespace, f"{namespace}-more"):
        for name in ("b", "a"):
            secret = {"metadata": {"name": name, "labels": {"of": namespace}}}
            await api.create(f"/api/v1/namespaces/{home}/secrets", secret)
    expected = [f"{home}/{name}" for home in (f"{namespace}-more", namespace) for name in "ab"]
    everything = await api.get("/api/v1/secrets", labelSelector=f"of={namespace}")
    keys = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in everything.body["items"]]
    assert keys == expected
    paged: list[str] = []
    query = {"limit": "1", "labelSelector": f"of={namespace}"}
    token = {"continue": ""}
    while not paged or token["continue"]:
        page = await api.get("/api/v1/secrets", **query, **token)
        paged += [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in page.body["items"]]
        token = {"continue": page.metadata.get("continue", "")}
    assert paged == expected


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", "ac"),
        ("app==x", "ac"),
        ("app!=x", "bde"),
        ("app", "abce"),
        ("!app", "d"),
        ("app in (x,y)", "abc"),
        ("app in (x, z)", "ace"),
        ("app notin (x,y)", "de"),
        ("app in (x),n", "a"),
        ("app=x,n!=1", "c"),
        ("n>1", "b"),
        ("n<2", "a"),
        ("app=", ""),
        ("", "abcde"),
    ],
)
async def test_labels_select(api: ClusterClient, secrets: str, selector: str, names: str) -> None:
    assert (await api.get(secrets, labelSelector=selector)).names == list(names)


@pytest.mark.parametrize(
    "selector",
    [
        "a b",
        "=x",
        "app=x=y",
        "app in (x",
        "app=x,",
        ",",
        "App/",
        "app in x",
        "a=-b",
        "a!=-b",
        "a in (b,-c)",
        f"a={'b' * 64}",
    ],
)
async def test_a_malformed_label_selector_is_a_bad_request(api: ClusterClient, secrets: str, selector: str) -> None:
    refused = await api.get(secrets, labelSelector=selector)
    assert (refused.code, refused.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name==a", "a"),
        ("metadata.name!=a", "bcde"),
        ("metadata.name=a,metadata.name!=b", "a"),
        ("metadata.name=a,metadata.namespace=elsewhere", ""),
        ("type=Opaque", "abcde"),
        ("type=other", ""),
    ],
)
async def test_fields_select(api: ClusterClient, secrets: str, selector: str, names: str) -> None:
    assert (await api.get(secrets, fieldSelector=selector)).names == list(names)


@pytest.mark.parametrize("selector", ["data.x=1", "metadata.labels.app=x", "metadata.name", "bogus"])
async def test_fields_that_are_not_selectable_are_refused(api: ClusterClient, secrets: str, selector: str) -> None:
    refused = await api.get(secrets, fieldSelector=selector)
    assert (refused.code, refused.reason) == (400, "BadRequest")


async def test_pods_are_selected_by_node_and_phase(api: ClusterClient, pods: str) -> None:
    containers = [{"name": "c", "image": "x"}]
    await api.create(pods, {"metadata": {"name": "free"}, "spec": {"containers": containers}})
    await api.create(pods, {"metadata": {"name": "bound"}, "spec": {"containers": containers, "nodeName": "n"}})
    assert (await api.get(pods, fieldSelector=PODS_OF_NOBODY)).names == ["free"]
    assert (await api.get(pods, fieldSelector="spec.nodeName=n")).names == ["bound"]
    assert (await api.get(pods, fieldSelector="spec.bogus=n")).code == 400


async def test_a_long_list_comes_in_pages_of_one_version(api: ClusterClient, secrets: str) -> None:
    first = await api.get(secrets, limit="2")
    assert first.names == ["a", "b"]
    assert first.metadata["remainingItemCount"] == 3
    # What happens between the pages is not in them.
    await api.create(secrets, {"metadata": {"name": "bb"}})
    await api.delete(f"{secrets}/c")
    await api.merge(f"{secrets}/d", {"metadata": {"labels": {"late": "yes"}}})
    second = await api.get(secrets, limit="2", **{"continue": first.metadata["continue"]})
    assert second.names == ["c", "d"]
    assert "late" not in second.body["items"][1]["metadata"].get("labels", {})
    assert second.version == first.version
    third = await api.get(secrets, limit="2", **{"continue": second.metadata["continue"]})
    assert third.names == ["e"]
    assert not third.metadata.get("continue")
    assert (await api.get(secrets)).names == ["a", "b", "bb", "d", "e"]


async def test_pages_keep_to_the_selector_and_then_count_no_rest(api: ClusterClient, secrets: str) -> None:
    first = await api.get(secrets, limit="1", labelSelector="app=x")
    assert first.names == ["a"]
    assert "remainingItemCount" not in first.metadata
    token = {"continue": first.metadata["continue"]}
    assert (await api.get(secrets, limit="1", labelSelector="app=x", **token)).names == ["c"]


async def test_a_list_can_be_asked_for_as_of_an_earlier_version(api: ClusterClient, secrets: str) -> None:
    then = (await api.get(secrets)).version
    await api.delete(f"{secrets}/a")
    assert (await api.get(secrets, resourceVersion=then, resourceVersionMatch="Exact")).names == list("abcde")
    assert (await api.get(secrets, resourceVersion=then, resourceVersionMatch="NotOlderThan")).names == list("bcde")


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ({"resourceVersionMatch": "Exact"}, 422, "resourceVersionMatch"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422, "resourceVersionMatch"),
        ({"resourceVersion": "1", "resourceVersionMatch": "Odd"}, 422, "resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents"),
        ({"resourceVersion": "abc"}, 400, ""),
        ({"limit": "abc"}, 400, ""),
        ({"continue": "garbage"}, 400, ""),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
async def test_parameters_that_make_no_sense_are_refused(
    api: ClusterClient, secrets: str, query: dict[str, str], code: int, field: str
) -> None:
    refused = await api.get(secrets, **query)
    assert refused.code == code
    assert {name for name, _ in refused.faults} == ({field} if field else set())


async def test_a_version_that_is_still_to_come_times_out(api: ClusterClient, secrets: str) -> None:
    far = str(int((await api.get(secrets)).version) + 1_000_000)
    refused = await api.get(secrets, resourceVersion=far)
    assert (refused.code, refused.reason) == (504, "Timeout")
    assert refused.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("version", ["x", "-1", "+1", "1_0"])
async def test_a_version_that_is_no_number_is_refused(api: ClusterClient, secrets: str, version: str) -> None:
    listed = await api.get(secrets, resourceVersion=version)
    found = await api.get(f"{secrets}/a", resourceVersion=version)
    watched = await api.get(secrets, resourceVersion=version, watch="1")
    why = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
    assert (listed.code, listed.body["message"]) == (400, f"invalid resource version: {why}")
    assert [(each.code, each.body["message"]) for each in (found, watched)] == [(500, why), (500, why)]
    assert (await api.get(secrets, limit="1_0")).code == 400
