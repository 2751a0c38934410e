"""Values that JSON has no form for are refused, wherever they are in what a user's function gives."""

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Index, Intent, Level, Operator, Struct, apply, call, patch
from levelog.testing import Simulation
from levelog_base.wire.canonical import canonical, canonical_json
from rigs.kinds import ConfigMap, Web


class Box(Struct):
    value: Any


WRITABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
WRAPS: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: (None, value),
    lambda value: {"a": value},
    lambda value: Box(value=value),
    lambda value: frozenset({value}) if isinstance(value, float) else [value],
]


@given(WRITABLE)
def test_what_json_has_is_written_as_it_is(value: Any) -> None:
    assert msgspec.json.decode(canonical(value)) == value
    assert canonical(value) == canonical_json(value)


@given(st.sampled_from([nan, inf, -inf]), WRITABLE, st.lists(st.sampled_from(WRAPS), max_size=4))
def test_what_json_lacks_is_refused_however_deep_it_is(wrong: float, beside: Any, wraps: list[Any]) -> None:
    value: Any = wrong
    for wrap in wraps:
        value = wrap(value)
    with pytest.raises(ValueError, match="has no JSON form"):
        canonical([beside, value])


def operator(where: str) -> Operator:
    op = Operator("webs")

    @op.effect
    def tell(number: float) -> None:
        pass

    @op.index
    def sizes(_: Web) -> Iterator[tuple[str, float]]:
        yield "all", nan if where == "index" else 1.0

    @op.view
    def config(_: Web, sizes: Index[str, float]) -> Level[float]:
        assert list(sizes["all"]) == [1.0]
        return Level(desired=inf if where == "level" else 1.0, actual=0.0)

    @op.reconcile(config, writes={ConfigMap: ["apply", "patch"]})
    def write(_: Web) -> Iterator[Intent]:
        manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        match where:
            case "apply":
                yield apply({**manifest, "data": {"a": nan}})
            case "patch":
                yield patch(ConfigMap, "a", {"data": {"a": nan}})
            case "call":
                yield call(tell, nan)
            case _:
                return

    return op


@pytest.mark.parametrize("where", ["apply", "patch", "call", "level", "index"])
def test_a_number_that_json_lacks_fails_its_level_and_writes_nothing(where: str) -> None:
    with Simulation(operator(where)) as simulation:
        web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a", "namespace": "default"}}
        simulation.apply(web)
        simulation.run()
        level = simulation.level("config", "default", "a")
        assert level.status == "failed"
        assert "has no JSON form" in level.reason
        assert simulation.intents == []
