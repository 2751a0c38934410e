"""The page of fields: those that wake levels for nothing, and those that several writers contest."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from levelog_history.reach import Moment
from levelog_history.writers import Contests, Wakings, Writers, revisions_after
from levelog_ui.past import Past

_MOST: Final = 50
"""Rows of each table; of more, how many there are."""


async def fields_page(past: Past, query: Mapping[str, str]) -> dict[str, Any]:
    """The values of the template. Raises ConfigurationError for a moment that is none.

    `?since=1h` counts what came after: a sequence, a time, or how long ago; without it, all that is recorded.
    """
    since = query.get("since", "").strip()
    start = Moment.parse(since, datetime.now(UTC)) if since else Moment()
    writers, contests, wakings = Writers(), Contests(), Wakings(await past.woke(start))
    async for revision in revisions_after(past.source, (), start):
        for each in (writers, contests, wakings):
            each.take(revision)
    tables: dict[str, Sequence[Any]] = {
        "wakes": wakings.found(),
        "contests": contests.found(),
        "writers": writers.found(),
    }
    return {
        "since": since,
        "most": _MOST,
        **{name: rows[:_MOST] for name, rows in tables.items()},
        "more": {name: len(rows) - _MOST for name, rows in tables.items()},
        "renews": False,
    }
