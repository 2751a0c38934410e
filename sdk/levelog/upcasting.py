"""Reading records of earlier envelope versions: each is turned, step by step, into one of the version written now.

A field that has a default can be added without a new version. Whatever else changes an envelope raises the version and
leaves an upcaster here, and a file of records as they were in `tests/unit/envelopes`.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from levelog.errors import RecordError

ENVELOPE_VERSION: Final = 1
"""What is written now."""

Message: TypeAlias = tuple[Mapping[str, str], bytes]
"""Headers and payload."""
Upcaster: TypeAlias = Callable[[Mapping[str, str], bytes], Message]
"""From a message of one version to the one after it; raises KeyError or ValueError for what it cannot read."""

UPCASTERS: Final[Mapping[int, Upcaster]] = {}
"""By the version that each reads."""


def can_read(version: str, *, upcasters: Mapping[int, Upcaster] = UPCASTERS, newest: int = ENVELOPE_VERSION) -> bool:
    """Tell whether messages of an envelope version, as headers and streams name it, can be turned into the newest."""
    return version in {str(newest), *map(str, upcasters)}


def upcast(
    headers: Mapping[str, str],
    payload: bytes,
    *,
    upcasters: Mapping[int, Upcaster] = UPCASTERS,
    newest: int = ENVELOPE_VERSION,
) -> Message:
    """The message in the newest version. Raises RecordError, with both versions, for one that cannot be read."""
    version = headers["levelog-envelope"]
    if not can_read(version, upcasters=upcasters, newest=newest):
        raise RecordError(f"envelope version {version!r} is not known; this levelog reads versions up to {newest}")
    for number in range(int(version), newest):
        headers, payload = upcasters[number](headers, payload)
    return headers, payload
