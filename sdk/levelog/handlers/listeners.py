"""`@op.on.event`: functions that are called for each record of an object in the log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Struct

from levelog.handlers.injection import Given
from levelog.handlers.unrecorded import UnrecordedHandler

Origin = Literal["list", "watch"]

OF_RECORDS: Final = (Given.KEY, Given.RETRY, Given.LOGGER, Given.SETTINGS)


class Recorded(Struct, frozen=True, kw_only=True):
    """What a function may be told of one record."""

    body: bytes
    is_deleted: bool
    origin: Origin
    """How it came into the log: from a list, or by the watch."""
    recorded_at: datetime
    sequence: int


class RecordHandler(UnrecordedHandler):
    """A function that is called for each record of the objects of one class, with its options."""

    kind = "event handler"
    told: ClassVar[Mapping[str, type]] = {
        "is_deleted": bool,
        "origin": str,
        "recorded_at": datetime,
        "sequence": int,
    }
    offered = OF_RECORDS

    def said(self, position: int) -> str:
        """A record by its sequence."""
        return f"record {position}"

    def arguments(self, recorded: Recorded, given: Mapping[Given, Any]) -> dict[str, Any] | None:
        """The arguments of one call, as `called_with` has them."""
        return self.called_with(recorded.body, msgspec.structs.asdict(recorded), given)
