"""The edge at which text is printed: no character of an object's acts on a terminal, or begins a line of its own."""

import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from levelog.escapes import escaped, is_acting
from levelog.handlers.callnames import in_words


def print_line(*lines: str) -> None:
    """Print lines that people read, escaped."""
    print_lines(map(in_words, lines))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come, escaped."""
    sys.stdout.writelines(f"{escaped(line)}\n" for line in lines)


def print_json(*plain: object) -> None:
    """Print a line of JSON for each value."""
    print_lines(msgspec.json.encode(each).decode() for each in plain)


def print_answer(*plain: object, lines: Iterable[str], as_json: bool) -> None:
    """Print the plain answers if JSON is asked for, else the lines, which are not escaped yet."""
    if as_json:
        print_json(*plain)
    else:
        print_lines(lines)


def print_yaml(plain: Any) -> None:
    """Print a document of YAML. Everything but ASCII is escaped in it if anything acts on a terminal."""
    from levelog_base.wire.manifests import as_yaml  # noqa: PLC0415 - commands load this module for their options

    text = as_yaml([plain])
    if any(is_acting(line) for line in text.split("\n")):
        text = as_yaml([plain], is_ascii=True)
    sys.stdout.write(text)
