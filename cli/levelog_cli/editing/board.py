"""The levels of an application under development, as they change: a board below the log, or a line for each change."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

from levelog.errors import LevelogError
from levelog_cli.printing.forms import STATUS_COLOURS, is_coloured
from levelog_cli.printing.rows import level_cells
from levelog_cli.servers.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_cli.wiring.levelwatch import watch_levels
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_history.levels import LevelFilter, read_levels
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope

if TYPE_CHECKING:
    from rich.console import RenderableType

_PAUSE_SECONDS: Final = 0.5
_SHARE: Final = 3
"""The board takes at most one line in so many."""
_MARGIN: Final = 3
"""Characters: what Ctrl-C prints would otherwise begin a line."""
_QUIET: Final = "in_sync"
_COLUMNS: Final = ("VIEW", "PARENT", "STATUS", "ROUND", "DRIFT", "REASON")

Levels = Sequence[tuple[Scope, LevelLine]]


async def print_changes(settings: Settings) -> None:
    """Print a line for each level that changes, from the moment on when there are tables, until cancelled."""
    async for _ in _read(settings):
        break
    await watch_levels(settings, LevelFilter(), None)


async def show_board(settings: Settings, lines: int, heading: str) -> None:
    """Print what comes out of a pipe, and keep the levels below it, until the pipe ends.

    `lines` is a descriptor; stdout is a terminal.
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
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:

            async def follow() -> None:
                async for levels in _read(settings):
                    live.update(_board(levels, heading), refresh=True)

            following = loop.create_task(follow())
            try:
                while line := await reader.readline():
                    console.print(Text(line.decode(errors="replace").rstrip("\n")), soft_wrap=True)
            finally:
                following.cancel()
                await asyncio.wait([following])
    finally:
        transport.close()


async def _read(settings: Settings) -> AsyncGenerator[Levels]:
    """The levels, every half a second, as soon as there are tables that hold an application."""
    while True:
        try:
            async with await open_to_read(settings) as database:
                while True:
                    scopes = await chosen_scopes(settings, database)
                    async with database.reading() as connection:
                        levels = await read_levels(connection, scopes, LevelFilter())
                    yield levels.lines
                    await asyncio.sleep(_PAUSE_SECONDS)
        except LevelogError:  # not there yet, or being migrated: the application itself says what is wrong
            await asyncio.sleep(_PAUSE_SECONDS)


def _board(levels: Levels, heading: str) -> "RenderableType":
    """A table of the levels, those that are not in sync first, as many as there is room for."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    room = max(3, shutil.get_terminal_size().lines // _SHARE)
    ordered = sorted(levels, key=lambda each: (each[1].status == _QUIET, each[1].view, each[1].parent))
    quiet = sum(line.status == _QUIET for _, line in levels)
    left = len(ordered) - room
    counted = f"{quiet} of {len(levels)} in sync" + (f", {left} more" if left > 0 else "")
    table = Table(
        *_COLUMNS,
        title=f"{heading} · {counted}",
        title_justify="left",
        box=None,
        pad_edge=False,
        width=shutil.get_terminal_size().columns - _MARGIN,
    )
    for scope, line in ordered[:room]:
        table.add_row(
            *(
                Text(cell, style=STATUS_COLOURS.get(cell, ""), no_wrap=True, overflow="ellipsis")
                for cell in level_cells(scope, line, _COLUMNS)
            )
        )
    return table
