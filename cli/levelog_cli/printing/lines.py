"""The edge at which text is printed: no character of an object's acts on a terminal, or begins a line of its own."""

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from levelog.handlers.callnames import in_words

_ACTING: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls, escapes, ends of lines
    "\u00ad\u200b\u2060-\u2064\ufeff"  # not seen at all
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the order in which others are shown: Unicode TR 36, bidirectional
    "\u2028\u2029\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def print_line(*lines: str) -> None:
    """Print lines that people read, escaped."""
    print_lines(map(in_words, lines))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come, escaped."""
    sys.stdout.writelines(f"{escaped(line)}\n" for line in lines)


def escaped(text: str) -> str:
    r"""The text with JSON's escapes, such as `\u001b`, for what acts on a terminal. A line of JSON says the same."""
    return _ACTING.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return _SHORT.get(found[0]) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def print_yaml(plain: Any, *, explicit_start: bool = False) -> None:
    """Print a document of YAML. Everything but ASCII is escaped in it if anything acts on a terminal."""
    from levelog.wire.manifests import as_yaml  # noqa: PLC0415 - commands load this module for their options

    text = as_yaml([plain])
    if any(_ACTING.search(line) for line in text.split("\n")):
        text = as_yaml([plain], is_ascii=True)
    sys.stdout.write(f"---\n{text}" if explicit_start else text)
