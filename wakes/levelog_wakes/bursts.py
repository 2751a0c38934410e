"""Wakes: bursts of one client's calls about one object, added up for each client and resource."""

from collections import Counter, OrderedDict
from typing import Final

from msgspec import Struct, field

from levelog_wakes.audit import AuditCall
from levelog_wakes.periods import LEAST_WAKES, Rhythm, rhythm_of
from levelog_wakes.versions import EPISODE_SECONDS, Cause, LastVersions, Place

_GAP_SECONDS: Final = 0.5
"""So long a client may say nothing about an object within one wake."""
_ECHO_SECONDS: Final = 2.0
"""A wake so soon after a write of one's own, with nothing else changed, is that write's."""
_MOST_OBJECTS: Final = 20_000
"""Objects of clients that are followed; what was quiet the longest is added up and dropped."""
_MOST_TIMES: Final = 64
_MOST_RHYTHMS: Final = 24
"""Objects of a resource whose period is looked for, those with most wakes."""
_MOST_CAUSES: Final = 40
"""Fields that are kept of one wake, the closest first."""
_MOST_SETS: Final = 4096
_UNNAMED: Final = ("events", "events.events.k8s.io")
CPU_SECONDS: Final = {
    "get": 0.0017,
    "list": 0.0025,
    "create": 0.0030,
    "update": 0.0036,
    "patch": 0.0041,
    "delete": 0.0026,
}
"""Of kube-apiserver, for an object of 1.3 kB, or a list without items: bench/callcosts.py, on two busy cores."""


class Sum(Struct):
    """Wakes added up."""

    wrote: int = 0
    idle: int = 0
    calls: int = 0
    size: int = 0
    cpu_seconds: float = 0.0


class Preceding(Struct):
    """How often a field had changed before a wake."""

    wrote: int = 0
    idle: int = 0
    episodes: int = 0


CauseSet = frozenset[tuple[Cause, bool]]
"""Fields that had changed before a wake, each with whether that was just before it."""


class Traffic(Struct):
    """What one client asks about the objects of one resource."""

    client: str
    resource: str
    objects: int = 0
    total: Sum = field(default_factory=Sum)
    unchanged_writes: int = 0
    undone: int = 0
    echoes: int = 0
    """Wakes that followed a write of its own, and nothing else."""
    lists: Counter[str] = field(default_factory=Counter)
    """Lists in these wakes, by resource; the pages of a list are one."""
    fields: dict[Cause, Preceding] = field(default_factory=dict)
    sets: dict[CauseSet, Sum] = field(default_factory=dict)
    rhythms: list[Rhythm] = field(default_factory=list)
    tried: int = 0
    """Objects whose period was looked for."""


class _Burst(Struct):
    began: float
    causes: CauseSet
    episodes: dict[Cause, int]
    is_echo: bool = False
    calls: int = 0
    size: int = 0
    cpu_seconds: float = 0.0
    has_changed: bool = False
    unchanged: int = 0
    lists: list[str] = field(default_factory=list)


class _Followed(Struct):
    place: Place
    traffic: Traffic
    times: list[float] = field(default_factory=list)
    wakes: int = 0
    burst: _Burst | None = None
    ended: float = 0.0
    has_changed: bool = False
    """In the wake before."""


