"""Direct calls: changes by somebody who needs no HTTP."""

from typing import Any

import pytest

from levelog_sandbox import Sandbox, StatusError
from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

Json = dict[str, Any]
CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


async def test_what_a_user_does_is_seen_over_http_and_logged_under_the_user(
    sandbox: Sandbox, api: ClusterClient
) -> None:
    mark = sandbox.requests.last
    path = "/api/v1/namespaces/default/configmaps"
    made = sandbox.user.create(CONFIG_MAP)
    async with api.watch(path, resourceVersion=made["metadata"]["resourceVersion"]) as events:
        sandbox.user.patch("configmaps", "a", {"data": {"x": "2"}})
        sandbox.user.patch("configmaps", "a", [{"op": "add", "path": "/data/y", "value": "3"}])
        sandbox.user.apply({**CONFIG_MAP, "data": {"x": "4"}})
        sandbox.user.replace({**CONFIG_MAP, "data": {"x": "5"}})
        sandbox.acting_as("janitor").delete("configmaps", "a")
        seen = [await events.next() for _ in range(5)]
    assert [(event["type"], event["object"]["data"]) for event in seen] == [
        ("MODIFIED", {"x": "2"}),
        ("MODIFIED", {"x": "2", "y": "3"}),
        ("MODIFIED", {"x": "4", "y": "3"}),
        ("MODIFIED", {"x": "5"}),
        ("DELETED", {"x": "5"}),
    ]
    by_hand = [r for r in sandbox.requests.since(mark) if r.user_agent in {"user", "janitor"}]
    assert [(r.user_agent, r.verb, r.method, r.path) for r in by_hand] == [
        ("user", "create", "POST", path),
        ("user", "patch", "PATCH", f"{path}/a"),
        ("user", "patch", "PATCH", f"{path}/a"),
        ("user", "apply", "PATCH", f"{path}/a"),
        ("user", "update", "PUT", f"{path}/a"),
        ("janitor", "delete", "DELETE", f"{path}/a"),
    ]


async def test_a_user_reads_without_being_logged(sandbox: Sandbox, webs: Webs) -> None:
    await webs.create("a")
    mark = sandbox.requests.last
    assert sandbox.user.get("webs.contract.example.com", "a")["spec"]["image"] == "one"
    assert [web["metadata"]["name"] for web in sandbox.user.list("webs.contract.example.com")] == ["a"]
    assert sandbox.user.list("webs.contract.example.com", namespace="elsewhere") == []
    assert sandbox.requests.last == mark


async def test_the_rules_hold_for_users_too(sandbox: Sandbox, webs: Webs) -> None:
    made = await webs.create("a")
    with pytest.raises(StatusError, match="must be of type integer") as invalid:
        sandbox.user.patch("webs.contract.example.com", "a", {"spec": {"replicas": "many"}})
    assert invalid.value.code == 422
    with pytest.raises(StatusError, match="conflict with") as conflict:
        sandbox.user.apply(webs.manifest("a", {"image": "two"}), force=False)
    assert conflict.value.code == 409
    with pytest.raises(StatusError, match="does not match the UID"):
        sandbox.user.delete("webs.contract.example.com", "a", uid="11111111-1111-1111-1111-111111111111")
    with pytest.raises(StatusError, match=r"no matches for kind .Unknown. in version .example\.com/v1."):
        sandbox.user.create({"apiVersion": "example.com/v1", "kind": "Unknown", "metadata": {"name": "a"}})
    assert sandbox.user.get("webs.contract.example.com", "a") == made.body
