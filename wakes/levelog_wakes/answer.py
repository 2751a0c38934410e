"""What is answered about each client: its wakes, the condition for which it wakes, and what that would have saved."""

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from levelog_wakes.audit import AuditCall, AuditReader
from levelog_wakes.bursts import Bursts, Traffic
from levelog_wakes.conditions import Explanation, explain
from levelog_wakes.drafts import draft
from levelog_wakes.periods import Rhythm


class Saving(Struct, frozen=True, kw_only=True):
    """What the wakes cost that such a condition would not have left."""

    wakes: int
    calls: int
    size_bytes: int
    cpu_seconds: float
    """Of kube-apiserver, as measured on one machine for small objects."""


class PeriodOf(Struct, frozen=True):
    """A period, and the number of objects that have it."""

    seconds: float
    jitter_seconds: float
    objects: int


class Woken(Struct, frozen=True, kw_only=True):
    """One client and the objects of one resource, of which its wakes are."""

    client: str
    resource: str
    objects: int
    wakes: int
    periods: list[PeriodOf]
    """Those of most objects first; of at most 24 objects, by their last 64 wakes."""
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
    saving: Saving | None
    draft: str
    """levelog code; empty where no field explains the wakes."""


class WakesFound(Struct, frozen=True, kw_only=True):
    """All that is said about a log."""

    events: int
    seconds: float
    woken: list[Woken]
    """Those with most calls first."""
    remarks: list[str]
    """What was odd about the input."""


def answer(calls: Iterable[AuditCall], reader: AuditReader, *, client: str = "") -> WakesFound:
    """Read all calls and answer; `client` is a part of the names of those to answer about."""
    bursts = Bursts(client)
    for call in calls:
        bursts.take(call)
    return answer_of(bursts, reader)


def answer_of(bursts: Bursts, reader: AuditReader) -> WakesFound:
    """WakesFound from what was taken in; this ends it."""
    bursts.finish()
    reader.finish()
    remarks, versions = reader.remarks, bursts.versions
    if versions.clocks_apart_seconds > 0.5:
        remarks.note(f"seconds the servers' clocks are apart, at least {versions.clocks_apart_seconds:.1f}")
    for number, what in ((bursts.left_out, "objects of clients"), (versions.forgotten, "last versions")):
        if number:
            remarks.note(f"{what} were dropped to save memory", times=number)
    woken = [_woken(each, bursts) for each in bursts.traffic.values() if each.total.calls or each.undone]
    return WakesFound(
        events=reader.events,
        seconds=max(bursts.last - bursts.first, 0.0),
        woken=sorted(woken, key=lambda each: (-each.calls, each.client, each.resource)),
        remarks=remarks.lines(),
    )


def _woken(traffic: Traffic, bursts: Bursts) -> Woken:
    explanation, total = explain(traffic), traffic.total
    watches = {resource: bursts.watches[traffic.client, resource] for resource in traffic.lists}
    saving = None
    if explanation.kind in ("field", "nothing"):
        needed = explanation.needed
        saving = Saving(
            wakes=total.wrote + total.idle - needed.wrote - needed.idle,
            calls=total.calls - needed.calls,
            size_bytes=total.size - needed.size,
            cpu_seconds=total.cpu_seconds - needed.cpu_seconds,
        )
    return Woken(
        client=traffic.client,
        resource=traffic.resource,
        objects=traffic.objects,
        wakes=total.wrote + total.idle,
        periods=_periods(traffic.rhythms),
        calls=total.calls,
        size_bytes=total.size or None,
        wrote=total.wrote,
        unchanged_writes=traffic.unchanged_writes,
        undone=traffic.undone,
        echoes=traffic.echoes,
        lists={each: number - watches[each] for each, number in traffic.lists.items() if number > watches[each]},
        condition=explanation,
        saving=saving,
        draft=draft(traffic.resource, explanation.fields, bursts.versions.kinds) if explanation.kind == "field" else "",
    )


def _periods(rhythms: Sequence[Rhythm]) -> list[PeriodOf]:
    """Rhythms that are within a quarter of the shortest are one."""
    found: list[PeriodOf] = []
    left = sorted(rhythms, key=lambda each: each.seconds)
    while left:
        shortest = left[0].seconds
        near = [each for each in left if each.seconds <= shortest * 1.25]
        left = left[len(near) :]
        found.append(PeriodOf(median(x.seconds for x in near), median(x.jitter_seconds for x in near), len(near)))
    return sorted(found, key=lambda each: -each.objects)
