"""Characters of a text that act on what shows it, as escapes: no object's name acts on a terminal or a page."""

import re
from typing import Final

_ACTING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls, escapes, ends of lines
    "\u00ad\u200b\u2060-\u2064\ufeff"  # not seen at all
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the order in which others are shown: Unicode TR 36, bidirectional
    "\u2028\u2029\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_acting(text: str) -> bool:
    """Tell whether there is any such character in a text."""
    return _ACTING.search(text) is not None


def escaped(text: str) -> str:
    r"""The text with JSON's escapes, such as `\u001b`, for what acts on a terminal. A line of JSON says the same."""
    return _ACTING.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return _SHORT.get(found[0]) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
