from datetime import UTC, datetime, timedelta

import pytest

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource, ObjectKey
from levelog_history.reach import Moment
from levelog_history.selection import Selected, is_meant, label_selector
from rigs.webs import NOON, logged, web

SHOP = ObjectKey(group="example.com", resource="webs", namespace="default", name="shop")
NODE = ObjectKey(group="", resource="nodes", namespace="", name="one")


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("webs.example.com", True),
        ("webs.example.com/default", True),
        ("webs.example.com/default/shop", True),
        ("webs.example.com/default/other", False),
        ("webs.example.com/other", False),
        ("webs", False),
    ],
)
def test_objects_are_named_by_resource_namespace_and_name(text: str, has: bool) -> None:
    assert Selected.parse(text).has(SHOP) is has
    assert str(Selected.parse(text)) == text


def test_an_underscore_stands_for_no_namespace() -> None:
    assert Selected.parse("nodes/_/one").key == NODE
    assert Selected.parse("nodes/_").has(NODE)
    assert not Selected.parse("nodes/default").has(NODE)


@pytest.mark.parametrize("text", ["", "/", "webs/", "webs//shop", "webs/default/shop/x", "Webs/default/shop", "a b"])
def test_what_names_no_objects_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write RESOURCE"):
        Selected.parse(text)


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web, tier!=db", True),
        ("app", True),
        ("!tier", True),
        ("app!=web", False),
        ("tier", False),
        ("!app", False),
        ("app=web,tier=db", False),
        ("app=", False),
    ],
)
def test_labels_are_selected_as_kubectl_does(selector: str, is_selected: bool) -> None:
    assert label_selector(selector)({"metadata": {"labels": {"app": "web"}}}) is is_selected


@pytest.mark.parametrize("selector", ["app in (a,b)", "!app=web", "=", "app=web;tier"])
def test_a_selector_that_cannot_be_read_is_refused(selector: str) -> None:
    with pytest.raises(ConfigurationError, match=r"selector .* cannot be read at"):
        label_selector(selector)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("812", Moment(sequence=812)),
        ("2026-01-01T12:00:00Z", Moment(time=NOON)),
        ("2026-01-01T13:00:00+01:00", Moment(time=NOON)),
        ("2026-01-01T12:00:00", Moment(time=NOON)),
        ("2026-01-01", Moment(time=datetime(2026, 1, 1, tzinfo=UTC))),
        ("15m", Moment(time=NOON - timedelta(minutes=15))),
        ("2d", Moment(time=NOON - timedelta(days=2))),
    ],
)
def test_a_moment_is_a_sequence_a_time_or_how_long_ago(text: str, moment: Moment) -> None:
    assert Moment.parse(text, NOON) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-1", "yesterday", "15x", "99999999999d", "999999999d", "12:00", "²", "٣m"),
        *("0001-01-01T00:00+14:00", pytest.param("9" * 5000, id="long"), pytest.param("9" * 5000 + "s", id="long ago")),
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Moment.parse(text, NOON)


def test_a_moment_holds_the_record_that_is_at_it() -> None:
    [before, at] = logged([web("shop", 1), web("shop", 2)], first=811)
    assert not Moment(sequence=812).precedes(at)
    assert Moment(sequence=811).precedes(at)
    assert not Moment(time=NOON).precedes(before)
    assert Moment(time=NOON - timedelta(seconds=1)).precedes(before)


@pytest.mark.parametrize(
    ("said", "resource", "is_so"),
    [
        ("pod", "pods", True),
        ("Pod", "pods", True),
        ("policy", "policies", True),
        ("ingress", "ingresses.networking.k8s.io", True),
        ("ingresses.networking.k8s.io", "ingresses.networking.k8s.io", True),
        ("po", "pods", False),
        ("default", "pods", False),
    ],
)
def test_a_word_stands_for_a_resource_in_the_singular_too(said: str, resource: str, *, is_so: bool) -> None:
    assert is_meant(said, str(GroupResource.parse(resource))) is is_so
