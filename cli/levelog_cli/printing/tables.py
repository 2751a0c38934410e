"""Aligned columns on stdout: folded to the width of a terminal, and one row a line for whatever reads a pipe."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import typer

from levelog.escapes import escaped
from levelog.handlers.callnames import in_words

Paint = Callable[[str], str]
"""Colours a text, or leaves it as it is; it looks as long as before."""

_PLAIN: Final[Mapping[int, Paint]] = {}
UNLIMITED: Final = 1 << 20
_GAP: Final = 2
_LEAST: Final = 8
"""Columns are not folded to less, however many there are."""
_INDENT: Final = "    "
_LABEL: Final = 10
"""Characters that a label takes."""
_LEAST_TEXT: Final = 20
"""Text behind a label is not folded to less."""
_BREAKS: Final = ",/-"
"""A word is broken after these: they are between the parts of an object's name."""
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


class GrowingTable:
    """Rows that come one after the other, a line each; a column is as wide as its widest cell so far."""

    def __init__(self, columns: Sequence[str], paints: Mapping[int, Paint]) -> None:
        self._columns = columns
        self._widths: list[int] = []
        self._paints = paints

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, the first ones below the headings."""
        cells = _escaped(rows)
        printed = cells if self._widths else [self._columns, *cells]
        widths = self._widths or [0] * len(self._columns)
        self._widths = [
            max(width, *map(len, cells)) for width, cells in zip(widths, zip(*printed, strict=True), strict=True)
        ]
        sys.stdout.writelines(f"{_line(row, self._widths, self._paints)}\n" for row in printed)


def coloured(word: str) -> str:
    """A word for a finding or a status, in its colour where `is_coloured`."""
    return typer.style(word, fg=_COLOURS[word]) if is_coloured() and word in _COLOURS else word


def is_coloured() -> bool:
    """Whether stdout is a terminal that shows colours, and nobody objects: https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_narrow() -> bool:
    """Whether somebody reads it on a terminal, or asks for a width by COLUMNS."""
    return line_width() < UNLIMITED


def line_width() -> int:
    """The width of a line: that of the terminal, or COLUMNS; UNLIMITED in a pipe."""
    return shutil.get_terminal_size((UNLIMITED, 0)).columns


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0, paints: Mapping[int, Paint] = _PLAIN
) -> list[str]:
    """The lines of rows below their headings, which leave nothing out; cells are escaped.

    The width is that of the terminal, or COLUMNS, unless another is given. Where it is limited, cells that do not fit
    are folded, and the last column, a remark, goes below its row. `paints` colours the cells of a column.
    """
    rows, width = _escaped(rows), width or line_width()
    if width >= UNLIMITED:
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        return [_line(row, widths, paints) for row in (columns, *rows)]
    shown = [row[:-1] for row in (columns, *rows)]
    widths = _fitted([max(map(len, column)) for column in zip(*shown, strict=True)], width)
    lines: list[str] = []
    for row, remark in zip(shown, ("", *(row[-1] for row in rows)), strict=True):
        lines += _folded_row(row, widths, paints)
        lines += folded(remark, _INDENT, width)
    return lines


def _escaped(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[escaped(in_words(cell)) for cell in row] for row in rows]


def folded(text: str, begin: str = "", width: int = 0) -> list[str]:
    """Lines of at most that width, or of the one that there is; `begin` is before the first, and blanks before others.

    Words stay whole, names too; one that is longer than a line is broken between its parts if that can be.
    """
    room = (width or line_width()) - len(begin)
    room = max(room, _LEAST_TEXT) if begin else room
    lines: list[str] = []
    for word in re.findall(r" *[^ ]+", re.sub(r"[\t-\r]", " ", in_words(text).rstrip())):
        if lines and len(lines[-1]) + len(word) <= room:
            lines[-1] += word
            continue
        rest = word.strip()
        while len(rest) > room:
            at = max(rest.rfind(mark, 0, room) for mark in _BREAKS) + 1 or room
            lines.append(rest[:at])
            rest = rest[at:]
        lines += [rest] if rest else []
    return [(" " * len(begin) if number else begin) + line for number, line in enumerate(lines)]


def labelled(label: str, text: str) -> list[str]:
    """The lines of a text that is about something, `label`, of a decision."""
    return folded(text, f"  {label:<{_LABEL}}")


def _fitted(widths: list[int], width: int) -> list[int]:
    """Take from the widest column until the row fits."""
    fitted = list(widths)
    while sum(fitted) + _GAP * (len(fitted) - 1) > width:
        widest = max(range(len(fitted)), key=fitted.__getitem__)
        if fitted[widest] <= _LEAST:
            break
        fitted[widest] -= 1
    return fitted


def _folded_row(row: Sequence[str], widths: Sequence[int], paints: Mapping[int, Paint]) -> list[str]:
    cells = [folded(cell, width=width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    return [_line([cell[n] if n < len(cell) else "" for cell in cells], widths, paints) for n in range(height)]


def _line(row: Sequence[str], widths: Sequence[int], paints: Mapping[int, Paint]) -> str:
    cells = [
        (paints[number](cell) if number in paints else cell) + " " * (width - len(cell))
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return (" " * _GAP).join(cells).rstrip()
