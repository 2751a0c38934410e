"""The entries of one object in one index: keys, values, and when they expire."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog.calls.faults import Interruption, described, tell_fault
from levelog.handlers.viewhandlers import VIEW_TIME
from levelog.resources import Metadata, Owner
from levelog_base.wire.canonical import canonical
from levelog_base.wire.records import LoggedRecord, ReceiptNoted, TargetObserved, Unreadable
from levelog_processors.bound import BoundIndex
from levelog_processors.guard import FunctionGuard
from levelog_processors.keys import canonical_key
from levelog_store.fold.changes import Changes
from levelog_store.rows import ERRORS, Entry, whole_index_key

MOST_OWNERS: Final = 100
"""Most owners that are told of an object that an index by owner fails for: its controller first. Each is two rows."""


def note_time(times: dict[int, datetime], logged: LoggedRecord) -> None:
    """Raise the time of a partition: that of the newest record which ingest wrote to it; other clocks do not count."""
    record, known = logged.record, times.get(logged.partition)
    if not isinstance(record, ReceiptNoted | TargetObserved | Unreadable) and (known is None or record.time > known):
        times[logged.partition] = record.time


def is_expired(entry: Entry, now: datetime | None) -> bool:
    """Tell whether an entry's time is over."""
    return entry.expires_at is not None and now is not None and entry.expires_at <= now


def unexpired(entries: Iterable[Entry], now: datetime | None) -> list[Entry]:
    """Those whose time is not over."""
    return [entry for entry in entries if not is_expired(entry, now)]


def index_entries(
    index: BoundIndex, body: bytes, prior: Iterable[Entry], name: str, recorded_at: datetime | None = None
) -> list[Entry]:
    """Entries of one object in one index.

    If the object cannot be decoded, or the function raises or yields an invalid key or value, the object's old entries
    stay, and entries under keys that begin with ERRORS say so. If entries of the index expire, their time counts from
    the record of the object.
    """
    lifetime = index.handler.expires
    expires_at = recorded_at + lifetime if recorded_at is not None and lifetime is not None else None
    try:
        entries: list[Entry] = []
        ordinals = Counter[str]()
        for key, value in _called(index, body):
            text = canonical_key(key)
            ordinal = ordinals[text]
            ordinals[text] += 1
            entries.append(Entry(index.name, text, ordinal, canonical(value), "", expires_at))
    except Interruption:
        raise
    except BaseException as error:  # noqa: BLE001 - a user's function may raise anything; only this object's entries are concerned
        message = described(error)
        own = (each for each in prior if each.index == index.name and not each.key.startswith(ERRORS))
        kept = [replace(each, expires_at=expires_at) for each in own]
        effect = "keeps its entries" if kept else "is left out"
        tell_fault("index", index.name, index.handler.function, error, subject=name, effect=effect)
        value = canonical({"object": name, "error": message})
        concerned = _concerned(index, body, {each.key for each in kept})
        return [*kept, *(Entry(index.name, ERRORS + key, 0, value, message, expires_at) for key in concerned)]
    return entries


class _Owned(Struct):
    metadata: Metadata


_owned: Final = msgspec.json.Decoder(_Owned)


def _concerned(index: BoundIndex, body: bytes, prior: Collection[str]) -> Collection[str]:
    """Keys under which an object that the index fails for is missed; one empty text: nobody knows them.

    Those of owners are in the object's metadata. Whether a kind has namespaces is not, so each has two.
    """
    handler = index.handler
    keys = set(prior)
    if handler.types[0] is Owner and handler.errors == "hold":
        with suppress(msgspec.ValidationError):  # of an external record, whose metadata nobody checks
            metadata = _owned.decode(body).metadata
            keys.add(canonical_key(handler.resource.owner(metadata.namespace, metadata.uid)))
            owners = sorted(metadata.owner_references, key=lambda each: not each.controller)
            for each in owners[:MOST_OWNERS]:
                group = each.api_version.rpartition("/")[0]
                for namespace in (metadata.namespace, ""):
                    keys.add(canonical_key(Owner(group, each.kind, namespace, each.uid)))
    return sorted(keys) if keys and handler.errors != "ignore" else ("",)


def _called(index: BoundIndex, body: bytes) -> list[tuple[Any, Any]]:
    """Call the index function, with its time limit and without I/O."""
    if index.handler.is_implicit:
        return index.handler.entries(body)
    return FunctionGuard(f"index {index.name}", VIEW_TIME).run(lambda: index.handler.entries(body))


def replace_entries(
    changes: Changes, prior: Iterable[Entry], fresh: Iterable[Entry], name: str, partition: int, sequence: int
) -> None:
    """Put the entries that an object has from now on into the changes, with the keys under which something changed."""
    old = {(e.index, e.key, e.ordinal): e for e in prior}
    new = {(e.index, e.key, e.ordinal): e for e in fresh}
    causes = changes.records_of.get(name, (sequence,))
    for place, entry in old.items():
        if place not in new:
            changes.entries[entry.index, entry.key, name, entry.ordinal] = None
            change_key(changes, entry, partition, sequence, causes)
    for place, entry in new.items():
        before = old.get(place)
        if before != entry:
            changes.entries[entry.index, entry.key, name, entry.ordinal] = entry
        if before is None or before.value != entry.value:
            change_key(changes, entry, partition, sequence, causes)


def change_key(changes: Changes, entry: Entry, partition: int, sequence: int, causes: Sequence[int]) -> None:
    """Note that an entry's key changed, and with it the whole index, for those who read all of it."""
    changes.change_key((entry.index, entry.key.removeprefix(ERRORS) or ERRORS), sequence, causes)
    if entry.key != ERRORS:
        changes.change_key((entry.index, whole_index_key(partition)), sequence, causes)
