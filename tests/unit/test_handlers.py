import re
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import FunctionType
from typing import Any

import msgspec
import pytest

from levelog import ABSENT, PRESENT, Index, Intent, Level, Operator, OperatorError, Resource, Struct
from levelog.selectors import Selector


class WebSpec(Struct):
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class WebTwo(Resource, group="example.com", version="v2", plural="webs", kind="Web"):
    spec: WebSpec


class Pod(Resource, version="v1", plural="pods"):
    pass


class Nameless(Resource):
    pass


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


def untyped(web: Any) -> Level[int]:
    return Level(1, 1)


def nameless(web: Nameless) -> Level[int]:
    return Level(1, 1)


def returns_nothing(web: Web) -> None:
    pass


def takes_a_number(web: Web, number: int) -> Level[int]:
    return Level(number, 1)


def asks_for_an_unknown_index(web: Web, unknown: Index[str, str]) -> Level[int]:
    return Level(1, 1)


def unannotated(web: Web):  # type: ignore[no-untyped-def]
    return Level(1, 1)


def reads_a_level(web: Web, level: Level[int]) -> Level[int]:
    return level


def plain_of_nothing(web: Mapping[str, Any]) -> Level[int]:
    return Level(1, 1)


def wrong_value(web: Web, owners: Index[str, int]) -> Level[int]:
    return Level(1, 1)


def wrong_key(web: Web, owners: Index[int, str]) -> Level[int]:
    return Level(1, 1)


async def waits(web: Web) -> Level[int]:
    return Level(1, 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (untyped, "untyped: parameter 'web' is Any; it has to be a class derived from Resource"),
        (nameless, "nameless: Nameless does not say which resource it is"),
        (returns_nothing, r"returns_nothing: returns None; it has to be Level\[T\]"),
        (unannotated, r"unannotated: is not annotated with what it returns; it has to be Level\[T\]"),
        (reads_a_level, r"reads_a_level: parameter 'level' is Level\[int\]; view functions compute from its parent"),
        (plain_of_nothing, r"parameter 'web' is Mapping\[str, Any\], which does not say which objects are meant"),
        (wrong_value, r"parameter 'owners' is Index\[str, int\], but the index owners has .* Index\[str, str\]"),
        (wrong_key, r"parameter 'owners' is Index\[int, str\], but the index owners has keys of type str"),
        (takes_a_number, "takes_a_number: parameter 'number' is int"),
        (asks_for_an_unknown_index, "parameter 'unknown' asks for an index that is not defined above it"),
        (waits, "waits: is async"),
    ],
)
def test_a_wrong_view_is_refused_with_its_name_and_parameter(function: Any, message: str) -> None:
    op = Operator("webs")
    op.index(owners)
    with pytest.raises(OperatorError, match=message):
        op.view(function)


def reads_an_index(pod: Pod, owners: Index[str, str]) -> dict[str, str]:
    return {}


def two_objects(pod: Pod, other: Pod) -> dict[str, str]:
    return {}


def no_pairs(pod: Pod) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (reads_an_index, "index functions compute from one object alone, so that reads never go in a circle"),
        (two_objects, "two_objects: .*parameter"),
        (no_pairs, "index no_pairs: is annotated to return str; it has to yield pairs"),
    ],
)
def test_a_wrong_index_is_refused_with_its_name_and_parameter(function: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        Operator("webs").index(function)


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


def test_a_reconcile_function_takes_the_level_that_its_view_returns() -> None:
    def of_texts(web: Web, level: Level[str]) -> Iterator[Intent]:
        yield from ()

    op = Operator("webs")
    op.index(owners)
    op.view(count)
    with pytest.raises(
        OperatorError,
        match=r"of_texts: parameter 'level' is Level\[str\], but the view count returns Level\[int\]",
    ):
        op.reconcile(count)(of_texts)


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
    with pytest.raises(
        OperatorError, match=r"count: parameter 'web' is Web, and its decorator names Pod: make it Pod, or Mapping"
    ):
        op.view(of=Pod)(count)
    with pytest.raises(OperatorError, match="of=int, which is not a class derived from Resource"):
        op.view(of=int)(plain)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_scope_that_there_is_none_of_is_refused() -> None:
    options = {"version": "v1", "plural": "zones", "scope": "Global"}
    with pytest.raises(OperatorError, match='class Zone: scope is "Namespaced" or "Cluster", not \'Global\''):
        types.new_class("Zone", (Resource,), options)


def test_two_handlers_of_one_name_are_refused() -> None:
    op = Operator("webs")
    op.index(owners)
    with pytest.raises(OperatorError, match="owners: operator 'webs' has the index 'owners' already; each handler"):
        op.index(owners)
    op.view(count)
    with pytest.raises(OperatorError, match="has the index 'owners' already"):
        op.reconcile(count)(named("owners", converge))
    op.reconcile(count)(converge)
    with pytest.raises(OperatorError, match="has the reconcile function 'converge' already"):
        op.view(named("converge", count))


def named(name: str, function: Any) -> Any:
    """The function under another name."""
    copied = FunctionType(function.__code__, function.__globals__, name)
    copied.__annotations__ = function.__annotations__
    return copied


def test_a_reconcile_function_needs_a_view_of_its_operator_and_is_the_only_one() -> None:
    op = Operator("webs")
    with pytest.raises(OperatorError, match="count is not a view of the operator 'webs'"):
        op.reconcile(count)
    for wrong in ("count", ["count"], 3):
        with pytest.raises(OperatorError, match=r"reconcile takes the function of a view, not .*: @op.reconcile"):
            op.reconcile(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    op.index(owners)
    op.view(count)
    op.reconcile(count)(converge)
    with pytest.raises(OperatorError, match="reconciled by 'converge' already"):
        op.reconcile(count)(converge)


def test_one_resource_in_two_versions_is_refused_with_both_named() -> None:
    op = Operator("webs")

    def one(web: Web) -> Level[int]:
        return Level(1, 1)

    def two(web: WebTwo) -> Level[int]:
        return Level(1, 1)

    op.view(one)
    op.view(two)
    with pytest.raises(OperatorError, match="versions v1 and v2"):
        op.resources()


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


@pytest.mark.parametrize("option", ["labels", "annotations"])
@pytest.mark.parametrize("wrong", ["app=web", "", ["app"]])
def test_a_filter_that_is_no_mapping_is_refused_by_every_decorator(option: str, wrong: Any) -> None:
    def function(pod: Any) -> Any:
        """Never called: its filter is wrong."""

    op, filters = Operator("filters"), {option: wrong}
    for decorator in (
        op.index(**filters),
        op.view(**filters),
        op.children(Pod, of=Pod, **filters),
        op.timer(Pod, every=timedelta(hours=1), **filters),
        op.on.field("spec", of=Pod, **filters),
    ):
        with pytest.raises(
            OperatorError, match=f"{option}={re.escape(repr(wrong))} is not a mapping of names to values"
        ):
            decorator(function)
