"""`kopf.on.resume`: called once for each existing object when the operator starts.

What counts as a start is a record: ingest notes when its process loaded the file.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import new_class
from typing import Any, Final

from levelog.compat.kopf.attempts import Attempts
from levelog.compat.kopf.given.keywords import kopf_essence
from levelog.compat.kopf.kinds.changing import ChangeHandler
from levelog.compat.kopf.kinds.pacing import PacedHandler
from levelog.edges import Edge
from levelog.effects import Call
from levelog.handlers.callnames import CHANGED
from levelog.handlers.forobjects import InspectView, calls_of, made_view
from levelog.handlers.indexers import MARK, IndexHandler
from levelog.handlers.readers import ObjectReader
from levelog.handlers.timers import LEAST, Tick
from levelog.handlers.views import ViewHandler
from levelog.indices import Index
from levelog.levels import Level
from levelog.resources import External
from levelog.selectors import Selector
from levelog_base.wire.canonical import digest

STARTED: Final = "started"
_CODE: Final = "kopf starts 3"
"""Stands for this module in fingerprints: raised when the same starts lead to other calls."""


class ResumeHandler(PacedHandler):
    """A function of a Kopf file that is called for each object at each start."""

    def __init__(self, name: str, attempts: Attempts, *, deleting: bool) -> None:
        super().__init__(name, attempts, interval=LEAST, initial_delay=timedelta(0), idle=None, sharp=False)
        self.deleting = deleting
        """Whether objects that are being deleted count."""

    def noted(self, parent: Any) -> dict[str, Any]:  # noqa: ARG002 - the note alone counts
        """Nothing is noted of an object but that it is known."""
        return {}

    def words(self, tick: Tick) -> dict[str, Any]:
        """That nothing has changed."""
        now = kopf_essence(tick.object)
        return {"reason": "resume", "old": now, "new": now, "diff": ()}


def starts_of(operator: str) -> type[External]:
    """The class of the records of an operator's starts: there is one, the last."""
    options = {"plural": f"{operator.lower()}-starts"}
    annotations: Any = {STARTED: datetime}

    def fill(body: dict[str, Any]) -> None:
        body["__annotations__"] = annotations

    made: type[External] = new_class("Start", (External,), options, fill)
    return made


def starts_source(cls: type[External]) -> Callable[[], AsyncIterator[Any]]:
    """The source of the one record."""
    began, made = datetime.now(UTC), cls

    async def starts() -> AsyncIterator[Any]:
        one: Any = made
        yield [one(name=STARTED, started=began)]
        await asyncio.Event().wait()

    return starts


def starts_index(operator: str, cls: type[External]) -> IndexHandler:
    """The index that views look the last start up in."""

    def entries(found: Any) -> Iterator[tuple[str, datetime]]:
        yield STARTED, found.started

    reader = ObjectReader(cls, Selector())
    code = digest(_CODE, operator)
    return IndexHandler(entries, reader, Iterator[tuple[str, datetime]], name=f"{MARK}{STARTED}", code=code)


def resumed_view(
    changing: Sequence[ChangeHandler],
    handler: ResumeHandler,
    inspect_view: InspectView,
) -> ViewHandler:
    """The view of the last start, against that for which the function was called.

    It is for objects that were known before: those that are new to the operator at a start are noted, and called for
    by handlers of changes alone. So it is while one of these, `changing`, is tried for a new object, and while the same
    function is called for a change.
    """
    index = handler.calls_name

    def view(parent: Mapping[str, Any], now: datetime, **read: Any) -> Level[Any]:
        uid = str(parent["metadata"]["uid"])
        calls: list[Call[Tick, Any]] = list(read[index][uid])
        last = next((each for each in calls if not each.name), None)
        known = next((each for each in calls if each.name == CHANGED), last)
        began = next(iter(read[STARTED][STARTED]), None)
        if last is not None and last.request.due == began:
            return handler.again(last, now) or Level(desired=began, actual=began)
        if known is not None and (began is None or known.called_at >= began):
            return Level(desired=None, actual=None)
        if began is None:
            return Level(desired=_NEW, actual=None)
        handled = [(each, [one for one in read[each.calls_name][uid] if not one.name]) for each in changing]
        if known is None and not any(one.called_at < began for _, ones in handled for one in ones):
            return Level(desired=_NEW, actual=None)
        if any(
            each.is_about_to_be_called(parent, ones, now)
            if each.origin is handler.origin
            else each.is_creating(ones, now)
            for each, ones in handled
        ):
            return Level(desired=_NEW, actual=None)
        own = [ones for each, ones in handled if each.origin is handler.origin]
        if any(not one.request.is_noted and one.called_at >= began for ones in own for one in ones):
            return Level(desired=began, actual=began)
        return Level(desired=began, actual=None if last is None else last.request.due)

    annotations: dict[str, Any] = {
        "now": datetime,
        STARTED: Index[str, datetime],
        index: calls_of(handler, Tick),
        **{each.calls_name: calls_of(each, Edge) for each in changing},
    }
    names = [f"{each.calls_name} {sorted(each.reasons)} {each.origin is handler.origin}" for each in changing]
    return made_view(handler, view, annotations, inspect_view, _CODE, *names)


_NEW: Final = {"new": "since the start"}
"""The wanted side of the level of an object that is new: it is noted, and not called for."""
