"""The table of wakes: its rows, and each cell as text."""

from collections.abc import Callable, Mapping
from typing import Final

from levelog_wakes.answer import WakesFound, Woken
from levelog_wakes.periods import Rhythm

_LEAST_WAKES: Final = 3
"""Rows with fewer are counted, not shown."""


def rows(found: WakesFound) -> list[Woken]:
    """The rows that are worth showing, in order."""
    return [each for each in found.woken if each.wakes >= _LEAST_WAKES]


def cells(each: Woken) -> list[str]:
    """A text for each column."""
    return [text(each) for text in COLUMNS.values()]


def footer(found: WakesFound) -> str:
    """The amount that was read, and what is not shown."""
    seldom = len(found.woken) - len(rows(found))
    return f"{found.events:,} events, {_seconds(found.seconds)}; {seldom} rows with fewer than 3 wakes left out"


def _period(period: Rhythm) -> str:
    pollers = f", {period.pollers} pollers" if period.pollers > 1 else ""
    return f"{_seconds(period.seconds)} ± {_seconds(period.jitter_seconds)}{pollers}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


COLUMNS: Final[Mapping[str, Callable[[Woken], str]]] = {
    "CLIENT": lambda each: each.client,
    "RESOURCE": lambda each: each.resource,
    "OBJECTS": lambda each: f"{each.objects:,}",
    "WAKES": lambda each: f"{each.wakes:,}",
    "PERIOD": lambda each: " and ".join(map(_period, each.periods[:2])) or "irregular",
    "CALLS": lambda each: f"{each.calls / each.wakes:.1f}",
    "BYTES": lambda each: "" if each.size_bytes is None else f"{each.size_bytes / each.wakes:,.0f}",
    "WROTE": lambda each: f"{each.wrote / each.wakes:.0%}",
    "LISTS": lambda each: f"{sum(each.lists.values()):,}",
    "OWN": lambda each: f"{each.echoes:,}",
    "UNDONE": lambda each: f"{each.undone:,}",
    "NO-OPS": lambda each: f"{each.unchanged_writes:,}",
}
