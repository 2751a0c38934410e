"""What controllers do after a delete: kube-controller-manager in a cluster, the sandbox by itself."""

import secrets
from typing import Any

import pytest
import pytest_asyncio

from rigs.clusterclient import ClusterClient
from rigs.customresources import DEFINITIONS, Webs, define, definition, webs_of
from rigs.fixtures import KUBE_APISERVER, SANDBOX
from rigs.waiting import until

from .conftest import new_namespace

SECONDS = 60.0
NOBODY = {"apiVersion": "v1", "kind": "Secret", "name": "nobody", "uid": "33333333-3333-3333-3333-333333333333"}
"""An owner that never was."""
NOWHERE = {**NOBODY, "kind": "Namespace"}
"""Nor was this one, which would be in no namespace."""
QUICK_ON_SANDBOX = pytest.mark.parametrize(
    "controlled_server",
    [SANDBOX, pytest.param(KUBE_APISERVER, marks=pytest.mark.long)],
    indirect=True,
    scope="module",
)
"""A real namespace takes 5 s for each round."""


@pytest_asyncio.fixture
async def namespace(controlled: ClusterClient) -> str:
    return await new_namespace(controlled)


@pytest_asyncio.fixture
async def owners(controlled: ClusterClient, namespace: str) -> Webs:
    return await webs_of(controlled, namespace)


