"""Batches of records: what folding one has changed, and which of its records are folded by themselves."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from msgspec import Struct

from levelog_base.counting import counted
from levelog_base.wire.records import HistoryReverted, LoggedRecord, SyncFinished, SyncStarted
from levelog_store.fold.changes import Wake
from levelog_store.rows import IndexKey, UnreadableRow, ViewParent

log = logging.getLogger(__name__)

_NAMED: Final = 10
"""Levels that a line of the log names."""
ALONE: Final[Mapping[type, type]] = {kind: kind for kind in (SyncFinished, HistoryReverted, SyncStarted)}


class Folded(Struct, frozen=True):
    """What folding a batch has changed."""

    records: int
    wakes: dict[ViewParent, Wake]
    has_finished_sync: bool
    has_list: bool
    """A list began or ended: read again which resources and namespaces are listed."""
    keys: set[IndexKey]
    """Keys of indices that changed."""
    has_receipts: bool = False
    """Of leased partitions."""
    frees_targets: bool = False
    """Intents that are committed may wait for a target whose intent has ended, or goes with its level."""
    has_news: bool = False
    """A level has gone, or is blocked, that daemons may wait for."""


def tell_forgotten(rounds: Mapping[str, int]) -> None:
    """Say which decisions the log tells of and the tables do not know, as after a failover; `rounds` by level."""
    if rounds:
        named = ", ".join(f"{level} (round {to})" for level, to in [*rounds.items()][:_NAMED])
        more = f" and {len(rounds) - _NAMED} more" if len(rounds) > _NAMED else ""
        log.warning(
            "the database has lost the decisions on %s, whose writes the log tells of: they are decided on again, and "
            "what was written may be written once more: %s%s",
            *(counted(len(rounds), "level"), named, more),
        )


def tell_unreadable(rows: Iterable[UnreadableRow]) -> None:
    """Say which records were skipped."""
    for row in rows:
        log.error("record %d of %s cannot be read and is skipped: %s", row.sequence, row.place, row.error)


def parts(records: Iterable[LoggedRecord]) -> Iterator[list[LoggedRecord]]:
    """Split a batch where lists finish or history goes back: those are folded by themselves, after all before them."""
    for _, part in groupby(records, key=lambda logged: ALONE.get(type(logged.record))):
        yield list(part)
