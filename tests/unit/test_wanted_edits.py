"""What is typed to change a history: the value of a field is read as in a manifest, and what cannot be is refused."""

import pytest

from levelog_base.errors import ConfigurationError
from levelog_replay.travel.edits import WantedEdits


def edits(*, value: tuple[int, str] | None = None, delay: str = "") -> WantedEdits:
    return WantedEdits(dropped=[], swapped=None, delay=delay, value=value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("spec.replicas=2", 2),
        ("spec.day=2026-13-45", "2026-13-45"),
        ("spec.at=22:22", "22:22"),
        ("spec.ports=[80, 443]", [80, 443]),
        ("spec.image=", None),
    ],
)
def test_a_value_is_read_as_in_a_manifest(text: str, value: object) -> None:
    assert edits(value=(75, text)).edits().values == (75, text.partition("=")[0], value)


@pytest.mark.parametrize("text", ["a=[1", "a=&a [*a]", "a=1\n---\n2", "a=\udc80", "a=.nan"])
def test_a_value_that_is_none_in_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the value is no YAML"):
        edits(value=(75, text)).edits()


@pytest.mark.parametrize("delay", ["soon", "0s", "999999999d", pytest.param("9" * 5000 + "s", id="long")])
def test_a_delay_that_no_clock_reaches_is_refused(delay: str) -> None:
    with pytest.raises(ConfigurationError, match="write how long"):
        edits(delay=delay).edits()
