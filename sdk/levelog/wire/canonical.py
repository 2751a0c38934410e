"""One encoding for everything that is compared, hashed or stored as JSON."""

from hashlib import sha256
from typing import Any

import msgspec

from levelog.calls.mappings import RecordedMapping, RecordedSequence, plain


def _plain(value: Any) -> Any:
    if isinstance(value, RecordedMapping | RecordedSequence):
        return plain(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")  # as msgspec says it


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_plain)


def canonical(value: Any) -> bytes:
    """Encode to JSON with sorted keys and no white space; equal values give equal bytes.

    Raises TypeError for a value that has no JSON form.
    """
    return _encoder.encode(value)


def storable(text: str) -> str:
    """A text that every database, and JSON, takes: a NUL and lone surrogates become their escapes."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def digest(*parts: bytes | str) -> str:
    """Hex SHA-256 over the parts and their borders, cut to 128 bits: an identity, not a signature."""
    state = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.hexdigest()[:32]
