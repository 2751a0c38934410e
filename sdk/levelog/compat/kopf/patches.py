"""What the calls of handlers have written of their objects: a patch, with the returned value, and Events."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from levelog.daemons import Run
from levelog.effects import Call, CallPatch
from levelog.intents import Verb, event
from levelog.resources import ResourceBase
from levelog_base.wire.projection import unmerged

WRITES: Final[tuple[Verb, ...]] = ("event", "patch", "patch_status")
"""What calls write of the class that their handler is of."""
SHOWN_WITHIN: Final = timedelta(hours=1)
"""How long a handler waits for its object to show its last patch."""


def patch_of(cls: type[ResourceBase], request: Any, result: Mapping[str, Any] | None) -> CallPatch | None:
    """What a call of a handler of a class has written; None: nothing. The patch of a daemon is its state at its end."""
    found = result.get("state") if result and isinstance(request, Run) else result
    if not found or not (found.get("patch") or found.get("events")):
        return None
    events = [
        event(reason, note, type="Warning" if kind == "Warning" else "Normal")
        for kind, reason, note in found.get("events", [])
    ]
    seen = None if isinstance(request, Run) else request.object
    return CallPatch(of=cls, patch=found.get("patch", {}), seen=seen, events=events)


def is_unseen(call: Call[Any, Any], found: Mapping[str, Any]) -> bool:
    """Tell whether an object does not show yet what a call has written of it.

    Its version is looked at only where its fields do not tell, so that no other change wakes who asks.
    """
    if not call.patched or not any(unmerged(found, call.result.get("patch", {}))):
        return False
    return int(found["metadata"].get("resourceVersion") or 0) < call.patched


def merge_patches(first: dict[str, Any], then: Mapping[str, Any]) -> None:
    """Add a merge patch to another, in place."""
    for key, value in then.items():
        before = first.get(key)
        if isinstance(before, dict) and isinstance(value, Mapping):
            merge_patches(before, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            first[key] = value
