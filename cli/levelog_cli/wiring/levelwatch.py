"""`levelog levels --watch`: the levels as they are, then each that changes.

The tables are read again and again, since a reader may be allowed nothing but SQL, and notifications tell of intents,
not of levels. What changes twice between two readings is shown once.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from levelog_cli.printing.columns import level_rows, levels_table
from levelog_cli.printing.lines import print_json
from levelog_cli.printing.plain import levels_plain
from levelog_cli.printing.tables import GrowingTable
from levelog_cli.servers.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_history.pastlevels import LevelsNow, levels_now, read_levels
from levelog_store.connect.database import Database
from levelog_store.look.levelpages import LevelQuery
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope

GONE: Final = "gone"
"""Shown for a level whose parent, or view, is not there any more."""
_PAUSE_SECONDS: Final = 1.0
_SHARE: Final = 10
"""At most one of so many seconds is spent in the database, however many levels there are."""


async def watch_levels(settings: Settings, wanted: LevelQuery, *, as_json: bool = False) -> None:
    """Print the levels that are selected, and each of them again when it changes, until cancelled.

    Raises as `levels_now`, and Unavailable when the database goes away.
    """
    async with await open_to_read(settings) as database:
        scopes = await chosen_scopes(settings, database)
        has_several = len(scopes) > 1
        table = GrowingTable(*levels_table(has_several))
        async with aclosing(changes(database, scopes, wanted)) as changing:
            async for levels in changing:
                if as_json:
                    print_json(*levels_plain(levels))
                else:
                    table.add(level_rows(levels.lines, has_several=has_several))
                sys.stdout.flush()


async def changes(database: Database, scopes: list[Scope], wanted: LevelQuery) -> AsyncGenerator[LevelsNow]:
    """The levels now, then each that differs; with a status, those that come to have it."""
    known: dict[tuple[int, str, str], tuple[Scope, LevelLine]] = {}
    everything = replace(wanted, statuses=())
    read = levels_now
    while True:
        begun = time.monotonic()
        async with database.reading() as connection:
            levels = await read(connection, scopes, everything)
        took = time.monotonic() - begun
        read = read_levels  # what was there once may go
        now = {(scope.number, line.view, line.parent): (scope, line) for scope, line in levels.lines}
        changed = [
            (scope, line) for key, (scope, line) in now.items() if key not in known or _differ(known[key][1], line)
        ]
        gone = [
            (scope, replace(line, status=GONE, reason="", drift=None, writes=[], tried=None))
            for key, (scope, line) in known.items()
            if key not in now
        ]
        known = now
        shown = [each for each in (*changed, *gone) if wanted.takes(each[1].status)]
        if shown:
            yield replace(levels, lines=shown)
        await asyncio.sleep(max(_PAUSE_SECONDS, took * _SHARE))


def _differ(before: LevelLine, now: LevelLine) -> bool:
    """Tell whether a level is shown again.

    It is not for another evaluation alone, for how far code is recomputed, or for how many calls wait beside its own.
    """
    if before.evaluated_at is None and now.evaluated_at is None:
        return before.status != now.status
    shown = ("status", "round", "drift", "reason")
    return any(getattr(before, name) != getattr(now, name) for name in shown)
