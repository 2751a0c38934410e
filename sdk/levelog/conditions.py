"""Conditions in an object's status that sum up its levels, `Ready`, `Reconciling`, `Stalled`; Events say what failed.

Their meaning is that of KEP-1623 and kstatus: `Reconciling` and `Stalled` say what is not as it should be, and
`observedGeneration` which generation of the object a condition is about.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from levelog.handlers.injection import Lender
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler
from levelog.intents import Intent, IntentOptions, Verb, event
from levelog.levels import Level, Levels, LevelStatus
from levelog.resources import ResourceBase, Struct
from levelog_base.wire.canonical import canonical, digest

PATIENCE: Final = timedelta(seconds=1)
"""How long a level may settle before conditions say so: most writes are done sooner, and need no second one."""
MOST_MESSAGE: Final = 1024
"""Characters of a message; the API's own conditions allow 32,768."""

Counted: TypeAlias = Callable[[], Mapping[str, bool]]
"""Gives the views that conditions sum up, and of each whether its levels are runs of a daemon."""

_CODE: Final = "conditions 8"
"""Stands for this module in fingerprints: raised when the same levels lead to other conditions."""
_FIELDS: Final = ("status", "reason", "message", "observedGeneration")
_IN_PROGRESS: Final = ("settling", "drifting", "blocked")


class Condition(Struct, kw_only=True):
    """One entry of `status.conditions`, for the class of an object whose definition `levelog crd` makes."""

    type: str
    status: Literal["True", "False", "Unknown"]
    observedGeneration: int = 0  # noqa: N815 - as the API names it
    lastTransitionTime: str = ""  # noqa: N815
    reason: str = ""
    message: str = ""


def inspect_conditions(
    cls: type[ResourceBase],
    name: str,
    counted: Counted,
    inspect_view: Callable[[Callable[..., Any]], ViewHandler],
    *,
    watched: Sequence[str],
) -> ViewHandler:
    """The view of a class's conditions; `watched` are those of the `counted` views that have no reconcile function.

    Raises OperatorError as `inspect_view` does.
    """

    def conditions(parent: Mapping[str, Any], levels: Levels, now: datetime) -> Level[dict[str, Any]]:
        existing, acting = {each.get("type"): each for each in _conditions_of(parent)}, counted()
        own = {view: each for view, each in _told(levels, acting).items() if each.status != "deleting"}
        generation, stalled = parent["metadata"].get("generation", 0), existing.get("Stalled", {})
        told = _failures(stalled, acting) if stalled.get("observedGeneration") == generation else {}
        level_statuses = {
            name: _as_before(each, told.get(name)) for name, each in (own | _of_children(levels, acting)).items()
        }
        wanted = summed_up(level_statuses, generation) if own else {}
        actual = {kind: {name: existing[kind].get(name) for name in _FIELDS} for kind in wanted if kind in existing}
        has_failed = any(each.status == "failed" for each in level_statuses.values())
        settling = [
            each.since for each in level_statuses.values() if each.status == "settling" and each.since is not None
        ]
        if settling and not has_failed and now < min(settling) + PATIENCE:
            return Level(desired=actual, actual=actual, recheck_at=min(settling) + PATIENCE)
        return Level(desired=wanted, actual=actual)

    conditions.__name__ = name
    handler = inspect_view(conditions)
    handler.fingerprint = digest(_CODE, name, str(cls.resource_type.group_resource), *watched)
    return handler


def conditions_writer(
    cls: type[ResourceBase], counted: Counted, view: ViewHandler, lender: Lender, *, events: bool
) -> ReconcileHandler:
    """The reconcile function of such a view: it patches the status, and keeps conditions of others.

    With `events` it also yields an Event for each level that has failed, and had not so before.
    """

    async def write(
        parent: Mapping[str, Any], level: Level[dict[str, Any]], now: datetime
    ) -> list[Intent]:  # async, so that it needs no thread
        existing = {each.get("type"): each for each in _conditions_of(parent)}
        conditions = {kind: dict(each) for kind, each in existing.items()}
        for kind, fields in level.desired.items():
            before = existing.get(kind, {})
            is_same = before.get("status") == fields["status"] and before.get("lastTransitionTime")
            at = before["lastTransitionTime"] if is_same else f"{now:%Y-%m-%dT%H:%M:%SZ}"
            conditions[kind] = {"type": kind, **fields, "lastTransitionTime": at}
        metadata = parent["metadata"]
        patch = Intent(
            verb="patch_status",
            resource=cls,
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
            body={"status": {"conditions": list(conditions.values())}},
            options=IntentOptions(if_unchanged=True),  # the list is replaced as a whole
        )
        return [patch, *_events_of_failures(level.desired, existing, counted())] if events else [patch]

    write.__name__ = f"{view.name}.write"
    verbs: list[Verb] = ["patch_status", "event"] if events else ["patch_status"]
    handler = ReconcileHandler(write, view, {cls: verbs}, lender)
    handler.fingerprint = digest(_CODE, view.name, str(events))
    return handler


