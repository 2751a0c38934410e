"""The page of levels: what is not in sync, since when, and what each waits for; filter and order are in its address."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from levelog.handlers.callnames import shown_write
from levelog_base.errors import ConfigurationError
from levelog_history.differences import drift_text
from levelog_history.reach import Moment
from levelog_store.decide.decisions import UNDONE
from levelog_store.look.levelpages import OUT_OF_SYNC, LevelOrder, LevelQuery
from levelog_store.look.overview import WriteLine, error_of
from levelog_store.rows import STATUSES
from levelog_ui.links import number_of, object_path, with_query
from levelog_ui.past import Past
from levelog_ui.places import LevelPlace, page_of, round_of_news

MOST: Final = 100
"""Levels on one page."""
_MOST_PAGES: Final = 1_000_000
_MOST_WRITES: Final = 3
_ORDERS: Final[dict[LevelOrder, str]] = {
    "since": "longest first",
    "newest": "newest first",
    "parent": "parent",
    "view": "view",
    "round": "most rounds",
}


async def levels_page(past: Past, query: Mapping[str, str]) -> dict[str, Any]:
    """The values of the template. Raises ConfigurationError for an unknown filter or order.

    `?status=failed&view=webs/pods&name=shop&order=round`; status `any` shows those in sync too. `&at=75` shows them as
    they were at a record, a time, or so long ago.
    """
    status, order = query.get("status", ""), query.get("order", "since")
    if status not in ("", "any", *STATUSES):
        raise ConfigurationError(f"there is no status {status[:40]!r}: it is one of any, {', '.join(STATUSES)}")
    if order not in _ORDERS:
        raise ConfigurationError(f"there is no order {order[:40]!r}: it is one of {', '.join(_ORDERS)}")
    given = {"status": status, "view": query.get("view", "").strip(), "name": query.get("name", "").strip()}
    at = query.get("at", "").strip()
    moment = Moment.parse(at, datetime.now(UTC)) if at else None
    then = await past.levels_at(moment) if moment is not None else None
    counts = await past.count_levels() if then is None else Counter(each.line.status for each in then)
    out_of_sync = sum(counts.get(each, 0) for each in OUT_OF_SYNC)
    is_any = status == "any" or not (status or out_of_sync)
    wanted = LevelQuery(
        statuses=() if is_any else (status,) if status else OUT_OF_SYNC,
        view=given["view"],
        name=given["name"],
        order=order,
    )
    page = number_of(query.get("page", "")) or 0
    if page > _MOST_PAGES:
        raise ConfigurationError(f"there is no page {page} of levels")
    place = {"skip": page * MOST, "most": MOST + 1}
    if then is None:
        found = await past.levels(wanted, **place)
    else:
        found = page_of(then, wanted, **place)
    shown = found[:MOST]
    refusals = await past.refusals(
        {each.name: each.line.round if then is not None else round_of_news(each.line) for each in shown}
    )
    given |= {"order": "" if order == "since" else order, "at": at}
    return {
        "given": given,
        "rows": [_row(each) | {"refusals": refusals.get(each.name)} for each in shown],
        "has_several": len({each.application for each in shown}) > 1,
        "counts": [(each, counts.get(each, 0)) for each in STATUSES],
        "total": sum(counts.values()),
        "out_of_sync": out_of_sync,
        "orders": _ORDERS,
        "order": order,
        "views": await past.views(),
        "moment": str(moment or ""),
        **(await _steps(past, given, moment)),
        "next": with_query("/levels", {**given, "page": page + 1}) if len(found) > MOST else "",
        "first": with_query("/levels", given) if page else "",
    }


async def _steps(past: Past, given: dict[str, str], moment: Moment | None) -> dict[str, str]:
    """Addresses of the same page one record before and after."""
    sequence = moment.sequence if moment is not None else 0
    first, _, last = await past.source.ends() if sequence else (0, None, 0)
    return {
        "record_before": with_query("/levels", {**given, "at": sequence - 1}) if sequence > first else "",
        "record_after": with_query("/levels", {**given, "at": sequence + 1}) if sequence < last else "",
        "now": with_query("/levels", {**given, "at": ""}) if moment is not None else "",
    }


def _row(place: LevelPlace) -> dict[str, Any]:
    line = place.line
    drift = drift_text(line.differing)
    others = [each for each in line.writes if each.target not in line.reason]  # the reason links to those in it
    waits = [_wait(line.view, each) for each in others[:_MOST_WRITES]]
    return {
        "application": place.application,
        "line": line,
        "drift": drift,
        "is_contested": line.status == "failed" and not drift and line.reason.startswith(UNDONE),
        "waits": waits,
        "more": len(others) - len(waits),
        "tries": line.tried.count if line.tried else max((each.attempts for each in line.writes), default=0),
    }


def _wait(view: str, write: WriteLine) -> dict[str, str]:
    return {
        "text": shown_write(view, write.verb, write.target),
        "href": "" if write.verb == "call" else object_path(write.target),
        "state": write.state,
        "error": error_of(view, write.verb, write.target, write.error),
    }
