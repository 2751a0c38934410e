"""Wakes: bursts of one client's calls about one object, added up for each client and resource."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import Final

from msgspec import Struct, field

from levelog_wakes.audit import AuditCall, Place
from levelog_wakes.periods import LEAST_WAKES, Rhythm, rhythms_of
from levelog_wakes.versions import Cause, LastVersions

_GAP_SECONDS: Final = 0.5
"""So long a client may say nothing about an object within one wake."""
_ECHO_SECONDS: Final = 2.0
"""A wake so soon after a write of one's own, with nothing else changed, is that write's."""
_EPISODE_SECONDS: Final = 5.0
"""Changes of a field so close to each other are one: whoever watches is woken once."""
_MOST_OBJECTS: Final = 20_000
"""Objects of clients that are followed; what was quiet the longest is added up and dropped."""
_MOST_TIMES: Final = 128
_MOST_RHYTHMS: Final = 12
"""Objects of a resource whose period is looked for, those with most wakes."""
_MOST_CAUSES: Final = 40
"""Fields that are kept of one wake, the closest first."""
_MOST_FIELDS: Final = 512
"""Fields that are told apart for a client and a resource."""
_MOST_SETS: Final = 2048
_MOST_SETS_IN_ALL: Final = 200_000
_NAMELESS: Final = ("events", "events.events.k8s.io")
_QUIET: Final = ("leases.coordination.k8s.io", *_NAMELESS)
"""Resources that are written all the time, and for whose fields nobody waits."""
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


class Traffic(Struct):
    """What one client asks about the objects of one resource."""

    client: str
    resource: str
    objects: int = 0
    unchanged_writes: int = 0
    undone: int = 0
    echoes: int = 0
    """Wakes that followed a write of its own, and nothing else."""
    lists: Counter[str] = field(default_factory=Counter)
    """Lists in these wakes, by resource; the pages of a list are one."""
    bits: dict[Cause, int] = field(default_factory=dict)
    """Fields that had changed before a wake, each with a bit of its own."""
    sets: dict[tuple[int, int], Sum] = field(default_factory=dict)
    """Wakes by the bits of all fields that had changed since the wake before, and of those that had just changed."""
    more: Counter[Cause] = field(default_factory=Counter)
    """How often a field had changed again before the same wake."""
    rhythms: list[list[Rhythm]] = field(default_factory=list)
    """Of the objects that have any."""
    tried: int = 0
    """Objects whose period was looked for."""


def sum_of(sums: Iterable[Sum]) -> Sum:
    """Many sums as one."""
    total = Sum()
    for each in sums:
        total.wrote += each.wrote
        total.idle += each.idle
        total.calls += each.calls
        total.size += each.size
        total.cpu_seconds += each.cpu_seconds
    return total


class _Burst(Struct):
    began: float
    causes: tuple[int, int]
    is_echo: bool
    calls: int = 0
    size: int = 0
    cpu_seconds: float = 0.0
    has_changed: bool = False
    lists: list[str] = field(default_factory=list)


class _Followed(Struct):
    place: Place
    traffic: Traffic
    times: "array[float]" = field(default_factory=lambda: array("d"))
    wakes: int = 0
    burst: _Burst | None = None
    ended: float = 0.0
    has_changed: bool = False
    """In the wake before."""


class _Client(Struct):
    name: str
    is_asked: bool
    followed: dict[Place, _Followed] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    watches: Counter[str] = field(default_factory=Counter)
    current: _Followed | None = None
    """What it asked about last."""

    def of(self, resource: str) -> Traffic:
        if (traffic := self.traffic.get(resource)) is None:
            traffic = self.traffic[resource] = Traffic(self.name, resource)
        return traffic


class Bursts:
    """Fed with all calls in order; `client` is a part of the names of those that are looked at."""

    def __init__(self, client: str = "") -> None:
        self.versions = LastVersions()
        self.first, self.last = 0.0, 0.0
        self.left_out = 0
        """Objects of clients that were dropped to save memory."""
        self.unexplained = 0
        """Wakes whose causes were dropped to save memory."""
        self._asked = client.lower()
        self._clients: dict[str, _Client] = {}
        self._followed = 0
        self._sets = 0

    def take(self, call: AuditCall) -> None:
        """Add a call."""
        self.first = self.first or call.began
        self.last = max(self.last, call.ended)
        resource = call.place[0]
        has_changed = call.is_write
        if has_changed and resource not in _QUIET:
            has_changed, undone = self.versions.write(call)
            for name in undone:
                if (other := self._client(name)).is_asked:
                    other.of(resource).undone += 1
        client = self._clients.get(call.client) or self._client(call.client)
        if not client.is_asked:
            return
        if call.verb == "watch":
            client.watches[resource] += 1
            return
        if call.body and call.verb == "get":
            self.versions.see(call)
        followed = self._anchor(client, call)
        burst = followed.burst
        if burst is None or call.began - followed.ended > _GAP_SECONDS:
            burst = self._begin(client, followed, call.began)
        followed.ended = max(followed.ended, call.ended)
        burst.calls += 1
        burst.size += call.size
        burst.cpu_seconds += CPU_SECONDS.get(call.verb, 0.0017)
        if call.is_list:
            burst.lists.append(resource)
        elif call.is_write:
            burst.has_changed |= has_changed
            followed.traffic.unchanged_writes += not has_changed
        client.current = followed

    def finish(self) -> Iterator[tuple[Traffic, Counter[str]]]:
        """End what is under way; all traffic, each with the watches of its client by resource."""
        for client in self._clients.values():
            for followed in sorted(client.followed.values(), key=lambda each: -each.wakes):
                self._drop(followed)
            client.followed.clear()
            for traffic in client.traffic.values():
                yield traffic, client.watches

    def _client(self, name: str) -> _Client:
        if (client := self._clients.get(name)) is None:
            client = self._clients[name] = _Client(name, self._asked in name.lower())
        return client

    def _anchor(self, client: _Client, call: AuditCall) -> _Followed:
        """The object that a call is about: its own, its owner if the client asks for that too, or the last one."""
        resource, namespace, name = place = call.place
        current = client.current
        if current is not None and call.began - current.ended > _GAP_SECONDS:
            current = None
        if not name or resource in _NAMELESS:
            if current is not None and (not namespace or current.place[1] in ("", namespace)):
                return current
            place = (resource, namespace, "")
        else:
            for owner in self.versions.owners(place):
                if owner in client.followed:
                    place = owner
        followed = client.followed.get(place) or self._follow(client, place)
        if current is not None and current is not followed and not current.place[2]:
            self._absorb(client, followed, current, call)
        return followed

    def _follow(self, client: _Client, place: Place) -> _Followed:
        traffic = client.of(place[0])
        traffic.objects += 1
        followed = client.followed[place] = _Followed(place, traffic)
        self._followed += 1
        if self._followed > _MOST_OBJECTS:
            self._drop_quiet()
        return followed

    def _drop_quiet(self) -> None:
        """Add up what was quiet the longest, a quarter of all."""
        every = [(client, each) for client in self._clients.values() for each in client.followed.values()]
        every.sort(key=lambda pair: pair[1].ended or self.last)
        for client, quiet in every[: len(every) // 4]:
            self._drop(quiet)
            del client.followed[quiet.place]
            self.left_out += 1
            self._followed -= 1

    def _absorb(self, client: _Client, followed: _Followed, listed: _Followed, call: AuditCall) -> None:
        """Lists that stand before the first call about an object belong to its wake."""
        burst = listed.burst
        goes_on = followed.burst is not None and call.began - followed.ended <= _GAP_SECONDS
        if burst is None or goes_on or listed.place[1] not in ("", call.place[1]):
            return
        listed.burst = None
        own = self._begin(client, followed, burst.began)
        followed.ended = listed.ended
        own.calls, own.size, own.cpu_seconds, own.lists = burst.calls, burst.size, burst.cpu_seconds, burst.lists

    def _begin(self, client: _Client, followed: _Followed, began: float) -> _Burst:
        since = followed.burst.began if followed.burst else followed.times[-1] if followed.times else 0.0
        self._end(followed)
        traffic, place = followed.traffic, followed.place
        is_echo = followed.has_changed and began - followed.ended <= _ECHO_SECONDS
        before = just_before = 0
        if since and place[0] not in _QUIET and (found := self.versions.causes(place, since, client.name)):
            bits = traffic.bits
            for cause, times in islice(found.items(), _MOST_CAUSES):
                if (bit := bits.get(cause)) is None:
                    bit = bits[cause] = 1 << len(bits) if len(bits) < _MOST_FIELDS else 0
                before |= bit
                if began - times[0] <= _EPISODE_SECONDS:
                    just_before |= bit
                if times[0] - times[-1] > _EPISODE_SECONDS:
                    traffic.more[cause] += sum(later - first > _EPISODE_SECONDS for later, first in pairwise(times))
            is_echo = is_echo and all(relation in ("namespace", "cluster") for relation, _, _ in found)
        followed.burst = _Burst(began, (before, just_before), is_echo)
        return followed.burst

    def _end(self, followed: _Followed) -> None:
        burst, traffic = followed.burst, followed.traffic
        if burst is None:
            return
        followed.burst = None
        followed.wakes += 1
        followed.has_changed = burst.has_changed
        if len(followed.times) == _MOST_TIMES:
            del followed.times[0]
        followed.times.append(burst.began)
        traffic.echoes += burst.is_echo
        for resource in burst.lists:
            traffic.lists[resource] += 1
        total = traffic.sets.get(burst.causes)
        if total is None:
            total = self._set(traffic, burst.causes)
        if burst.has_changed:
            total.wrote += 1
        else:
            total.idle += 1
        total.calls += burst.calls
        total.size += burst.size
        total.cpu_seconds += burst.cpu_seconds

    def _set(self, traffic: Traffic, causes: tuple[int, int]) -> Sum:
        if len(traffic.sets) >= _MOST_SETS or self._sets >= _MOST_SETS_IN_ALL:
            self.unexplained += 1
            return traffic.sets.setdefault((0, 0), Sum())
        self._sets += 1
        return traffic.sets.setdefault(causes, Sum())

    def _drop(self, followed: _Followed) -> None:
        self._end(followed)
        traffic = followed.traffic
        if len(followed.times) >= LEAST_WAKES and traffic.tried < _MOST_RHYTHMS:
            traffic.tried += 1
            if rhythms := rhythms_of(followed.times):
                traffic.rhythms.append(rhythms)
        if not followed.wakes and traffic.objects:
            traffic.objects -= 1
