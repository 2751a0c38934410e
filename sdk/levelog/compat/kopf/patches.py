"""Patches of handlers: a view of the unwritten ones, through which each is written once."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, Struct

from levelog.calls.mappings import plain
from levelog.compat.kopf.given.keywords import is_merged, unmerged
from levelog.daemons import RunEnd
from levelog.edges import flat, unflat, value_at
from levelog.effects import Call, EffectHandler
from levelog.handlers.injection import Lender
from levelog.handlers.signatures import declared
from levelog.handlers.views import ReconcileHandler, ViewHandler
from levelog.indices import Index
from levelog.intents import EventType, Intent, IntentOptions, call, event, patch
from levelog.levels import Level
from levelog.resources import ResourceBase
from levelog.wire.canonical import digest

WRITTEN_FOR: Final = timedelta(hours=1)
"""How long a patch is tried that the API refuses."""
_CODE: Final = "kopf patches 4"
"""Stands for this module in fingerprints: raised when the same calls lead to other writes."""


class WantedPatch(Struct, frozen=True, kw_only=True):
    """A patch of one call."""

    call: str
    patch: dict[str, Any]
    events: list[list[str]] = []
    """Type, reason and note of each."""
    overtaken: list[str] = []
    """Fields of the status that it leaves alone, as somebody else has written them since the call was decided on."""
    has_lapsed: bool = False
    """It was tried for as long as patches are, and is not any more."""


def marks_effect(name: str, lender: Lender) -> EffectHandler:
    """The effect, and so the index, of the patches that were written: calls that do nothing and are remembered."""

    async def mark(written: str) -> None:
        """Nothing is done."""

    mark.__name__ = name
    made = EffectHandler.inspect(mark, lender, timeout=timedelta(seconds=10))
    made.title = f"note {name}"
    made.fingerprint = digest(_CODE, name)
    return made


def patches_view(
    name: str, marks: str, indices: Mapping[str, tuple[str, Any]], inspect_view: Callable[[Any], ViewHandler]
) -> ViewHandler:
    """The view of the last patch of each handler, against those that were written; `indices` by handler."""

    def view(parent: Mapping[str, Any], now: datetime, **read: Any) -> Level[dict[str, WantedPatch]]:
        uid = parent["metadata"]["uid"]
        written = {each.name: each.request for each in read[marks][uid]}
        desired: dict[str, WantedPatch] = {}
        actual: dict[str, WantedPatch] = {}
        ends: list[datetime] = []
        calls = {
            place_of(handler, each.name): each for handler, (index, _) in indices.items() for each in read[index][uid]
        }
        results = {
            place: each.result.state if isinstance(each.result, RunEnd) else each.result
            for place, each in calls.items()
        }
        asked = {place: result for place, result in results.items() if has_writes(result)}
        ours = [result.get("patch", {}) for result in asked.values()]
        for place, result in asked.items():
            each, whole = calls[place], result.get("patch", {})
            is_done = written.get(place) == each.idempotency_key
            overtaken = [] if is_done else _overtaken(parent, getattr(each.request, "object", None), whole, ours)
            wanted = WantedPatch(
                call=each.idempotency_key,
                patch=_without(whole, overtaken),
                events=result.get("events", []),
                overtaken=overtaken,
            )
            desired[place] = wanted
            if is_done:
                actual[place] = wanted
            elif now >= each.called_at + WRITTEN_FOR:
                actual[place] = WantedPatch(call=wanted.call, patch=wanted.patch, has_lapsed=True)
            elif is_merged(parent, wanted.patch):
                actual[place] = WantedPatch(call="", patch=wanted.patch)
            else:
                ends.append(each.called_at + WRITTEN_FOR)
        return Level(desired=desired, actual=actual, recheck_at=min(ends, default=None))

    annotations: dict[str, Any] = {
        "parent": Mapping[str, Any],
        "now": datetime,
        marks: Index[str, Call[str, None]],
        **dict(indices.values()),
    }
    made = inspect_view(declared(view, name, annotations, Level[dict[str, WantedPatch]]))
    made.writes_once = made.is_made = True
    made.fingerprint = digest(_CODE, name, *indices)
    return made


def patches_writer(
    cls: type[ResourceBase], view: ViewHandler, marks: EffectHandler, lender: Lender, logger: logging.Logger
) -> ReconcileHandler:
    """The reconcile function of such a view: one write for all patches, one of the status, then a note of each.

    What the API took and the object does not show will never be seen, so it is noted too, with a warning.
    """
    resource = cls.resource_type.group_resource

    async def write(
        parent: Mapping[str, Any],
        level: Level[dict[str, WantedPatch]],
        is_written: bool,
    ) -> list[Intent]:
        merged: dict[str, Any] = {}
        intents: list[Intent] = []
        for name in sorted(level.drift.missing | level.drift.changed):
            wanted, found = level.desired[name], level.actual.get(name)
            if found is None and not is_written:
                merge_patches(merged, wanted.patch)
                continue
            if found is None:
                fields = ", ".join(sorted(unmerged(parent, wanted.patch)))
                logger.warning(
                    "the API accepted what %s wrote, and the object does not show %s: the definition of %s drops what "
                    "it does not name; name it there, or declare x-kubernetes-preserve-unknown-fields: true",
                    name,
                    fields,
                    resource,
                )
            elif found.has_lapsed:
                logger.warning("%s: its patch was not seen in the object within %s: dropped", name, WRITTEN_FOR)
            if wanted.overtaken:
                fields = ", ".join(wanted.overtaken)
                logger.warning(
                    "%s: %s is left as somebody else has written it since the call was decided on", name, fields
                )
            intents.append(call(marks.function, wanted.call, name=name))
            intents += [event(reason, note, type=_type(kind)) for kind, reason, note in wanted.events]
        return [*intents, *writes(cls, plain(parent)["metadata"], merged)]

    write.__name__ = f"{view.name}.write"
    made = ReconcileHandler.inspect(write, view, {cls: ["event", "patch", "patch_status"]}, lender)
    made.fingerprint = digest(_CODE, view.name)
    made.needs_status = False
    return made


def _overtaken(
    parent: Mapping[str, Any],
    seen: Mapping[str, Any] | None,
    patch: Mapping[str, Any],
    ours: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Fields of the status that are neither as a call has seen them nor as it, or another one, asks for: as pointers.

    None where it is not known what the call has seen: a daemon sees its object change.
    """
    if seen is None or "status" not in patch:
        return []

    def value(content: Mapping[str, Any], path: str) -> Any:
        found = value_at(content, path)
        return None if found is UNSET else found

    return [
        path
        for path, wanted in flat({"status": patch["status"]}).items()
        if wanted != {}
        and value(parent, path) not in (wanted, value(seen, path), *(value(each, path) for each in ours))
    ]


