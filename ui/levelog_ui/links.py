"""The addresses of pages."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode


def object_path(name: str) -> str:
    """Of an object: `/o/webs.example.com/default/shop`."""
    return f"/o/{quote(name, safe='/')}"


def record_path(name: str, sequence: int) -> str:
    """Of a record among those about an object."""
    return f"{object_path(name)}?at={sequence}#r{sequence}"


def decision_path(ordinal: int) -> str:
    """Of a decision."""
    return f"/d/{ordinal}"


def number_of(text: str) -> int | None:
    """A number of an address, such as a sequence; None where it is none, or more than SQL holds."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def with_query(path: str, values: Mapping[str, object]) -> str:
    """A path with those values that are not empty."""
    given = {name: value for name, value in values.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path
