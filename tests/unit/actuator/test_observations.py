from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_actuator.observations import UNREADABLE, Observation, holds
from levelog_base.wire.projection import merge
from rigs.orders import PARENT_UID, manifest, observation, order

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=1), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["spec", "status", "data"]), json_values)


@given(objects, objects)
def test_an_object_holds_a_patch_once_it_was_merged(body: dict[str, Any], patch: dict[str, Any]) -> None:
    found = observation(**merge(body, patch))
    assert holds(order("patch", body=patch), found)
    assert holds(order("patch_status", body=patch), found)


@given(objects, objects)
def test_an_object_holds_a_patch_only_if_merging_changes_nothing(body: dict[str, Any], patch: dict[str, Any]) -> None:
    found = observation(**body)
    assert holds(order("patch", body=patch), found) == (merge(dict(found.body), patch) == found.body)


def test_of_a_json_patch_it_cannot_be_told() -> None:
    test = [{"op": "test", "path": "/metadata/name", "value": "a"}]
    assert not holds(order("patch", body=test, options={"patch_type": "json"}), observation())


def test_a_deletion_is_held_once_it_was_accepted() -> None:
    assert not holds(order("delete"), observation())
    assert holds(order("delete"), observation(is_deleting=True))


def applied(fields: Any, *, manager: str = "levelog-webs", operation: str = "Apply", **more: Any) -> Any:
    entry = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}
    return {"managedFields": [{"manager": "other", "operation": "Update", "fieldsV1": {"f:x": {}}}, entry]}


def web(**spec: Any) -> Any:
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a"}, "spec": spec}


# As kube-apiserver 1.36 wrote them: a pod with keyed lists, a set, an atomic list, empty values and an owner.
POD_FIELDS = {
    "f:metadata": {
        "f:annotations": {},
        "f:finalizers": {'v:"x.io/y"': {}},
        "f:labels": {"f:a": {}},
        "f:ownerReferences": {'k:{"uid":"u-1"}': {}},
    },
    "f:spec": {
        "f:containers": {
            'k:{"name":"c"}': {
                ".": {},
                "f:command": {},
                "f:image": {},
                "f:name": {},
                "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                "f:securityContext": {},
            }
        },
        "f:nodeSelector": {},
    },
}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1", "controller": True}


def pod(image: str = "i", **container: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "labels": {"a": "b"},
            "annotations": {},
            "finalizers": ["x.io/y"],
            "ownerReferences": [OWNER],
        },
        "spec": {
            "nodeSelector": {},
            "containers": [
                {
                    "name": "c",
                    "image": image,
                    "command": ["x", "y"],
                    "env": [],
                    "ports": [{"containerPort": 80}],
                    "securityContext": {},
                    **container,
                }
            ],
        },
    }


def live_pod(image: str = "i") -> Any:
    """As the server completes it, with a container that somebody else added."""
    containers = [
        {"name": "theirs", "image": "z"},
        {
            "name": "c",
            "image": image,
            "command": ["x", "y"],
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "securityContext": {},
            "terminationMessagePath": "/dev/termination-log",
        },
    ]
    metadata = {"labels": {"a": "b", "theirs": "z"}, "finalizers": ["x.io/y"], **applied(POD_FIELDS)}
    return observation(
        controller="", metadata={**metadata, "ownerReferences": [OWNER]}, spec={"containers": containers}
    )


def test_an_object_holds_a_manifest_if_the_operator_owns_its_fields_and_they_have_its_values() -> None:
    assert holds(order("apply", body=pod()), live_pod())


@pytest.mark.parametrize(
    "wanted",
    [
        pod(image="other"),
        pod(command=["x"]),
        pod(ports=[{"containerPort": 81}]),
        pod(workingDir="/"),
        pod(securityContext={"runAsNonRoot": True}),
    ],
)
def test_an_object_does_not_hold_a_manifest_with_another_value_or_a_field_more(wanted: Any) -> None:
    assert not holds(order("apply", body=wanted), live_pod())


def test_an_object_does_not_hold_a_manifest_that_leaves_out_what_the_operator_owns() -> None:
    """Sent again, it would remove that field."""
    fields: Any = {"f:spec": {"f:image": {}, "f:old": {}}}
    found = observation(metadata=applied(fields), spec={"image": "a", "old": "b"})
    assert not holds(order("apply", body=web(image="a")), found)
    assert holds(order("apply", body=web(image="a", old="b")), found)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        applied({"f:spec": {"f:image": {}}}, manager="levelog-other"),
        applied({"f:spec": {"f:image": {}}}, operation="Update"),
        applied({"f:spec": {"f:image": {}}}, subresource="status"),
    ],
)
def test_values_that_the_operator_did_not_apply_are_not_its_own(metadata: Any) -> None:
    found = observation(metadata=metadata, spec={"image": "a"})
    assert not holds(order("apply", body=web(image="a")), found)


def test_the_controller_of_a_manifest_is_the_owner_that_says_so() -> None:
    assert order("apply").controller == PARENT_UID
    shared = manifest()
    shared["metadata"]["ownerReferences"][0]["controller"] = False
    assert order("apply", body=shared).controller == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"metadata": 1}',
        b'{"metadata": {"resourceVersion": "new"}}',
        b'{"metadata": {"resourceVersion": 1}}',
        b'{"metadata": {"ownerReferences": 1}}',
        b'{"metadata": {"ownerReferences": [1]}}',
        b'{"spec": %b1%b}' % (b'{"a":' * 5_000, b"}" * 5_000),
    ],
)
def test_an_answer_that_is_no_object_raises_what_is_unreadable(body: bytes) -> None:
    with pytest.raises(UNREADABLE):
        Observation.read(body)