def _without(patch: dict[str, Any], overtaken: Sequence[str]) -> dict[str, Any]:
    if not overtaken:
        return patch
    status = {path: value for path, value in flat({"status": patch["status"]}).items() if path not in overtaken}
    return {key: value for key, value in patch.items() if key != "status"} | unflat(status)


def has_writes(result: Mapping[str, Any] | None) -> bool:
    """Tell whether the result of a call asks for anything to be written."""
    return bool(result and (result.get("patch") or result.get("events")))


def place_of(handler: str, name: str) -> str:
    """Name of the note that the patch of a handler's call of a name is written."""
    return f"{handler}.{name}" if name else handler


def _type(kind: str) -> EventType:
    return "Warning" if kind == "Warning" else "Normal"


def merge_patches(first: dict[str, Any], then: Mapping[str, Any]) -> None:
    """Add a merge patch to another, in place."""
    for key, value in then.items():
        held = first.get(key)
        if isinstance(held, dict) and isinstance(value, Mapping):
            merge_patches(held, value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            first[key] = value


def writes(cls: type[ResourceBase], metadata: Mapping[str, Any], merged: Mapping[str, Any]) -> list[Intent]:
    """The writes of one merge patch: the status goes to its subresource, if there is one.

    It goes first, for the version that was decided on, so that nobody's newer status is written over.
    """
    name, namespace = metadata["name"], metadata.get("namespace", "")
    rest = {key: value for key, value in merged.items() if key != "status"}
    found: list[Intent] = []
    if "status" in merged:
        body, options = {"status": merged["status"]}, IntentOptions(as_field=True, if_unchanged=True)
        found.append(
            Intent(verb="patch_status", resource=cls, name=name, namespace=namespace, body=body, options=options)
        )
    return [*found, patch(cls, name, rest, namespace=namespace)] if rest else found
