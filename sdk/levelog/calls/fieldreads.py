"""What a function read of a plain object, and what the same reads give in another version of it.

A field read is a place in the JSON and a kind of look at it. Two bodies in which every read gives the same are
the same to the function, since it can decide where to look next only by what it saw before.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from levelog_base.mappings import FieldRead, Look, Path
from levelog_base.wire.canonical import canonical, digest

MOST: Final = 1000
"""Reads that are kept of one evaluation; a function that looks at more depends on the whole object."""

ALWAYS: Final[tuple[FieldRead, ...]] = ((Look.IS_THERE, ("metadata", "deletionTimestamp")),)
"""What counts for every view, since it decides whether the view is asked at all."""


def encode(reads: Iterable[FieldRead]) -> bytes:
    """The reads as they are stored, `[["keys", "metadata", "labels"], …]`: each once, in a fixed order.

    Redundant ones are left out: below a place that was read as a whole, and lengths beside keys.
    """
    found = {*reads, *ALWAYS}
    wholes = {path for look, path in found if look is Look.WHOLE}
    keys = {path for look, path in found if look is Look.KEYS}
    kept = [
        (look, path)
        for look, path in found
        if not _is_below(look, path, wholes) and not (look in (Look.LENGTH, Look.IS_FILLED) and path in keys)
    ]
    if len(kept) > MOST:
        kept = [(Look.WHOLE, ())]
    return canonical(sorted(([look, *path] for look, path in kept), key=canonical))


def decode(stored: bytes) -> list[FieldRead]:
    """Read what `encode` wrote."""
    return [(Look(look), tuple(path)) for look, *path in msgspec.json.decode(stored)]


def digest_of(body: Any, reads: Iterable[FieldRead]) -> str:
    """Identity of what the reads give in a body; equal digests mean that each of them gives the same."""
    return digest(*(canonical(_seen(body, look, path)) for look, path in reads))


def _is_below(look: Look, path: Path, wholes: set[Path]) -> bool:
    shorter = any(path[:length] in wholes for length in range(len(path)))
    return shorter or (look is not Look.WHOLE and path in wholes)


_NOTHING: Final = object()


def _at(body: Any, path: Path) -> Any:
    """The value at a path; `_NOTHING` if there is none."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(body, dict) or step not in body:
                return _NOTHING
            body = body[step]
        else:
            if not isinstance(body, list) or not -len(body) <= step < len(body):
                return _NOTHING
            body = body[step]
    return body


def _seen(body: Any, look: Look, path: Path) -> Any:
    """What a read gives, as JSON; a list around it tells a value from nothing."""
    found = _at(body, path)
    if look is Look.IS_THERE:
        return found is not _NOTHING
    if found is _NOTHING:
        return []
    if look is Look.WHOLE:
        return [found]
    if not isinstance(found, dict | list):
        return [found]
    kind = "mapping" if isinstance(found, dict) else "list"
    match look:
        case Look.VALUE:
            return [kind, 0]
        case Look.IS_FILLED:
            return [kind, bool(found)]
        case Look.LENGTH:
            return [kind, len(found)]
        case Look.KEYS:
            return [kind, sorted(found) if isinstance(found, dict) else len(found)]
