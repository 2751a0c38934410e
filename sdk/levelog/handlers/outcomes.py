"""What calls of adapters leave: writes of their object, and what the next call of an unfinished one goes on from."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.daemons import Run, RunEnd
from levelog.edges import Unfinished
from levelog.effects import Call, CallPatch
from levelog.intents import EventType, Verb, event
from levelog.levels import Level
from levelog.resources import ResourceBase
from levelog_base.wire.projection import unmerged

WRITES: Final[tuple[Verb, ...]] = ("event", "patch", "patch_status")
"""What calls of an adapter write of its class."""
SHOWN_WITHIN: Final = timedelta(hours=1)
"""How long a handler waits for its object to show its last patch."""
PATIENCE: Final = timedelta(minutes=1)
"""What is waited for may seem to have begun so much later than now before that is taken for a mistake."""
_LEFT: Final = "left"
"""Key of what a call has left, in the level that asks for the next one."""
_LATER: Final = "is called again at"
_UNSEEN: Final = "waits until the log shows what its last call has written"


class CallResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call of an adapter leaves, and the state of its daemons; it takes up to 64 KiB as JSON."""

    patch: dict[str, Any] = {}
    """A merge patch of the object; the call ends once it is written."""
    events: list[tuple[EventType, str, str]] = []
    """Type, reason and note of Events about the object."""
    left: Unfinished | None = None
    """The function is to be called again, or is given up. None: it has done what it is for."""


def left(call: Call[Any, Any]) -> Unfinished | None:
    """What a call has left; None: it finished."""
    return call.result.left if isinstance(call.result, CallResult) else None


def next_call(call: Call[Any, Any], limit: timedelta | None, now: datetime) -> tuple[datetime, Unfinished] | None:
    """When the function is called again, and what the last call has left; None: it finished.

    If the time `limit` is over by then, it is not called again. If the clock of the last call was ahead, it is due
    `now`.
    """
    found = left(call)
    if found is None:
        return None
    due = now if is_ahead(call.called_at, now, found.delay) else call.called_at + found.delay
    if not found.is_over and limit is not None and due >= found.began + limit:
        error = f"given up {limit} after it was decided: {found.error}"
        return due, msgspec.structs.replace(found, is_over=True, error=error)
    return due, found


def is_ahead(began: datetime, now: datetime, wait: timedelta) -> bool:
    """Tell whether a wait has begun by a clock that was ahead: else it could last more than twice its time."""
    return began - now > max(wait, PATIENCE)


def as_value(before: Unfinished) -> dict[str, Any]:
    """What a call has left, as a part of a level: each attempt has a level of its own."""
    return {_LEFT: msgspec.to_builtins(before)}


def without(state: Mapping[str, Any]) -> dict[str, Any]:
    """A side of a level without what a call has left."""
    return {path: value for path, value in state.items() if path != _LEFT}


def carried(level: Level[Any]) -> Unfinished | None:
    """What the next call goes on from; nothing where the last one gave up and somebody wants another."""
    sides: list[Any] = [side for side in (level.desired, level.actual) if isinstance(side, Mapping)]
    found = next((msgspec.convert(side[_LEFT], Unfinished) for side in sides if _LEFT in side), None)
    return None if found is not None and found.is_over and level.is_asked_for else found


def is_held(level: Level[Any]) -> bool:
    """Tell whether no call is made for a level now: somebody who asks for one cuts short a delay, and nothing else."""
    return bool(level.reason) and not (level.is_asked_for and level.reason.startswith(_LATER))


def delay(level: Level[Any], due: datetime, before: Unfinished, now: datetime) -> None:
    """Have a level wait until the function is called again."""
    if now < due and not before.is_over:
        level.recheck_at = due
        level.reason = f"{_LATER} {due:%H:%M:%S} UTC, attempt {before.retry + 1}: {before.error}"


def wait_for_patch(level: Level[Any], last: Call[Any, Any], found: Mapping[str, Any], now: datetime) -> bool:
    """Have a level wait until its object shows what the last call has written; tells whether it waits.

    The object's version is looked at only where its fields do not tell, so that no other change wakes who asks.
    """
    latest = last.called_at + SHOWN_WITHIN
    if not last.patched or now >= latest or not any(unmerged(found, last.result.patch)):
        return False
    if int(found["metadata"].get("resourceVersion") or 0) >= last.patched:
        return False
    level.reason, level.recheck_at = _UNSEEN, latest
    return True


def patch_of(cls: type[ResourceBase], request: Any, result: Mapping[str, Any] | None) -> CallPatch | None:
    """What a call for an object of a class has written, by its result as JSON; None: nothing."""
    is_run = isinstance(request, Run)
    found = msgspec.convert(result, RunEnd).state if is_run and result is not None else result
    outcome = msgspec.convert(found or {}, CallResult)
    if not outcome.patch and not outcome.events:
        return None
    events = [event(reason, note, type=kind) for kind, reason, note in outcome.events]
    return CallPatch(of=cls, patch=outcome.patch, seen=None if is_run else request.object, events=events)
