"""Keys of indices: their text, those that views ask for, and those under which levelog keeps entries of its own."""

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.resources import Owner
from levelog_base.wire.canonical import canonical
from levelog_store.rows import IndexKey

MAX_KEY_BYTES: Final = 1024
"""A longer index key does not fit into a B-tree page; the entry is marked with an error instead."""


def canonical_key(key: object) -> str:
    """Text of an index key: JSON scalars and tuples of them.

    Raises TypeError for another kind of key, ValueError for one over 1,024 bytes.
    """
    _require_scalars(key)
    text = canonical(key)
    if len(text) > MAX_KEY_BYTES:
        raise ValueError(f"key of {len(text)} bytes; {MAX_KEY_BYTES} are allowed: {text[:60].decode()}…")
    return text.decode()


def lookup_key(index: str, key_type: object, key: object) -> str:
    """The same of a key that an index of such keys is asked for.

    Raises TypeError for anything but an owner where keys are owners: a uid alone finds nothing, for ever.
    """
    if key_type is Owner and not isinstance(key, Owner):
        raise TypeError(f"index {index} is by Owner: look up an object's as_owner, not {key!r}")
    return canonical_key(key)


def _require_scalars(key: object) -> None:
    if isinstance(key, tuple):
        for part in key:  # pyright: ignore[reportUnknownVariableType]
            _require_scalars(part)
    elif key is not None and not isinstance(key, str | int | float | bool):
        raise TypeError(
            f"key {key!r} is a {type(key).__name__}; keys are strings, numbers, booleans, None and tuples of them"
        )


def key_from(text: str) -> Any:
    """The key of a canonical text."""
    return _as_key(msgspec.json.decode(text))


def _as_key(value: Any) -> Any:
    return tuple(_as_key(part) for part in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


CONTACT: Final = "@contact"
"""Name of the index, and of the object whose entries it holds: one for each partition where a resource is stale."""


def contact_key(resource: str) -> IndexKey:
    """The key for the contact with one resource, `pods`."""
    return CONTACT, canonical_key(resource)


def calls_key(parent_uid: str) -> str:
    """Key of an index of an effect."""
    return canonical(parent_uid).decode()


class _Called(Struct):
    """What counts in levelog of a call that took place."""

    idempotency_key: str
    called_at: datetime
    name: str = ""


kept_call: Final = msgspec.json.Decoder(_Called)
"""Reads the values of the indices of effects."""
