"""Objects too large for a message of the log: recorded by their metadata, size and hash, and read by nobody."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.errors import ObjectTooLarge

MEMBER: Final = "levelog/left-out"
"""First member of such a body; what the API server sends begins with apiVersion or kind."""
_BEGINNING: Final = msgspec.json.encode({MEMBER: 0})[:-2]


class LeftOut(Struct, frozen=True, kw_only=True):
    """What is known of the rest."""

    reason: str
    bytes: int
    """Size of the object as it would be recorded."""
    sha256: str
    """Of the object as it would be recorded, so that a change of it can be seen."""


def refuse_left_out(body: bytes) -> None:
    """Raises ObjectTooLarge, naming object and size, if the body is what stands for one that was too large."""
    if body.startswith(_BEGINNING):
        refuse_remains(msgspec.json.decode(body))


def refuse_remains(found: Mapping[str, Any]) -> None:
    """Raises ObjectTooLarge as `refuse_left_out` does, of a decoded body."""
    if MEMBER not in found:
        return
    left_out, metadata = msgspec.convert(found[MEMBER], LeftOut), found["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)
    raise ObjectTooLarge(
        f"{name} has {left_out.bytes} bytes, which is more than the log takes; only its metadata are recorded "
        f"({left_out.reason})"
    )
