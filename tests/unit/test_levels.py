from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from levelog import Drift, Level
from levelog.levels import WHOLE, drift_between


class Size(Struct):
    replicas: int
    image: str = ""


def test_a_mapping_drifts_by_key() -> None:
    drift = drift_between({"a": 1, "b": 2}, {"b": 3, "c": 4})
    assert drift == Drift(missing=frozenset("a"), extra=frozenset("c"), changed=frozenset("b"))


def test_a_struct_drifts_by_field() -> None:
    assert drift_between(Size(3), Size(2)) == Drift(changed=frozenset({"replicas"}))


def test_a_set_drifts_by_member() -> None:
    assert drift_between({1, 2}, {2, 3}) == Drift(missing=frozenset({1}), extra=frozenset({3}))


def test_a_scalar_drifts_as_a_whole_and_none_is_nothing_there() -> None:
    assert drift_between(3, 2) == Drift(changed=frozenset({WHOLE}))
    assert drift_between(3, None) == Drift(missing=frozenset({WHOLE}))
    assert drift_between(None, 3) == Drift(extra=frozenset({WHOLE}))


values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@given(values, values)
def test_there_is_drift_exactly_where_values_differ(desired: object, actual: object) -> None:
    assert bool(drift_between(desired, actual)) == (desired != actual)


@given(st.dictionaries(st.text(), st.integers()), st.dictionaries(st.text(), st.integers()))
def test_removing_extra_and_setting_missing_and_changed_leads_from_actual_to_desired(
    desired: dict[str, int], actual: dict[str, int]
) -> None:
    drift = Level(desired, actual).drift
    kept = {key: value for key, value in actual.items() if key not in drift.extra}
    assert kept | {key: desired[key] for key in drift.missing | drift.changed} == desired


def test_drift_reads_well() -> None:
    assert str(drift_between({"b": 1, "a": 2}, {})) == "missing a, b"
    assert str(Drift()) == "none"
