"""Kopf's timers, and `kopf.on.resume`: called once for each existing object when the operator starts.

What counts as a start is a record: ingest notes when its process loaded the file.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import new_class
from typing import Any, Final, cast

import msgspec

from levelog.compat.kopf.attempts import CODE, KopfAdapter
from levelog.compat.kopf.given.keywords import kopf_essence
from levelog.compat.kopf.kinds.changing import ChangeAdapter
from levelog.effects import Call
from levelog.layers import Adapter, Tick
from levelog.levels import Level
from levelog.resources import External

STARTED: Final = "started"
"""Name of the one record of starts, and its key in the index of them."""
STARTS: Final = f"@{STARTED}"
"""Name of that index."""
_NEW: Final = {"new": "since the start"}
"""The wanted side of the level of an object that is new: it is noted, and not called for."""


class TimedAdapter(KopfAdapter):
    """Calls a function of a Kopf file for each object now and then."""

    def call(self, request: Tick, retry: int, started: datetime) -> Any:
        """Call the function once."""
        return self.attempt(request.object, retry, started, {}, request.carried)


class ResumeAdapter(TimedAdapter):
    """Calls a function of a Kopf file for each object at each start.

    It is for objects that were known before: those that are new to the operator at a start are noted, and called for
    by handlers of changes alone. So it is while one of these is tried for a new object, and while the same function is
    called for a change.
    """

    changing: Sequence[ChangeAdapter] = ()
    """Handlers of changes of the same objects."""

    def take_changing(self, changing: Sequence[ChangeAdapter]) -> None:
        """Look at the calls of these; the code of its level counts them."""
        names = [(each.calls_name, sorted(each.reasons), each.function is self.function) for each in changing]
        self.changing, self.code = changing, (self.said, names)
        self.beside = {STARTED: STARTS, **{each.calls_name: each.calls_name for each in changing}}

    def call(self, request: Tick, retry: int, started: datetime) -> Any:
        """Call the function, and tell it that nothing has changed."""
        now = kopf_essence(request.object)
        told = {"reason": "resume", "old": now, "new": now, "diff": ()}
        return self.attempt(request.object, retry, started, told, request.carried)

    def look(
        self,
        found: Mapping[str, Any],
        last: Call[Tick, Any] | None,
        noted: Call[Tick, Any] | None,
        now: datetime,
        read: Mapping[str, Any],
    ) -> Level[Any]:
        """The last start, against that for which the function was called."""
        uid, known = str(found["metadata"]["uid"]), noted or last
        began = next((msgspec.convert(each, datetime) for each in read[STARTED][STARTED]), None)
        if last is not None and last.request.due == began:
            return Level(desired=began, actual=began)
        if known is not None and (began is None or known.called_at >= began):
            return Level(desired=None, actual=None)
        if began is None:
            return Level(desired=_NEW, actual=None)
        handled = [(each, [one for one in read[each.calls_name][uid] if not one.name]) for each in self.changing]
        if known is None and not any(one.called_at < began for _, ones in handled for one in ones):
            return Level(desired=_NEW, actual=None)
        if any(
            each.is_about_to_be_called(found, ones, now)
            if each.function is self.function
            else each.is_creating(ones, now)
            for each, ones in handled
        ):
            return Level(desired=_NEW, actual=None)
        own = [ones for each, ones in handled if each.function is self.function]
        if any(not one.request.is_noted and one.called_at >= began for ones in own for one in ones):
            return Level(desired=began, actual=began)
        return Level(desired=began, actual=None if last is None else last.request.due)


def starts_of(operator: str) -> type[External]:
    """The class of the records of an operator's starts: there is one, the last."""
    options = {"plural": f"{operator.lower()}-starts"}

    def fill(body: dict[str, Any]) -> None:
        body["__annotations__"] = {STARTED: datetime}

    made: type[External] = new_class("Start", (External,), options, fill)
    return made


def starts_source(cls: type[External]) -> Callable[[], AsyncIterator[Any]]:
    """The source of the one record."""
    began, one = datetime.now(UTC), cast("Any", cls)

    async def starts() -> AsyncIterator[Any]:
        yield [one(name=STARTED, started=began)]
        await asyncio.Event().wait()

    return starts


class StartsAdapter(Adapter):
    """Fills the index that handlers look the last start up in."""

    def __init__(self, cls: type[External]) -> None:
        super().__init__(starts_of, cls)
        self.code = CODE

    def entries(self, found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The time of the start."""
        yield STARTED, found[STARTED]
