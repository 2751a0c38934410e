"""Keys of indices: the user's in their canonical form, and those that stand for something else."""

from typing import Final

from levelog.canonical import canonical

WHOLE_INDEX: Final = "*"
"""Begins the key on which a read of a whole index depends, one for each partition; no canonical key begins so."""

MAX_KEY_BYTES: Final = 1024
"""A longer index key would not fit into a B-tree page beside its neighbours; the entry is marked instead."""


def canonical_key(key: object) -> str:
    """Text of an index key: JSON scalars and tuples of them.

    Raises TypeError for another kind of key, ValueError for one over 1,024 bytes.
    """
    _require_scalars(key)
    text = canonical(key)
    if len(text) > MAX_KEY_BYTES:
        raise ValueError(f"key of {len(text)} bytes; {MAX_KEY_BYTES} are allowed: {text[:60].decode()}…")
    return text.decode()


def _require_scalars(key: object) -> None:
    if isinstance(key, tuple):
        for part in key:  # pyright: ignore[reportUnknownVariableType]
            _require_scalars(part)
    elif key is not None and not isinstance(key, str | int | float | bool):
        raise TypeError(
            f"key {key!r} is a {type(key).__name__}; keys are strings, numbers, booleans, None and tuples of them"
        )
