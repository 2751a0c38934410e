import json
from datetime import timedelta
from typing import Any

import pytest

from levelog_actuator.requests import Order, Precondition, Request, write_request
from rigs.orders import BODIES, UID, VERBS, VERSION, manifest, order, unseen

DEADLINE = timedelta(seconds=10)
PATH = "/apis/example.com/v1/namespaces/default/webs/a"
QUERY = {"timeout": "9s", "fieldManager": "levelog-webs"}


def request(of: Order) -> Request:
    return write_request(of, of.first_guard, DEADLINE)


def body(of: Order) -> Any:
    return json.loads(request(of).body or b"null")


def test_apply_carries_the_uid_of_the_object_that_was_seen() -> None:
    sent = request(order("apply"))
    assert (sent.method, sent.path, sent.query) == ("PATCH", PATH, QUERY)
    assert sent.content_type == "application/apply-patch+yaml"
    metadata = {**manifest()["metadata"], "uid": UID}
    assert body(order("apply")) == {**BODIES["apply"], "metadata": metadata}


def test_apply_of_an_object_that_was_not_seen_makes_it_or_does_nothing() -> None:
    assert body(unseen("apply"))["metadata"] == {**BODIES["apply"]["metadata"], "resourceVersion": "1"}
    shared = {**BODIES["apply"], "metadata": {"name": "a"}}
    assert body(unseen("apply", body=shared)) == shared, "it gets no owner, and may be anybody's"


def test_apply_is_forced_only_on_request() -> None:
    assert "force" not in request(order("apply")).query
    assert request(order("apply", options={"force": True})).query["force"] == "true"


def test_create_posts_the_manifest_as_it_is() -> None:
    sent = request(unseen("create"))
    assert (sent.method, sent.path, sent.query) == ("POST", PATH.removesuffix("/a"), QUERY)
    assert body(unseen("create")) == BODIES["create"]


def test_a_merge_patch_carries_the_uid() -> None:
    sent = request(order("patch"))
    assert (sent.method, sent.path, sent.query) == ("PATCH", PATH, QUERY)
    assert sent.content_type == "application/merge-patch+json"
    assert body(order("patch")) == {"spec": {"image": "a"}, "metadata": {"uid": UID}}
    labelled = order("patch", body={"metadata": {"labels": {"a": None}}})
    assert body(labelled) == {"metadata": {"labels": {"a": None}, "uid": UID}}


def test_a_json_patch_tests_uid_and_version_first() -> None:
    operations = [{"op": "remove", "path": "/spec/image"}]
    sent = order("patch", body=operations, options={"patch_type": "json"})
    assert request(sent).content_type == "application/json-patch+json"
    assert body(sent) == [
        {"op": "test", "path": "/metadata/uid", "value": UID},
        {"op": "test", "path": "/metadata/resourceVersion", "value": str(VERSION)},
        *operations,
    ]


IMAGE = {"op": "test", "path": "/spec/image", "value": "a"}
LIST = {"op": "test", "path": "/spec/list", "value": None}


@pytest.mark.parametrize(
    "operations",
    [
        [IMAGE, {"op": "replace", "path": "/spec/image", "value": "b"}],
        [IMAGE, LIST, {"op": "remove", "path": "/spec/image"}, {"op": "add", "path": "/spec/list/-", "value": 1}],
        [{**IMAGE, "path": "/spec"}, {"op": "add", "path": "/spec/image/deep", "value": "b"}],
    ],
)
def test_a_json_patch_that_tests_what_it_changes_is_for_any_version(operations: list[Any]) -> None:
    sent = order("patch", body=operations, options={"patch_type": "json"})
    assert sent.is_tested
    assert body(sent) == [{"op": "test", "path": "/metadata/uid", "value": UID}, *operations]


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [IMAGE],
        [{"op": "replace", "path": "/spec/image", "value": "b"}, IMAGE],
        [IMAGE, {"op": "replace", "path": "/spec/image2", "value": "b"}],
        [IMAGE, {"op": "replace", "path": "/spec", "value": {}}],
        [IMAGE, {"op": "move", "from": "/spec/list", "path": "/spec/image"}],
        [IMAGE, {"op": "remove", "path": "/spec/image"}, LIST, {"op": "add", "path": "/spec/list", "value": [1]}],
        [IMAGE, {"op": "remove"}],
        [IMAGE, "remove"],
        ["test"],
    ],
)
def test_any_other_json_patch_is_for_one_version(operations: list[Any]) -> None:
    sent = order("patch", body=operations, options={"patch_type": "json"})
    assert not sent.is_tested
    assert sent.first_guard == Precondition(uid=UID, version=VERSION)


def test_a_status_is_patched_for_the_version_that_was_seen() -> None:
    """For custom resources kube-apiserver does not look at the uid."""
    sent = request(order("patch_status"))
    assert (sent.path, sent.content_type) == (f"{PATH}/status", "application/merge-patch+json")
    assert body(order("patch_status")) == {
        "status": {"ready": 1},
        "metadata": {"uid": UID, "resourceVersion": str(VERSION)},
    }


def test_delete_has_preconditions() -> None:
    sent = request(order("delete", options={"propagation": "Foreground"}))
    assert (sent.method, sent.path, sent.query) == ("DELETE", PATH, {"timeout": "9s"})
    assert body(order("delete", options={"propagation": "Foreground"})) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": UID},
    }


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "create"])
def test_if_unchanged_requires_the_version_that_was_seen(verb: str) -> None:
    assert order(verb, options={"if_unchanged": True}).first_guard == Precondition(uid=UID, version=VERSION)
    assert str(VERSION) in (request(order(verb, options={"if_unchanged": True})).body or b"").decode()


@pytest.mark.parametrize(
    ("target", "api_version", "path"),
    [
        ("pods/default/p", "v1", "/api/v1/namespaces/default/pods/p"),
        ("deployments.apps/default/d", "apps/v1", "/apis/apps/v1/namespaces/default/deployments/d"),
        ("nodes/_/n", "v1", "/api/v1/nodes/n"),
        (
            "clusterroles.rbac.authorization.k8s.io/_/system:node",
            "rbac.authorization.k8s.io/v1",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
        ),
    ],
)
def test_a_path_has_group_version_namespace_and_name(target: str, api_version: str, path: str) -> None:
    assert order(target=target, api_version=api_version).path == path


def test_the_server_gives_up_before_the_client_does() -> None:
    of = order()
    assert write_request(of, of.first_guard, timedelta(seconds=5)).query["timeout"] == "4s"
    assert write_request(of, of.first_guard, timedelta(seconds=1)).query["timeout"] == "1s"
