from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from levelog import ABSENT, PRESENT, Index, Intent, Level, Operator
from levelog.selectors import Selector
from rigs.kinds import Pod
from rigs.typed import Web


def owners(pod: Pod) -> Iterator[tuple[str, str]]:
    yield "a", pod.metadata.name


def count(web: Web, owners: Index[str, str]) -> Level[int]:
    return Level(web.spec.replicas, len(owners[web.metadata.uid]))


def converge(web: Web, level: Level[int]) -> Iterator[Intent]:
    yield from ()


def test_decorators_return_the_function_itself() -> None:
    op = Operator("webs")
    assert op.index(owners) is owners
    assert op.view(count) is count
    assert op.reconcile(count)(converge) is converge
    assert [resource.plural for resource in op.reads()] == ["pods", "webs"]


def test_an_index_function_may_take_its_object_by_name_alone() -> None:
    def named(*, pod: Pod) -> Iterator[tuple[str, int]]:
        yield pod.metadata.name, 1

    op = Operator("webs")
    op.index(named)
    body = b'{"metadata":{"name":"a","uid":"1"},"spec":{"containers":[]}}'
    assert op.indices["named"].entries(body) == [("a", 1)]


def test_types_that_are_left_open_fit_any() -> None:
    op = Operator("webs")

    def bare(pod: Pod):  # type: ignore[no-untyped-def]
        yield pod.metadata.name, 1

    def view(web: Web, bare: Index[str, int], owners: Index[str, Any]) -> Level[Any]:
        return Level(1, 1)

    def reconciled(web: Web, level: Level[str]) -> Iterator[Intent]:
        yield from ()

    op.index(bare)
    op.index(owners)
    op.view(view)
    op.reconcile(view)(reconciled)


def test_plain_objects_are_named_with_of() -> None:
    op = Operator("webs")

    def names(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield pod["metadata"]["uid"], pod["metadata"]["name"]

    def plain(web: Mapping[str, Any]) -> Level[Any]:
        return Level(web["spec"], None)

    def act(web: Mapping[str, Any], level: Level[Any]) -> Iterator[Intent]:
        yield from ()

    op.index(of=Pod)(names)
    op.view(of=Web)(plain)
    op.reconcile(plain)(act)
    assert [resource.plural for resource in op.reads()] == ["pods", "webs"]
    assert op.indices["names"].entries(b'{"metadata":{"uid":"u","name":"n"}}') == [("u", "n")]


def test_when_is_asked_with_the_object_after_labels_and_annotations() -> None:
    asked: list[Any] = []

    def is_big(web: Web) -> bool:
        asked.append(web)
        return web.spec.replicas > 2

    op = Operator("webs")

    @op.index(labels={"app": "web"}, when=is_big)
    def names(web: Web) -> dict[str, str]:
        return {web.metadata.name: "x"}

    def entries(replicas: int, app: str) -> list[tuple[Any, Any]]:
        body = {"metadata": {"name": "w", "labels": {"app": app}}, "spec": {"replicas": replicas}}
        return op.indices["names"].entries(msgspec.json.encode(body))

    assert entries(3, "web") == [("w", "x")]
    assert entries(2, "web") == []
    assert entries(3, "db") == []
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("wanted", "labels", "selected"),
    [
        ("web", {"app": "web"}, True),
        ("web", {"app": "db"}, False),
        ("web", {}, False),
        (PRESENT, {"app": ""}, True),
        (PRESENT, {}, False),
        (ABSENT, {}, True),
        (ABSENT, {"app": "x"}, False),
        (lambda value: value is not None and value.startswith("w"), {"app": "web"}, True),
        (lambda value: value is not None and value.startswith("w"), {}, False),
    ],
)
def test_a_label_filter_selects(wanted: Any, labels: dict[str, str], selected: bool) -> None:
    assert Selector(labels={"app": wanted}).matches(labels, {}) is selected
