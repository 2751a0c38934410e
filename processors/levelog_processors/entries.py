"""Entries of one object in one index, whatever the user's function does."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from levelog.canonical import canonical
from levelog.faults import described, tell_fault
from levelog.handlers import VIEW_TIME
from levelog_processors.fence import Fence
from levelog_processors.keys import canonical_key
from levelog_processors.program import BoundIndex
from levelog_store.rows import ERRORS, Entry

MAX_ENTRIES: Final = 32_767
"""Entries of one object under one key; what the column that numbers them holds."""


def index_entries(
    index: BoundIndex, body: bytes, held: Iterable[Entry], name: str, recorded_at: datetime | None = None
) -> list[Entry]:
    """Entries of one object in one index.

    If the object cannot be decoded, the function raises, or it gives what cannot be a key or a value, the entries held
    so far stay, marked with the error. Where there are none, one under the key ERRORS says what the index lacks. If
    entries of the index expire, they do so that long after the record of the object.
    """
    lifetime = index.handler.expires
    expires_at = recorded_at + lifetime if recorded_at is not None and lifetime is not None else None
    try:
        entries: list[Entry] = []
        ordinals: dict[str, int] = {}
        for key, value in _called(index, body):
            text = canonical_key(key)
            ordinal = ordinals.get(text, 0)
            ordinals[text] = ordinal + 1
            if ordinal == MAX_ENTRIES:
                raise ValueError(f"more than {MAX_ENTRIES} entries under the key {text[:60]}")  # noqa: TRY301 - one handling
            entries.append(Entry(index.name, text, ordinal, canonical(value), "", expires_at))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything; only this object's entries are concerned
        message = described(error)
        kept = [
            Entry(e.index, e.key, e.ordinal, e.value, message, expires_at)
            for e in held
            if e.index == index.name and e.key != ERRORS
        ]
        effect = "keeps its entries" if kept else "is left out"
        tell_fault("index", index.name, index.handler.function, error, subject=name, effect=effect)
        value = canonical({"object": name, "error": message})
        return kept or [Entry(index.name, ERRORS, 0, value, message, expires_at)]
    return entries


def _called(index: BoundIndex, body: bytes) -> list[tuple[Any, Any]]:
    """Call the index function, with its time limit and without I/O."""
    if index.handler.is_implicit:
        return index.handler.entries(body)
    return Fence(f"index {index.name}", VIEW_TIME).run(lambda: index.handler.entries(body))
