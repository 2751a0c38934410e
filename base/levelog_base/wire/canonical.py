"""One JSON encoding for everything that is compared, hashed or stored, and pointers into it (RFC 6901)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from math import isfinite
from typing import Any, Final

import msgspec

from levelog_base.mappings import RecordedMapping, RecordedSequence, plain


def _plain(value: Any) -> Any:
    if isinstance(value, RecordedMapping | RecordedSequence):
        return plain(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")  # as msgspec says it


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_plain)


canonical_json: Final[Callable[[Any], bytes]] = _encoder.encode
"""As `canonical`, of what was decoded from JSON: it looks for no numbers that JSON lacks."""


def canonical(value: Any) -> bytes:
    """Encode to JSON with sorted keys and no white space; equal values give equal bytes.

    Raises TypeError for a value that has no JSON form, ValueError for NaN and infinities.
    """
    found = _encoder.encode(value)
    if b"null" in found:
        refuse_unwritable(value)
    return found


_WRITABLE: Final = frozenset({type(None), bool, int, str, bytes, RecordedMapping, RecordedSequence})
"""The last two hold what was decoded from JSON."""


def refuse_unwritable(value: Any) -> None:
    """Raises ValueError for NaN and infinities, which msgspec writes as null: in a patch, that deletes a field."""
    kind = type(value)
    if kind in _WRITABLE:
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} has no JSON form")
    elif kind is dict or isinstance(value, Mapping):
        for key, part in value.items():  # pyright: ignore[reportUnknownVariableType]
            refuse_unwritable(key)
            refuse_unwritable(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            refuse_unwritable(part)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            refuse_unwritable(getattr(value, name))
    elif is_dataclass(value):
        for each in fields(value):
            refuse_unwritable(getattr(value, each.name))


def storable(text: str) -> str:
    """A text that every database, and JSON, takes: a NUL and lone surrogates become their escapes."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def digest(*parts: bytes | str) -> str:
    """Hex SHA-256 over the parts and their borders, cut to 128 bits: an identity, not a signature."""
    data = [part.encode() if isinstance(part, str) else part for part in parts]
    return sha256(b"".join([piece for each in data for piece in (len(each).to_bytes(8, "big"), each)])).hexdigest()[:32]


def is_other(one: object, other: object) -> bool:
    """Tell whether two values differ as JSON has them: true is not 1, also inside of lists and mappings."""
    if one != other:
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return type(one) is not type(other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return any(map(is_other, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return any(is_other(one[key], other[key]) for key in one)
    return False


def pointer_to(keys: Iterable[str]) -> str:
    """The JSON pointer that these keys make, one below the other."""
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def keys_of(pointer: str) -> list[str]:
    """The keys of a JSON pointer."""
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
