"""The page of wakes: why each client of an audit log wakes, as `levelog wakes` says it."""

from typing import Any

from levelog_wakes.answer import WakesFound
from levelog_wakes.table import COLUMNS, cells, footer, rows


def wakes_page(found: WakesFound) -> dict[str, Any]:
    """The values of the template."""
    return {
        "columns": [*COLUMNS],
        "rows": [(each, cells(each)) for each in rows(found)],
        "footer": footer(found),
        "remarks": found.remarks,
    }
