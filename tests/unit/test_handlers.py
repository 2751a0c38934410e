from collections.abc import Iterator
from typing import Any

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


async def waits(web: Web) -> Level[int]:
    return Level(1, 1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (untyped, "untyped: parameter 'web' is Any; it has to be a class derived from Resource"),
        (nameless, "nameless: Nameless does not say which resource it is"),
        (returns_nothing, "returns_nothing: has to be annotated to return a Level"),
        (takes_a_number, "takes_a_number: parameter 'number' is int"),
        (asks_for_an_unknown_index, "parameter 'unknown' asks for an index that is not defined above it"),
        (waits, "waits: is async"),
    ],
)
def test_a_wrong_view_is_refused_with_its_name_and_parameter(function: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        Operator("webs").view(function)


def test_two_handlers_of_one_name_are_refused() -> None:
    op = Operator("webs")
    op.index(owners)
    with pytest.raises(OperatorError, match="has an index or view 'owners' already"):
        op.index(owners)


def test_a_reconcile_function_needs_a_view_of_its_operator_and_is_the_only_one() -> None:
    op = Operator("webs")
    with pytest.raises(OperatorError, match="count is not a view of the operator 'webs'"):
        op.reconcile(count)
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
