"""`kopf.on.resume`: called once for each existing object when the operator starts.

What counts as a start is a record: ingest notes when its process loaded the file.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import new_class
from typing import Any, Final

import msgspec

from levelog.compat.kopf.attempts import Attempts
from levelog.compat.kopf.given.keywords import kopf_essence
from levelog.compat.kopf.kinds.changing import ChangeHandler
from levelog.compat.kopf.kinds.pacing import PacedHandler
from levelog.compat.kopf.options import Declaration
from levelog.effects import Call
from levelog.handlers.edgehandlers import called
from levelog.handlers.indexers import MARK, IndexHandler
from levelog.handlers.readers import ObjectReader
from levelog.handlers.signatures import declared as declared_function
from levelog.handlers.timers import LEAST, Tick, ticked
from levelog.handlers.views import ViewHandler
from levelog.indices import Index
from levelog.levels import Level
from levelog.resources import External
from levelog.selectors import Selector
from levelog.wire.canonical import digest

STARTED: Final = "started"
_CODE: Final = "kopf starts 1"
"""Stands for this module in fingerprints: raised when the same starts lead to other calls."""


class ResumeHandler(PacedHandler):
    """A function of a Kopf file that is called for each object at each start."""

    def __init__(self, name: str, declared: Declaration, attempts: Attempts, *, deleting: bool) -> None:
        super().__init__(name, declared, attempts, interval=LEAST, initial_delay=timedelta(0), idle=None, sharp=False)
        self.deleting = deleting
        """Whether objects that are being deleted count."""

    def told(self, tick: Tick) -> dict[str, Any]:
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
    handler: ResumeHandler,
    siblings: Sequence[ChangeHandler],
    inspect_view: Callable[[Callable[..., Any]], ViewHandler],
) -> ViewHandler:
    """The view of the last start, against that for which the function was called.

    `siblings` are the same function as a change handler: what it has handled since the start counts.
    """
    index = handler.calls_name

    def view(parent: Mapping[str, Any], now: datetime, **read: Any) -> Level[Any]:
        uid = str(parent["metadata"]["uid"])
        starts: list[datetime] = list(read[STARTED][STARTED])
        created = msgspec.convert(parent["metadata"]["creationTimestamp"], datetime)
        if not starts or created >= starts[0]:
            return Level(desired=None, actual=None)
        began = starts[0]
        for sibling in siblings:
            handled = [each for each in read[sibling.handled_name][uid] if not each.name]
            if "create" in sibling.reasons and (not handled or sibling.is_tried(handled[0])):
                return Level(desired=None, actual=None)  # it is called as new
            if any(not each.request.is_noted and each.called_at >= began for each in handled):
                return Level(desired=began, actual=began)
        calls: list[Call[Tick, Any]] = list(read[index][uid])
        if calls and calls[0].request.due == began and (left := handler.left(calls[0], now)) is not None:
            again, carried = left
            return Level(desired=began, actual=began, recheck_at=again) if now < again else Level(began, carried)
        return Level(desired=began, actual=calls[0].request.due if calls else None)

    annotations: dict[str, Any] = {
        "parent": Mapping[str, Any],
        "now": datetime,
        STARTED: Index[str, datetime],
        index: ticked(handler),
        **{each.handled_name: called(each) for each in siblings},
    }
    made = inspect_view(declared_function(view, handler.name, annotations, Level[Any]))
    names = [f"{each.handled_name} {sorted(each.reasons)}" for each in siblings]
    made.is_made = True
    made.fingerprint = digest(_CODE, handler.name, handler.reader.fingerprint, *names)
    return made
