"""The edge at which text is printed: no character of an object's acts on a terminal, or begins a line of its own."""

import sys
from collections.abc import Iterable
from typing import Any

from levelog.escapes import escaped, is_acting
from levelog.handlers.callnames import in_words


def print_line(*lines: str) -> None:
    """Print lines that people read, escaped."""
    print_lines(map(in_words, lines))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they come, escaped."""
    sys.stdout.writelines(f"{escaped(line)}\n" for line in lines)


def print_yaml(plain: Any, *, explicit_start: bool = False) -> None:
    """Print a document of YAML. Everything but ASCII is escaped in it if anything acts on a terminal."""
    from levelog_base.wire.manifests import as_yaml  # noqa: PLC0415 - commands load this module for their options

    text = as_yaml([plain])
    if any(is_acting(line) for line in text.split("\n")):
        text = as_yaml([plain], is_ascii=True)
    sys.stdout.write(f"---\n{text}" if explicit_start else text)