class Bursts:
    """Fed with all calls in order; `client` is a part of the names of those that are looked at."""

    def __init__(self, client: str = "") -> None:
        self.versions = LastVersions()
        self.traffic: dict[tuple[str, str], Traffic] = {}
        self.watches: Counter[tuple[str, str]] = Counter()
        self.first, self.last = 0.0, 0.0
        self.left_out = 0
        self._client = client.lower()
        self._asked: dict[str, bool] = {}
        self._followed: OrderedDict[tuple[str, Place], _Followed] = OrderedDict()
        self._current: dict[str, _Followed] = {}

    def take(self, call: AuditCall) -> None:
        """Add a call."""
        self.first = self.first or call.began
        self.last = max(self.last, call.ended)
        effect, undone = self.versions.write(call) if call.is_write else ("", ())
        for client in undone:
            if self._is_asked(client):
                self._of(client, call.resource).undone += 1
        if not self._is_asked(call.client):
            return
        if call.verb == "watch":
            self.watches[call.client, call.resource] += 1
            return
        if call.verb == "get":
            self.versions.see(call)
        followed = self._anchor(call)
        burst = self._burst(followed, call)
        followed.ended = max(followed.ended, call.ended)
        burst.calls += 1
        burst.size += len(call.body) + len(call.sent)
        burst.cpu_seconds += CPU_SECONDS.get(call.verb, CPU_SECONDS["get"])
        burst.has_changed |= effect in ("changed", "unknown")
        burst.unchanged += effect == "unchanged"
        if call.verb == "list" and not call.is_paged:
            burst.lists.append(call.resource)
        self._current[call.client] = followed

    def finish(self) -> None:
        """End what is under way."""
        for followed in sorted(self._followed.values(), key=lambda each: -each.wakes):
            self._drop(followed)
        self._followed.clear()

    def _is_asked(self, client: str) -> bool:
        if (is_asked := self._asked.get(client)) is None:
            is_asked = self._asked[client] = self._client in client.lower()
        return is_asked

    def _of(self, client: str, resource: str) -> Traffic:
        traffic = self.traffic.get((client, resource))
        if traffic is None:
            traffic = self.traffic[client, resource] = Traffic(client, resource)
        return traffic

    def _anchor(self, call: AuditCall) -> _Followed:
        """The object that a call is about: its own, its owner if the client asks for that too, or the last one."""
        client, place = call.client, (call.resource, call.namespace, call.name)
        current = self._current.get(client)
        is_near = current is not None and call.began - current.ended <= _GAP_SECONDS
        is_around = current is not None and (not call.namespace or current.place[1] in ("", call.namespace))
        if current is not None and is_near and is_around and (not call.name or call.resource in _UNNAMED):
            return current
        if call.resource in _UNNAMED:
            place = (call.resource, call.namespace, "")
        for owner in self.versions.owners(place) if call.name else ():
            if (client, owner) in self._followed:
                place = owner
        followed = self._followed.get((client, place))
        if followed is None:
            followed = self._follow(client, place)
        self._followed.move_to_end((client, place))
        if current is not None and is_near and current is not followed and not current.place[2]:
            self._absorb(followed, current, call)
        return followed

    def _follow(self, client: str, place: Place) -> _Followed:
        traffic = self._of(client, place[0])
        traffic.objects += 1
        followed = self._followed[client, place] = _Followed(place, traffic)
        if len(self._followed) > _MOST_OBJECTS:
            _, quiet = self._followed.popitem(last=False)
            self.left_out += 1
            self._drop(quiet)
        return followed

    def _absorb(self, followed: _Followed, listed: _Followed, call: AuditCall) -> None:
        """Lists that stand before the first call about an object belong to its wake."""
        burst = listed.burst
        goes_on = followed.burst is not None and call.began - followed.ended <= _GAP_SECONDS
        if burst is None or listed.place[1] not in ("", call.namespace) or goes_on:
            return
        listed.burst = None
        own = self._burst(followed, call, burst.began)
        followed.ended = listed.ended
        own.calls, own.size, own.cpu_seconds, own.lists = burst.calls, burst.size, burst.cpu_seconds, burst.lists

    def _burst(self, followed: _Followed, call: AuditCall, began: float | None = None) -> _Burst:
        burst, began = followed.burst, call.began if began is None else began
        if burst is not None and began - followed.ended <= _GAP_SECONDS:
            return burst
        since = followed.times[-1] if burst is None and followed.times else burst.began if burst else 0.0
        self._end(followed)
        found = self.versions.causes(followed.place, since, call.client) if since else {}
        causes = dict(list(found.items())[:_MOST_CAUSES])
        is_soon = followed.has_changed and began - followed.ended <= _ECHO_SECONDS
        followed.burst = _Burst(
            began=began,
            causes=frozenset((cause, began - each.last <= EPISODE_SECONDS) for cause, each in causes.items()),
            episodes={cause: each.episodes for cause, each in causes.items()},
            is_echo=is_soon and all(relation in ("namespace", "cluster") for relation, _, _ in causes),
        )
        return followed.burst

    def _end(self, followed: _Followed) -> None:
        burst, traffic = followed.burst, followed.traffic
        if burst is None:
            return
        followed.burst = None
        followed.wakes += 1
        followed.has_changed = burst.has_changed
        followed.times = [*followed.times[1 - _MOST_TIMES :], burst.began]
        traffic.unchanged_writes += burst.unchanged
        traffic.echoes += burst.is_echo
        traffic.lists.update(burst.lists)
        if burst.causes not in traffic.sets and len(traffic.sets) >= _MOST_SETS:
            burst.causes = frozenset()
        for total in (traffic.total, traffic.sets.setdefault(burst.causes, Sum())):
            total.wrote += burst.has_changed
            total.idle += not burst.has_changed
            total.calls += burst.calls
            total.size += burst.size
            total.cpu_seconds += burst.cpu_seconds
        for cause, _ in burst.causes:
            seen = traffic.fields.setdefault(cause, Preceding())
            seen.wrote += burst.has_changed
            seen.idle += not burst.has_changed
            seen.episodes += burst.episodes[cause]

    def _drop(self, followed: _Followed) -> None:
        self._end(followed)
        if len(followed.times) >= LEAST_WAKES and followed.traffic.tried < _MOST_RHYTHMS:
            followed.traffic.tried += 1
            rhythm = rhythm_of(followed.times)
            if rhythm is not None:
                followed.traffic.rhythms.append(rhythm)
        if not followed.wakes and followed.traffic.objects:
            followed.traffic.objects -= 1
