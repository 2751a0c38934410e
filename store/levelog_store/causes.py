"""Which records asked for a level, as a text that does not grow beyond all measure: `12,15,17`."""

from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, case, func

MOST: Final = 1000
"""Characters. What a text of so many leaves out is nowhere else; the newest record has a column of its own."""


class Causes(Struct, frozen=True):
    """Records that asked, oldest first."""

    sequences: tuple[int, ...]
    has_more: bool
    """There were others, between these and the newest."""


def noted(sequences: Collection[int]) -> str:
    """The text for some records."""
    return ",".join(map(str, sequences))[:MOST]


def added(text: str, more: str) -> str:
    """The text for the records of two texts."""
    return f"{text},{more}"[:MOST] if text and more else text or more


def appended(column: ColumnElement[str], fresh: ColumnElement[str]) -> ColumnElement[Any]:
    """As `added`, in SQL, where `fresh` is not empty."""
    return case((column == "", fresh), else_=func.substr(column.concat(",").concat(fresh), 1, MOST))


def read_causes(text: str, newest: int = 0) -> Causes:
    """What a text says; `newest` belongs to it even where the text has no room for it."""
    has_more = len(text) >= MOST
    parts = (text.rpartition(",")[0] if has_more else text).split(",")  # the last number may be cut
    found = {int(part) for part in parts if part}
    return Causes(tuple(sorted(found | {newest} if has_more and newest else found)), has_more)
