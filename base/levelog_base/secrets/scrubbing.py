"""Removes secret values from other programs' texts, mainly error messages; tells what stands for redacted ones."""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

REDACTED: Final = "[redacted]"
SHORTEST: Final = 3
"""Characters below which a value is no secret, and would be found everywhere."""
_SHORT: Final = 6
"""Below so many characters a value is replaced as a word of its own only."""
PREFIX: Final = "hmac-sha256:"
HASHED: Final = re.compile(rb"hmac-sha256:[0-9a-f]{64}")
"""What stands for a redacted value in all that is recorded."""
_NEVER_ESCAPED: Final = re.compile(r"[A-Za-z0-9._-]*")


def scrub(text: str, values: Iterable[str]) -> str:
    """Replace each value, also quoted, escaped, in base64, or cut off by the end of the text.

    Limits: a value that the text has in another form (other case, hashed, compressed, in pieces) is not found.
    """
    known = sorted({value for value in values if len(value) >= SHORTEST}, key=lambda value: (-len(value), value))
    for value in known:
        for form in _forms(value):
            text = _replace(text, form)
    for value in known:
        text = _without_cut(text, value)
    return text


def _replace(text: str, form: str) -> str:
    if form not in text:
        return text
    if len(form) >= _SHORT:
        return text.replace(form, REDACTED)
    return re.sub(rf"(?<![\w-]){re.escape(form)}(?![\w-])", lambda _: REDACTED, text)


def _forms(value: str) -> Iterator[str]:
    """A value as it is, and as JSON, Go, Python and URLs write it; the longest forms of one text first."""
    data = value.encode(errors="surrogatepass")
    forms = {value}
    if not _NEVER_ESCAPED.fullmatch(value):
        as_json = json.dumps(value, ensure_ascii=False)[1:-1]
        forms |= {
            as_json,
            json.dumps(value)[1:-1],
            repr(value)[1:-1],
            quote(value, safe="", errors="replace"),
            _html_safe(as_json),
            json.dumps(as_json, ensure_ascii=False)[1:-1],  # JSON within JSON: a manifest that a message quotes
        }
    for encoded in (b64encode(data).decode(), urlsafe_b64encode(data).decode()):
        forms |= {encoded, encoded.rstrip("=")}
    yield from sorted(forms, key=lambda form: (-len(form), form))


def _html_safe(text: str) -> str:
    """As Go's encoding/json writes it: https://pkg.go.dev/encoding/json#HTMLEscape."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _without_cut(text: str, value: str) -> str:
    """Remove the beginning of a value at the end of a text, or before …, where a message was cut."""
    for form in (value, b64encode(value.encode(errors="surrogatepass")).decode()):
        if form[:_SHORT] not in text:  # of thousands of values, a text quotes few
            continue
        for length in range(len(form) - 1, _SHORT - 1, -1):
            beginning = form[:length]
            if text.endswith(beginning):
                text = text[:-length] + REDACTED
            text = text.replace(f"{beginning}…", f"{REDACTED}…")
    return text


def is_redacted(value: Any) -> bool:
    """Whether a value is a hash that stands for another one."""
    return isinstance(value, str) and HASHED.fullmatch(value.encode(errors="replace")) is not None
