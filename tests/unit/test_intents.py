"""What is refused when an intent is made."""

from collections.abc import Callable
from typing import Any

import pytest

from levelog import Intent, Resource, Struct, apply, call, create, delete, event, patch, patch_status
from levelog.resources import Metadata


class ConfigMap(Resource, version="v1", plural="configmaps"):
    """Only its name and owner are read."""


class Status(Struct):
    ready_replicas: int = 0


def about(regarding: Any) -> Intent:
    return event("Ready", regarding=regarding)


FOUND = ConfigMap(metadata=Metadata(name="a"))


MAKERS: list[Callable[[dict[str, Any]], Intent]] = [
    lambda metadata: apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}),
    lambda metadata: create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}),
    lambda metadata: patch(ConfigMap, "a", {"metadata": metadata}),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_body_that_names_an_incarnation_or_a_version_is_refused(
    make: Callable[[dict[str, Any]], Intent], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"ConfigMap a: leave out metadata.{field}: .*if_unchanged"):
        make({field: "7", "labels": {}})
    make({"labels": {}})


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"apiVersion": "v1", "metadata": {"name": "a"}}, r"^apply: the manifest has no kind$"),
        ({"apiVersion": "v1", "kind": "A"}, r"has no metadata\.name; names are given, never generated$"),
    ],
)
def test_what_a_manifest_lacks_is_named(manifest: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply(manifest)


def test_a_namespace_of_null_is_that_of_the_parent_as_for_kubectl() -> None:
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": None}}
    assert apply(manifest).namespace == ""


def test_a_status_is_a_mapping_or_a_struct() -> None:
    assert patch_status(FOUND, Status(ready_replicas=2)).body == {"status": {"readyReplicas": 2}}
    assert patch_status(FOUND, {"readyReplicas": 2}).body == {"status": {"readyReplicas": 2}}


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (patch_status, [FOUND, 3], "patch_status: the status is a mapping or a Struct, not of type int"),
        (patch_status, [ConfigMap, {}], "patch_status: it takes an object .* not the class ConfigMap"),
        (patch_status, [{"metadata": {"name": "a"}}, {}], "patch_status: it takes an object .* not of type dict"),
        (patch, [FOUND, "a", {}], "patch: it takes a class .* not of type ConfigMap"),
        (patch, [Resource, "a", {}], "patch: it takes a class .* not the class Resource"),
        (patch, [ConfigMap, "a", "b"], "patch: the body is a mapping, or a list of JSON patch .* not of type str"),
        (patch, [ConfigMap, "a", 3], "patch: the body is a mapping, or a list of JSON patch .* not of type int"),
        (delete, ["pods", "a"], "delete: it takes an object .* not of type str"),
        (delete, [Status, "a"], "delete: it takes a class .* not the class Status"),
        (apply, [FOUND], "apply: a manifest is a mapping, not of type ConfigMap"),
        (apply, [{"metadata": "a"}], "apply: metadata of a manifest is a mapping, not of type str"),
        (call, ["page", {}], "call: it takes a function under @op.effect, not of type str"),
        (about, [{"name": "a"}], "event: it takes an object .* not of type dict"),
    ],
)
def test_what_is_no_target_or_content_is_refused_in_a_sentence(make: Any, given: list[Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(*given)


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800", "a\0b", "a\nb", "a/b", "x" * 501, "ü" * 251, 7, None])
def test_a_name_that_no_object_has_is_refused(name: Any) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name or [], "namespace": "a"}}
    makers: list[Callable[[], Intent]] = [
        lambda: patch(ConfigMap, name, {}),
        lambda: patch(ConfigMap, "a", {}, namespace="_" if name == "" else name),
        lambda: Intent(verb="delete", resource=ConfigMap, name=name),
        lambda: patch_status(ConfigMap(metadata=Metadata(name=name)), {}),
        lambda: apply(manifest),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="name"):
            make()
