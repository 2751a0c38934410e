"""Entries of one object in one index, whatever the user's function does."""

import logging
from collections.abc import Iterable
from typing import Final

from levelog.canonical import canonical
from levelog_processors.keys import canonical_key
from levelog_processors.program import BoundIndex
from levelog_store.rows import ERRORS, Entry

log = logging.getLogger(__name__)

MAX_ENTRIES: Final = 32_767
"""Entries of one object under one key; what the column that numbers them holds."""

MAX_MESSAGE: Final = 1000
"""Characters that are kept of an error's message."""


def index_entries(index: BoundIndex, body: bytes, held: Iterable[Entry], name: str) -> list[Entry]:
    """Entries of one object in one index.

    If the object cannot be decoded, the function raises, or it gives what cannot be a key or a value, the entries held
    so far stay, marked with the error. Where there are none, one under the key ERRORS says what the index lacks.
    """
    try:
        entries: list[Entry] = []
        ordinals: dict[str, int] = {}
        for key, value in index.handler.entries(body):
            text = canonical_key(key)
            ordinal = ordinals.get(text, 0)
            ordinals[text] = ordinal + 1
            if ordinal == MAX_ENTRIES:
                raise ValueError(f"more than {MAX_ENTRIES} entries under the key {text[:60]}")  # noqa: TRY301 - one handling
            entries.append(Entry(index.name, text, ordinal, canonical(value)))
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything; only this object's entries are concerned
        message = _message(error)
        kept = [
            Entry(e.index, e.key, e.ordinal, e.value, message)
            for e in held
            if e.index == index.name and e.key != ERRORS
        ]
        effect = "keeps its entries" if kept else "is left out"
        log.warning("index %s: %s %s: %s", index.name, name, effect, message, extra={"object": name})
        return kept or [Entry(index.name, ERRORS, 0, canonical({"object": name, "error": message}), message)]
    return entries


def _message(error: Exception) -> str:
    """What an error says, as text that any database takes."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's own may raise anything here too
        words = "(its message cannot be read)"
    message = f"{type(error).__name__}: {words}"
    return message[:MAX_MESSAGE].replace("\0", "\\0").encode(errors="backslashreplace").decode()
