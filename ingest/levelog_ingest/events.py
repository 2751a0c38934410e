"""The lines of a watch: events with an object's bytes inside, left as they are."""

from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from levelog.errors import RecordError
from levelog.wire.objects import Version, parse_version
from levelog_kube.errors import NoAnswer

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"  # on the bookmark that ends a streaming list, KEP-3157


class WatchEvent(Struct):
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: Raw


class Bookmark(Struct):
    """What a bookmark says: everything up to the version was sent; perhaps also that the list is complete."""

    version: Version
    ends_list: bool


class _BookmarkMetadata(Struct, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


class _BookmarkObject(Struct):
    metadata: _BookmarkMetadata


_events: Final = msgspec.json.Decoder(WatchEvent)
_bookmarks: Final = msgspec.json.Decoder(_BookmarkObject)


def read_event(line: bytes) -> WatchEvent:
    """The event of a line. Raises RecordError, which quotes nothing of it, if it is none."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"a line of a watch cannot be read: {error} ({len(line)} bytes)") from error


def read_bookmark(event: WatchEvent) -> Bookmark:
    """The bookmark in a BOOKMARK event. Raises NoAnswer if it is none."""
    try:
        metadata = _bookmarks.decode(event.object).metadata
        ends_list = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
        return Bookmark(version=parse_version(metadata.resource_version), ends_list=ends_list)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NoAnswer(f"a bookmark cannot be read: {error}") from error
