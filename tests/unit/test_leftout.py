"""What handlers make of an object that is too large for the log."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from levelog import Level, Manifest, Operator, Resource
from levelog.handlers.children import ChildIndex, ChildrenView
from levelog.resources import Metadata
from levelog_base.errors import ObjectTooLarge
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.records import only_metadata
from levelog_processors.fold.entries import index_entries
from levelog_processors.guard import parent_inputs
from levelog_processors.program import Program
from levelog_store.rows import ERRORS, Bucket, IndexKey, WholeIndex
from rigs.evaluating import evaluation_of
from rigs.webs import NOON


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ConfigMap(Resource, version="v1", plural="configmaps"):
    data: dict[str, str] = msgspec.field(default_factory=dict[str, str])


op = Operator("webs")


@op.index(labels={"app": "web"})
def sizes(config: ConfigMap) -> Iterator[tuple[str, int]]:
    yield config.metadata.name, len(config.data)


@op.view
def fields(web: Web) -> Level[int]:
    return Level(desired=0, actual=len(web.spec))


@op.children(Web, of=ConfigMap)
def stack(web: Web) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "y"}}


PROGRAM = Program([op])
SAYS = r"default/large has \d+ bytes, which is more than the log takes; only its metadata are recorded \(a limit\)"


class Nothing:
    def bucket(self, place: IndexKey) -> Bucket:
        return Bucket(-1)

    def whole(self, index: str) -> WholeIndex:
        return WholeIndex({}, {})


def body(**fields: Any) -> bytes:
    metadata = {"name": "large", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": {"app": "web"}}
    metadata |= fields.pop("metadata", {})
    return msgspec.json.encode({"metadata": metadata, **fields})


LARGE = only_metadata(body(data={"x": "y" * 1000}), "a limit")


def test_a_level_of_a_parent_that_is_too_large_fails_and_names_it_until_it_is_smaller() -> None:
    view = PROGRAM.views["webs/fields"]
    evaluation = evaluation_of(view, LARGE, Nothing())
    evaluation.call()
    assert evaluation.result.level is None
    with pytest.raises(ObjectTooLarge, match=SAYS):
        view.handler.reader.read(LARGE)
    assert "default/large has" in evaluation.result.error
    assert parent_inputs(view, LARGE, None) != parent_inputs(view, body(spec={"a": 1}), None)


def test_an_index_leaves_it_out_by_error_so_that_its_readers_are_blocked() -> None:
    [entry] = index_entries(PROGRAM.indices["webs/sizes"], LARGE, (), "configmaps/default/large", NOON)
    assert entry.key == ERRORS
    assert "default/large has" in entry.error


def test_a_filter_that_leaves_it_out_needs_no_more_than_its_labels() -> None:
    other = only_metadata(body(metadata={"labels": {"app": "other"}}, data={"x": "y" * 1000}), "a limit")
    assert index_entries(PROGRAM.indices["webs/sizes"], other, (), "configmaps/default/large", NOON) == []


def test_only_the_parent_of_a_child_that_is_too_large_has_to_wait() -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Web", "name": "shop", "uid": "uid-shop", "controller": True}
    large = only_metadata(body(metadata={"ownerReferences": [owner]}, data={"x": "y" * 1000}), "a limit")
    found = dict(ChildIndex(Web, ConfigMap).entries(large))
    metadata = Metadata(name="shop", uid="uid-shop", namespace="default")  # type: ignore[arg-type]
    parent = Web(metadata=metadata)
    assert found.keys() == {("default", "large"), parent.as_owner}
    view = op.views["stack"]
    assert isinstance(view, ChildrenView)
    nothing = dict.fromkeys([parameter.name for parameter in view.indices], _Lookup({}))
    children = next(name for name in nothing if "children/" in name)
    with pytest.raises(ObjectTooLarge, match=SAYS):
        view.level(parent, [], {**nothing, children: _Lookup({parent.as_owner: (found[parent.as_owner],)})}, Redactor())
    assert not view.level(parent, [], nothing, Redactor()).drift


class _Lookup(dict[Any, Any]):
    def __missing__(self, key: Any) -> tuple[()]:
        return ()
