"""Looking for secret values in whatever was written down."""

import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b\x08")
_MOST_BYTES = 4 * 1024 * 1024


def found_in(data: bytes, canaries: Iterable[str]) -> set[str]:
    """Canaries that are there: as they are, in base64 wherever they begin, in hexadecimal, or within zlib and gzip."""
    pieces = [data, *_decompressed(data)]
    return {canary for canary in canaries if any(form in piece for form in _forms(canary) for piece in pieces)}


def found_in_files(folder: Path, canaries: Iterable[str]) -> dict[str, set[str]]:
    """Canaries by the file that holds them."""
    wanted = set(canaries)
    hits = {str(path): found_in(path.read_bytes(), wanted) for path in sorted(folder.rglob("*")) if path.is_file()}
    return {path: found for path, found in hits.items() if found}


def _forms(canary: str) -> list[bytes]:
    data = canary.encode()
    # Three bytes are four characters; what shares a group with a neighbour is left out.
    inner = [b64encode(b"\0" * shift + data)[(0, 2, 3)[shift] :] for shift in range(3)]
    encoded = [text.rstrip(b"=")[: -1 if text.endswith(b"=") else None] for text in inner]
    return [data, *encoded, data.hex().encode()]


def _decompressed(data: bytes) -> Iterator[bytes]:
    for magic in _ZLIB:
        start = data.find(magic)
        while start >= 0:
            with suppress(zlib.error):
                yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data[start:], _MOST_BYTES)
            start = data.find(magic, start + 1)
