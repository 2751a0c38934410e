"""What a replay came to, as it is printed: a table of the views, and the first decision that came out otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from levelog.calls.faults import described
from levelog_base.counting import counted
from levelog_cli.printing.called import (
    call_lines,
    call_stop_lines,
    difference_lines,
    made_lines,
    tally_lines,
)
from levelog_cli.printing.tables import folded, labelled, table_lines
from levelog_history.differences import drift_text, shown
from levelog_history.wording import is_first
from levelog_replay.comparing import Conclusion, Divergence, content_texts, part_texts
from levelog_replay.stops.stopping import CallScene, Stop
from levelog_store.decide.decisions import Decision
from levelog_store.rows import ERRORS, IndexKey, StoredObject, Verdict

if TYPE_CHECKING:
    from levelog_replay.travel.orders import Inevitable
    from levelog_replay.versions import Report

_PARTS: Final = {"keys": "writes", "made": "made by one alone"}
"""What a part is called in a table."""
_LEVEL: Final = ("desired", "actual", "drift")
_NO_ERRORS = (b"0",)
"""What an evaluation sees of an index that leaves out no object."""


def report_lines(report: "Report") -> Iterator[str]:
    """The lines of a report."""
    comparison = report.comparison
    if comparison.first is not None and not report.is_first_told:
        yield from divergence_lines(comparison.first, report.names)
        yield ""
    if report.calls is not None and report.calls.first is not None:
        yield from difference_lines(report.calls.first, report.names)
        yield ""
    yield from tally_lines("VIEW", dict(sorted(comparison.tallies.items())), report.names, "skipped")
    for obstacle, count in sorted(comparison.obstacles.items()):
        yield from folded(f"{count} skipped: {obstacle}")
    if report.calls is not None:
        yield ""
        yield from call_lines(report.calls, report.names)
    rate = round(report.records / report.seconds) if report.seconds else 0
    yield f"{counted(report.records, 'record')} folded in {report.seconds:.1f} s ({rate} a second)"


def differing_lines(found: Sequence[Divergence], names: tuple[str, str]) -> Iterator[str]:
    """The lines of decisions that came out otherwise: the first in full, the others in a table."""
    if not found:
        yield "no decision differs"
        return
    yield from divergence_lines(found[0], names)
    if len(found) > 1:
        yield ""
        others = [(each.past, ", ".join(_PARTS.get(part, part) for part in each.parts)) for each in found[1:]]
        rows = [(str(past.cause), past.view, past.parent, parts) for past, parts in others]
        yield from table_lines(["RECORD", "VIEW", "PARENT", "ALSO DIFFERS"], rows)
    yield ""
    yield f"{counted(len(found), 'decision')} {'differs' if len(found) == 1 else 'differ'}"


def inevitable_lines(found: "Inevitable") -> Iterator[str]:
    """The lines of what came out in which orders."""
    tried = f"{counted(found.orders, 'order')} tried" + (", of more" if found.is_bounded else "")
    yield f"it comes out after record {found.symptom}"
    yield from folded(f"from record {found.since} on it comes out in every order ({tried})")
    if found.race is not None:
        first, second = found.race
        yield from folded(f"before that, {first} and {second} race: if {second} comes first, it does not")
    elif found.is_bounded:
        yield "what was before that was not tried: give --orders for more"


def divergence_lines(found: Divergence, names: tuple[str, str]) -> Iterator[str]:
    """The lines of a decision that came out otherwise: what it was made on, and in what it differs."""
    past = found.past
    yield from folded(f"the first decision that differs: {past.view} of {past.parent}")
    yield from made_lines(past)
    yield from labelled("parent", f"as record {past.parent_sequence} showed it")
    yield from read_lines(found.reads, past)
    width = max(map(len, names))
    for part in found.parts:
        yield from _part(part, found.before, found.after, names, width)


def read_lines(reads: Mapping[IndexKey, tuple[bytes, ...]], past: Decision) -> Iterator[str]:
    """The lines of what a decision read."""
    for (index, key), values in sorted(reads.items()):
        if key == ERRORS and values in ((), _NO_ERRORS):
            continue
        at = past.versions.get((index, key), 0)
        since = f" since record {at}" if at > 0 else ""
        held = ", ".join(shown(msgspec.json.decode(value)) for value in values) or "nothing"
        place = f"{index}, without objects for which it failed" if key == ERRORS else f"{index}[{key}]"
        yield from labelled("read", f"{place}{since}: {held}")


def _part(
    part: str, before: Conclusion | None, after: Conclusion | None, names: tuple[str, str], width: int
) -> Iterator[str]:
    if before is None or after is None:
        made = names[0] if after is None else names[1]
        yield from labelled("made by", f"{made} alone: nothing woke the other, or it has no such view")
        return
    if part == "keys":
        for name, side in zip(names, (before, after), strict=True):
            yield from labelled("writes", f"{name:<{width}}  {side.writes_text}")
        yield from (line for text in content_texts(before, after) for line in labelled("content", text))
    else:
        yield from verdict_lines(before.verdict, after.verdict, (part,))


def verdict_lines(before: Verdict, after: Verdict, parts: Sequence[str] = _LEVEL) -> Iterator[str]:
    """The lines of those parts in which two verdicts differ."""
    for part in parts:
        if getattr(before, part) != getattr(after, part):
            yield from (line for text in part_texts(part, before, after) for line in labelled(part, text))


def stop_lines(stop: Stop) -> Iterator[str]:
    """The lines of a stop."""
    scene, past = stop.scene, stop.scene.past
    name = scene.name if isinstance(scene, CallScene) else past.view if stop.kind == "view" else scene.reconcile
    of = f" of {scene.program}" if scene.program else ""
    yield ""
    yield from folded(f"{stop.kind} {name}{of}, for {past.parent}")
    if stop.error is not None:
        yield from labelled("raises", described(stop.error))
    if isinstance(scene, CallScene):
        yield from call_stop_lines(stop.kind, scene)
        return
    yield from made_lines(past)
    yield from labelled("parent", f"as record {past.parent_sequence} showed it{_spec(scene.parent)}")
    before = "no level" if is_first(past) else f"{past.basis.status}, round {past.basis.round}"
    yield from labelled("before", before)
    yield from read_lines(scene.reads, past)
    if scene.drift:
        parts = {part: sorted(map(str, keys)) for part, keys in asdict(scene.drift).items() if keys}
        yield from labelled("drift", drift_text(parts))


def _spec(parent: StoredObject) -> str:
    spec = msgspec.json.decode(parent.body).get("spec")
    return f": spec {shown(spec)}" if spec else ""
