import json
from datetime import timedelta
from typing import Any

import pytest

from levelog_actuator.requests import Order, Precondition, Request, write_request
from rigs.orders import BODIES, UID, VERSION, order, unseen

DEADLINE = timedelta(seconds=10)


def request(of: Order) -> Request:
    return write_request(of, of.first_guard, DEADLINE)


def body(of: Order) -> Any:
    return json.loads(request(of).body or b"null")


def test_apply_of_an_object_that_was_not_seen_makes_it_or_does_nothing() -> None:
    assert body(unseen("apply"))["metadata"] == {**BODIES["apply"]["metadata"], "resourceVersion": "1"}
    shared = {**BODIES["apply"], "metadata": {"name": "a"}}
    assert body(unseen("apply", body=shared)) == shared, "it gets no owner, and may be anybody's"


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
