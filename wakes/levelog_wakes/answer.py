"""The answer about each client: its wakes, the condition for which it wakes, and what that would have saved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from statistics import median

from msgspec import Struct

from levelog_wakes.audit import AuditReader
from levelog_wakes.bursts import Bursts, Sum, Traffic
from levelog_wakes.conditions import Explanation, explain
from levelog_wakes.drafts import draft
from levelog_wakes.periods import Rhythm
from levelog_wakes.sentences import sentences
from levelog_wakes.versions import KindSeen


class Woken(Struct, frozen=True, kw_only=True):
    """One client and the objects of one resource, of which its wakes are."""

    client: str
    resource: str
    objects: int
    wakes: int
    periods: list[Rhythm]
    """Those of most objects first; of at most 12 objects, by their last 128 wakes."""
    calls: int
    size_bytes: int | None
    """None where the log has no bodies."""
    wrote: int
    """Wakes that changed something; where the log has no bodies, all that wrote and of which nothing else is known."""
    unchanged_writes: int
    """Writes that left the resourceVersion, or moved times alone."""
    undone: int
    """Writes of which another client set a field back."""
    echoes: int
    """Wakes that only followed a write of its own."""
    lists: dict[str, int]
    """Lists that no watch followed, by resource."""
    condition: Explanation
    saving: Sum | None
    """The cost of the wakes that the condition would have avoided; None where nothing is known of it."""
    says: list[str]
    """The last two in sentences."""
    draft: str
    """levelog code; empty where no field explains the wakes."""


class WakesFound(Struct, frozen=True, kw_only=True):
    """All that is said about a log."""

    events: int
    seconds: float
    woken: list[Woken]
    """Those with most calls first."""
    remarks: list[str]
    """The oddities of the input."""


def answer(bursts: Bursts, reader: AuditReader) -> WakesFound:
    """The answer of the calls so far; this ends both."""
    every = [_woken(each, watches, bursts.versions.kinds) for each, watches in bursts.finish()]
    woken = [each for each in every if each.calls or each.undone]
    reader.finish()
    remarks, versions = reader.remarks, bursts.versions
    if versions.clocks_apart_seconds > 0.5:
        remarks.note(f"seconds the servers' clocks are apart, at least {versions.clocks_apart_seconds:.1f}")
    dropped = {"objects of clients": bursts.left_out, "last versions": versions.forgotten}
    for what, number in {**dropped, "causes of wakes": bursts.unexplained}.items():
        if number:
            remarks.note(f"{what} were dropped to save memory", times=number)
    return WakesFound(
        events=reader.events,
        seconds=max(bursts.last - bursts.first, 0.0),
        woken=sorted(woken, key=lambda each: (-each.calls, each.client, each.resource)),
        remarks=remarks.lines(),
    )


def _woken(traffic: Traffic, watches: Counter[str], kinds: Mapping[str, KindSeen]) -> Woken:
    total = Sum()
    for each in traffic.sets.values():
        total.add(each)
    explanation = explain(traffic, total)
    is_known = explanation.kind in ("field", "nothing")
    saving = Sum().add(total).add(explanation.needed, -1) if is_known else None
    return Woken(
        client=traffic.client,
        resource=traffic.resource,
        objects=traffic.objects,
        wakes=total.wakes,
        periods=_periods(traffic.rhythms),
        calls=total.calls,
        size_bytes=total.size_bytes or None,
        wrote=total.wrote,
        unchanged_writes=traffic.unchanged_writes,
        undone=traffic.undone,
        echoes=traffic.echoes,
        lists={each: number - watches[each] for each, number in traffic.lists.items() if number > watches[each]},
        condition=explanation,
        saving=saving,
        says=[*sentences(explanation, saving, total)],
        draft=draft(traffic.resource, explanation.fields, kinds) if explanation.kind == "field" else "",
    )


def _periods(rhythms: Sequence[Sequence[Rhythm]]) -> list[Rhythm]:
    """Rhythms of an object, for each; those within a quarter of the shortest are one."""
    found: list[Rhythm] = []
    left = sorted((each for some in rhythms for each in some), key=lambda each: each.seconds)
    while left:
        near = [each for each in left if each.seconds <= left[0].seconds * 1.25]
        left = left[len(near) :]
        seconds, jitter = (median(map(attrgetter(each), near)) for each in ("seconds", "jitter_seconds"))
        objects = sum(any(each in near for each in some) for some in rhythms)
        found.append(Rhythm(seconds, jitter, max(each.pollers for each in near), objects))
    return sorted(found, key=lambda each: -each.objects)
