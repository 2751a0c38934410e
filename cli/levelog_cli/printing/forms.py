"""Forms of an answer other than text: `--output`, or `--json` for the commonest; what goes with `kubectl` in scripts.

JSON and YAML hold the same: one document for a command that answers once, one line or document for each entry of one
that goes on.
"""

import os
import sys
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import typer

from levelog_cli.printing.lines import print_lines, print_yaml

Form = Literal["json", "yaml", "wide", "name"]
PlainForm = Literal["json", "yaml"]

_COLOURS: Final = {
    "ok": "green",
    "note": "yellow",
    "wrong": "red",
    "in_sync": "green",
    "settling": "yellow",
    "drifting": "yellow",
    "deleting": "yellow",
    "blocked": "red",
    "failed": "red",
}


def print_plain(plain: object, form: PlainForm = "json") -> None:
    """Print one line of JSON, or one document of YAML."""
    encoded = msgspec.json.encode(plain)
    if form == "json":
        print_lines([encoded.decode()])
    else:
        print_yaml(msgspec.json.decode(encoded), explicit_start=True)


def print_answer(plain: object, lines: Iterable[str], form: PlainForm | None) -> None:
    """Print the plain answer in the form that was asked for, else the lines, which are not escaped yet."""
    if form:
        print_plain(plain, form)
    else:
        print_lines(lines)


def coloured(word: str) -> str:
    """A word for a finding or a status, in its colour where `is_coloured`."""
    return typer.style(word, fg=_COLOURS[word]) if is_coloured() and word in _COLOURS else word


def is_coloured() -> bool:
    """Whether stdout is a terminal that shows colours, and nobody objects: https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
