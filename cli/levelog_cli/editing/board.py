"""The levels of an application under development, as they change: a table below the log, or a line for each change."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from typing import Final

from levelog.escapes import escaped
from levelog_base.errors import LevelogError
from levelog_cli.printing.columns import LEVEL_COLUMNS, LEVEL_PAINTS, level_cells
from levelog_cli.printing.tables import folded, is_coloured, table_lines
from levelog_cli.servers.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_cli.wiring.levelwatch import watch_levels
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_history.pastlevels import read_levels
from levelog_store.look.levelpages import ALL
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope

_PAUSE_SECONDS: Final = 0.5
_SHARE: Final = 3
"""The board takes at most one line in so many."""
_SHARE_OF_TROUBLE: Final = 2
"""The same while there is something to read."""
_NOTE: Final = "! "
_MARGIN: Final = 3
"""Characters: what Ctrl-C prints would otherwise begin a line."""
_QUIET: Final = "in_sync"

Levels = Sequence[tuple[Scope, LevelLine]]


async def print_changes(settings: Settings) -> None:
    """Print a line for each level that changes, from the moment on when there are tables, until cancelled."""
    async for _ in _read(settings):
        break
    await watch_levels(settings, ALL)


async def show_board(settings: Settings, lines: int, noted: Connection, heading: str) -> None:
    """Print what comes out of a pipe, and keep the levels and what is noted below it, until the pipe ends.

    `lines` is a descriptor; stdout is a terminal. Through `noted` come subjects, each with its lines.
    """
    from rich.console import Console  # noqa: PLC0415 - for terminals only
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    console = Console(no_color=not is_coloured())
    reader = asyncio.StreamReader(limit=2**20)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(lines, "rb", buffering=0)
    )
    levels: Levels = []
    notes: dict[str, list[str]] = {}
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def draw() -> None:
                size = shutil.get_terminal_size()
                shown = "\n".join(
                    board_lines(levels, heading, [*chain(*notes.values())], size.columns - _MARGIN, size.lines)
                )
                live.update(Text.from_ansi(shown, no_wrap=True, overflow="ellipsis"), refresh=True)

            async def follow() -> None:
                nonlocal levels
                async for levels in _read(settings):  # noqa: B007 - what draws reads it
                    draw()

            def take() -> None:
                try:
                    subject, said = noted.recv()
                except EOFError:  # all others have ended
                    loop.remove_reader(noted.fileno())
                else:
                    notes[subject] = said
                    draw()

            following = loop.create_task(follow())
            loop.add_reader(noted.fileno(), take)
            try:
                while line := await _next_line(reader):
                    console.print(Text(line.decode(errors="replace").rstrip("\n")), soft_wrap=True)
            finally:
                loop.remove_reader(noted.fileno())
                following.cancel()
                await asyncio.wait([following])
    finally:
        transport.close()


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """A line; of one that is longer than the reader's limit, a part after the other. Empty at the end."""
    try:
        return await reader.readuntil()
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as full:
        return await reader.readexactly(full.consumed)


async def _read(settings: Settings) -> AsyncGenerator[Levels]:
    """The levels, every half a second, as soon as there are tables that hold an application."""
    while True:
        try:
            async with await open_to_read(settings) as database:
                while True:
                    scopes = await chosen_scopes(settings, database)
                    async with database.reading() as connection:
                        levels = await read_levels(connection, scopes, ALL)
                    yield levels.lines
                    await asyncio.sleep(_PAUSE_SECONDS)
        except LevelogError:  # not there yet, or being migrated: the application itself says what is wrong
            await asyncio.sleep(_PAUSE_SECONDS)


def board_lines(levels: Levels, heading: str, notes: Sequence[str], width: int, height: int) -> list[str]:
    """The board of a terminal of so many characters and lines: notes whole, then levels as far as there is room.

    Those that are not in sync come first, with all that is to be said of them.
    """
    quiet = sum(line.status == _QUIET for _, line in levels)
    room = max(3, height // (_SHARE_OF_TROUBLE if notes or quiet < len(levels) else _SHARE))
    ordered = sorted(levels, key=lambda each: (each[1].status == _QUIET, each[1].view, each[1].parent))
    shown = 0
    table: list[str] = []
    while shown < len(ordered):
        rows = [level_cells(line) for _, line in ordered[: shown + 1]]
        taller = table_lines(LEVEL_COLUMNS, rows, width, LEVEL_PAINTS)
        if shown and len(taller) > room:
            break
        table, shown = taller, shown + 1
    left = len(ordered) - shown
    counted = f" · {quiet} of {len(levels)} in sync" if levels else ""
    headings = folded(f"{heading}{counted}" + (f", {left} more" if left else ""), width=width)
    for note in notes:
        headings += folded(escaped(note), _NOTE, width)
    return headings + table