@pytest_asyncio.fixture
async def dependents(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def reference(owner: dict[str, Any], **more: bool) -> dict[str, Any]:
    metadata = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
    return {**named, "uid": metadata["uid"], **more}


async def owned(api: ClusterClient, path: str, name: str, *owners: dict[str, Any]) -> None:
    answer = await api.create(path, {"metadata": {"name": name, "ownerReferences": list(owners)}})
    assert answer.code == 201, answer.body


async def gone(api: ClusterClient, path: str) -> None:
    await until(lambda: api.get(path), f"{path} gone", accept=lambda found: found.code == 404, seconds=SECONDS)


async def seen_by_collector(api: ClusterClient, path: str) -> None:
    """Wait until the collector knows the dependents that are there: what comes last of a resource, it sees last."""
    await owned(api, path, "bait", NOBODY)
    await gone(api, f"{path}/bait")


async def test_dependents_go_with_their_owner(controlled: ClusterClient, owners: Webs, dependents: str) -> None:
    owner = (await owners.create("a")).body
    await owned(controlled, dependents, "child", reference(owner))
    await owned(controlled, dependents, "free")
    child = (await controlled.get(f"{dependents}/child")).body
    grandchild = reference({**child, "apiVersion": "v1", "kind": "Secret"})
    await owned(controlled, dependents, "grandchild", grandchild)
    await controlled.delete(owners.at("a"))
    await gone(controlled, f"{dependents}/child")
    await gone(controlled, f"{dependents}/grandchild")
    assert (await controlled.get(f"{dependents}/free")).code == 200


async def test_a_dependent_stays_while_one_owner_does(controlled: ClusterClient, owners: Webs, dependents: str) -> None:
    first, second = (await owners.create("a")).body, (await owners.create("b")).body
    await owned(controlled, dependents, "child", reference(first), reference(second))
    await owned(controlled, dependents, "witness", reference(first))
    await controlled.delete(owners.at("a"))
    await gone(controlled, f"{dependents}/witness")
    assert (await controlled.get(f"{dependents}/child")).code == 200
    await controlled.delete(owners.at("b"))
    await gone(controlled, f"{dependents}/child")


async def test_a_dependent_of_an_owner_that_never_was_goes(controlled: ClusterClient, dependents: str) -> None:
    await owned(controlled, dependents, "child", NOBODY)
    await gone(controlled, f"{dependents}/child")


async def test_dependents_of_an_owner_that_cannot_be_looked_up_stay(
    controlled: ClusterClient, dependents: str, namespace: str
) -> None:
    roles, wide = "/apis/rbac.authorization.k8s.io/v1/clusterroles", f"wide-{namespace}"
    await owned(controlled, dependents, "child", {**NOBODY, "apiVersion": "example.com/v1", "kind": "Unserved"})
    await owned(controlled, roles, wide, NOBODY)
    await seen_by_collector(controlled, dependents)
    await owned(controlled, roles, f"{wide}-bait", NOWHERE)
    await gone(controlled, f"{roles}/{wide}-bait")
    assert (await controlled.get(f"{dependents}/child")).code == 200
    assert (await controlled.get(f"{roles}/{wide}")).code == 200


async def test_what_may_not_be_deleted_holds_up_nothing_else(controlled: ClusterClient, dependents: str) -> None:
    kept = "/api/v1/namespaces/default"
    assert (await controlled.merge(kept, {"metadata": {"ownerReferences": [NOWHERE]}})).code == 200
    try:
        await seen_by_collector(controlled, dependents)
    finally:
        assert (await controlled.merge(kept, {"metadata": {"ownerReferences": None}})).code == 200


async def test_in_the_foreground_the_owner_waits_for_those_that_block_it(
    controlled: ClusterClient, owners: Webs, dependents: str
) -> None:
    owner = (await owners.create("a")).body
    held = {
        "name": "held",
        "finalizers": ["example.com/hold"],
        "ownerReferences": [reference(owner, blockOwnerDeletion=True)],
    }
    assert (await controlled.create(dependents, {"metadata": held})).code == 201
    await seen_by_collector(controlled, dependents)
    marked = await controlled.delete(owners.at("a"), propagationPolicy="Foreground")
    assert marked.metadata["finalizers"] == ["foregroundDeletion"]

    async def is_marked() -> bool:
        return "deletionTimestamp" in (await controlled.get(f"{dependents}/held")).metadata

    await until(is_marked, "the dependent marked", seconds=SECONDS)
    assert (await controlled.get(owners.at("a"))).code == 200
    await controlled.merge(f"{dependents}/held", {"metadata": {"finalizers": None}})
    await gone(controlled, owners.at("a"))
    await gone(controlled, f"{dependents}/held")


async def test_a_circle_of_owners_that_go_in_the_foreground_holds_up_nothing_else(
    controlled: ClusterClient, owners: Webs, dependents: str
) -> None:
    circle = {name: (await owners.create(name, labels={"in": "circle"})).body for name in "ab"}
    for name, owner in zip("ab", "ba", strict=True):
        block = reference(circle[owner], blockOwnerDeletion=True)
        await controlled.merge(owners.at(name), {"metadata": {"ownerReferences": [block]}})
    await controlled.delete(owners.path, labelSelector="in=circle", propagationPolicy="Foreground")
    other = (await owners.create("other")).body
    await owned(controlled, dependents, "of-other", reference(other))
    await controlled.delete(owners.at("other"))
    await gone(controlled, f"{dependents}/of-other")


async def test_orphans_stay_and_forget_their_owner(controlled: ClusterClient, owners: Webs, dependents: str) -> None:
    owner = (await owners.create("a")).body
    await owned(controlled, dependents, "child", reference(owner))
    await seen_by_collector(controlled, dependents)
    await controlled.delete(owners.at("a"), propagationPolicy="Orphan")
    await gone(controlled, owners.at("a"))
    child = await controlled.get(f"{dependents}/child")
    assert child.code == 200
    assert "ownerReferences" not in child.metadata


@QUICK_ON_SANDBOX
async def test_a_namespace_ends_with_all_that_is_in_it(
    controlled: ClusterClient, namespace: str, owners: Webs, dependents: str
) -> None:
    await owners.create("a")
    await owned(controlled, dependents, "b")
    await owners.create("held", finalizers=["example.com/hold"])
    await controlled.delete(f"/api/v1/namespaces/{namespace}")
    await gone(controlled, f"{dependents}/b")
    await gone(controlled, owners.at("a"))

    async def is_marked() -> bool:
        return "deletionTimestamp" in (await controlled.get(owners.at("held"))).metadata

    await until(is_marked, "the held object marked", seconds=SECONDS)
    assert (await controlled.get(f"/api/v1/namespaces/{namespace}")).body["status"]["phase"] == "Terminating"
    await controlled.merge(owners.at("held"), {"metadata": {"finalizers": None}})
    await gone(controlled, f"/api/v1/namespaces/{namespace}")


async def test_the_objects_of_a_definition_go_with_it_and_its_watches_end(
    controlled: ClusterClient, namespace: str
) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    await define(controlled, definition(group, "rocks", "Rock"))
    path = f"/apis/{group}/v1/namespaces/{namespace}/rocks"
    rock = {"apiVersion": f"{group}/v1", "kind": "Rock", "metadata": {"name": "a"}, "spec": {"image": "one"}}
    made = await controlled.create(path, rock)
    async with controlled.watch(path, resourceVersion=made.version) as events:
        await controlled.delete(f"{DEFINITIONS}/rocks.{group}")
        assert [event["type"] for event in await events.rest()] == ["DELETED"]
    await gone(controlled, f"{DEFINITIONS}/rocks.{group}")
    await gone(controlled, path)