def _events_of_failures(
    wanted: Mapping[str, Mapping[str, Any]], existing: Mapping[Any, Mapping[str, Any]], acting: Collection[str]
) -> Iterator[Intent]:
    """One Event for each level of the object that has failed with an error that the status does not have yet.

    A status that has to be patched again says what it said before, by which the actuator knows the Event again.
    """
    before = existing.get("Stalled", {})
    told = _failures(before, acting)
    occurrence = digest(canonical(before))
    for view, error in _failures(wanted.get("Stalled", {}), acting).items():
        if view in acting and told.get(view) != error:
            intent = event("Failed", f"{view}: {error}", type="Warning")
            yield replace(intent, options=IntentOptions(name=occurrence))


def _failures(stalled: Mapping[str, Any], acting: Collection[str]) -> dict[str, str]:
    """What failed, by view, and by `view of child`, as the message of the condition `Stalled` tells it."""
    if stalled.get("status") != "True" or not acting:
        return {}
    names = "|".join(map(re.escape, sorted(acting, key=len, reverse=True)))
    _, *parts = re.split(f"(?:^|; )((?:{names})(?: of [^ ;]+)?): ", str(stalled.get("message") or ""))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _told(levels: Mapping[str, LevelStatus], acting: Mapping[str, bool]) -> dict[str, LevelStatus]:
    """How the levels that count stand for who waits for the object: while a daemon runs, it is as it should be."""
    runs = LevelStatus(status="in_sync")
    return {
        view: runs if acting[view] and level_status.status == "settling" else level_status
        for view, level_status in levels.items()
        if view in acting
    }


def _as_before(level_status: LevelStatus, error: str | None) -> LevelStatus:
    """The level; still failed with this `error` of the condition while it is tried again. None: it has not failed."""
    is_retried = error is not None and level_status.status == "settling"
    return replace(level_status, status="failed", reason=error) if is_retried else level_status


def _of_children(levels: Levels, acting: Mapping[str, bool]) -> dict[str, LevelStatus]:
    """How the levels of children stand, and of their children, by `pods of webs.example.com/default/shop`."""
    found: dict[str, LevelStatus] = {}
    for name, of_child in levels.children().items():
        found |= {f"{view} of {name}": level_status for view, level_status in _told(of_child, acting).items()}
        found |= _of_children(of_child, acting)
    return found


def summed_up(level_statuses: Mapping[str, LevelStatus], generation: int) -> dict[str, dict[str, Any]]:
    """The conditions of an object whose levels stand so, by type; all without the time of their last transition."""
    failed = {view: each for view, each in level_statuses.items() if each.status == "failed"}
    moving = {view: each for view, each in level_statuses.items() if each.status in _IN_PROGRESS}
    others = failed or moving
    reason = "Failed" if failed else next((each.status.capitalize() for each in moving.values()), "InSync")
    told = _joined([f"{view}: {each.reason or each.status}" for view, each in sorted(others.items())])

    def condition(is_true: bool, reason: str, message: str) -> dict[str, Any]:
        return {
            "status": "True" if is_true else "False",
            "reason": reason,
            "message": message[:MOST_MESSAGE],
            "observedGeneration": generation,
        }

    return {
        "Ready": condition(not others, reason, told or _in_sync(level_statuses)),
        "Reconciling": condition(bool(moving) and not failed, reason, told if moving and not failed else ""),
        "Stalled": condition(bool(failed), reason, told if failed else ""),
    }


def _joined(parts: Sequence[str]) -> str:
    """All parts in one message; if they do not fit, the longest are cut."""
    left, cut = MOST_MESSAGE - 2 * (len(parts) - 1), dict[str, str]()
    for done, part in enumerate(sorted(parts, key=len)):
        cut[part] = part[: max(left // (len(parts) - done), 0)]
        left -= len(cut[part])
    return "; ".join(cut[part] for part in parts)


def _in_sync(views: Collection[str]) -> str:
    own = [view for view in sorted(views) if " of " not in view]
    children = {view.partition(" of ")[2] for view in views} - {""}
    return f"in sync: {', '.join(own)}" + (f"; children: {len(children)}" if children else "")


def _conditions_of(parent: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    status = parent.get("status") or {}
    return status.get("conditions") or ()
