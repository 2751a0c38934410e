"""Differences of two bodies of an object, and of those of which only the hashes of values are known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog_base.errors import ConfigurationError
from levelog_history.differences import differences, shown, with_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(["a", "b.c", "name"]), values, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"spec": {"replicas": 3}}, {"spec": {"replicas": 2}}, ["spec.replicas: 3 -> 2"]),
        ({"spec": {}}, {"spec": {"image": "a"}}, ['+ spec.image: "a"']),
        ({"spec": {"image": "a"}}, {}, ['- spec: {"image":"a"}']),
        (
            {"metadata": {"labels": {"app.kubernetes.io/name": "a"}}},
            {"metadata": {"labels": {"app.kubernetes.io/name": "b"}}},
            ['metadata.labels["app.kubernetes.io/name"]: "a" -> "b"'],
        ),
        (
            {"containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "x"}]},
            {"containers": [{"name": "log", "image": "x"}, {"name": "web", "image": "b"}]},
            ['containers[web].image: "a" -> "b"'],
        ),
        ({"args": ["a", "b"]}, {"args": ["a", "c", "d"]}, ['args[1]: "b" -> "c"', '+ args[2]: "d"']),
        ({"a": True}, {"a": 1}, ["a: true -> 1"]),
        ({"a": None}, {}, ["- a: null"]),
        ({"a": [1]}, {"a": {"0": 1}}, ['a: [1] -> {"0":1}']),
        ({"metadata": {"resourceVersion": "1", "generation": 1}}, {"metadata": {"resourceVersion": "2"}}, []),
    ],
)
def test_a_difference_reads_as_the_field_with_its_two_values(
    before: dict[str, Any], after: dict[str, Any], lines: list[str]
) -> None:
    assert [str(difference) for difference in differences(before, after)] == lines


def test_a_long_value_is_cut_in_its_middle() -> None:
    text = shown("a" * 100 + "z")
    assert len(text) == 60
    assert text.startswith('"aa')
    assert text.endswith('az"')


@pytest.mark.parametrize("item", ["2", "none", "9" * 5000], ids=["beyond the list", "no number", "many digits"])
def test_a_value_is_set_in_no_item_that_is_not_there(item: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^the object has nothing at spec\.ports\["):
        with_value({"spec": {"ports": [1, 2]}}, f"spec.ports[{item}]", 3)


@given(OBJECTS, OBJECTS)
def test_only_equal_objects_have_no_differences(before: Any, after: Any) -> None:
    assert bool(differences(before, after)) == (repr_json(before) != repr_json(after))


def repr_json(value: Any) -> str:
    """Equal for equal JSON; True is not 1 there."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{repr_json(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        items = value
        if items and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items):
            items = sorted(items, key=lambda item: item["name"])
        return "[" + ",".join(map(repr_json, items)) + "]"
    return repr(value)


ONE, OTHER = (f"hmac-sha256:{digit * 64}" for digit in "ab")


def test_a_hash_that_differs_is_told_as_another_value_and_one_that_comes_or_goes_as_it_is() -> None:
    [changed] = differences({"data": {"password": ONE}}, {"data": {"password": OTHER}})
    assert str(changed) == "data.password: another redacted value"
    [shown] = differences({"data": {"password": ONE}}, {"data": {"password": "clear"}})
    assert str(shown).endswith('-> "clear"')
