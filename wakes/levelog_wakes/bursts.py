"""Wakes: bursts of one client's calls about one object, added up for each client and resource."""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator
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
"""Resources that are written all the time: their changes are no causes, and wakes about them have none."""
CPU_SECONDS: Final = {
    "get": 0.0017,
    "list": 0.0025,
    "create": 0.0030,
    "update": 0.0036,
    "patch": 0.0041,
    "delete": 0.0026,
}
"""Of kube-apiserver, for an object of 1.3 kB, or a list without items: measured with 1.36, on two busy cores."""


class Sum(Struct):
    """Wakes added up."""

    wrote: int = 0
    idle: int = 0
    calls: int = 0
    size_bytes: int = 0
    cpu_seconds: float = 0.0
    """Of kube-apiserver, as measured on one machine for small objects."""

    @property
    def wakes(self) -> int:
        """Those that wrote, and those that did not."""
        return self.wrote + self.idle

    def add(self, other: "Sum", sign: int = 1) -> "Sum":
        """Add another, or take it away; self."""
        self.wrote += sign * other.wrote
        self.idle += sign * other.idle
        self.calls += sign * other.calls
        self.size_bytes += sign * other.size_bytes
        self.cpu_seconds += sign * other.cpu_seconds
        return self


class Traffic(Struct):
    """The questions of one client about the objects of one resource."""

    client: str
    resource: str
    objects: int = 0
    unchanged_writes: int = 0
    undone: int = 0
    echoes: int = 0
    """Wakes that followed a write of its own, and nothing else."""
    lists: Counter[str] = field(default_factory=Counter)
    """Lists in these wakes, by resource; the pages of a list are one."""
    bits: dict[Cause, int] = {}
    """Fields that had changed before a wake, each with a bit of its own."""
    sets: dict[tuple[int, int], Sum] = {}
    """Wakes by the bits of all fields that had changed since the wake before, and of those that had just changed."""
    more: Counter[Cause] = field(default_factory=Counter)
    """The number of times that a field had changed again before the same wake."""
    rhythms: list[list[Rhythm]] = []
    """Of the objects that have any."""
    tried: int = 0
    """Objects whose period was looked for."""


class _Followed(Struct):
    """An object about which a client asks."""

    place: Place
    traffic: Traffic
    times: "array[float]" = field(default_factory=lambda: array("d"))
    burst: Sum | None = None
    """The wake that is under way; what follows is of that, or of the last one."""
    began: float = 0.0
    ended: float = 0.0
    causes: tuple[int, int] = (0, 0)
    has_changed: bool = False
    lists: list[str] = []


class _Client(Struct):
    name: str
    is_asked: bool
    traffic: dict[str, Traffic] = {}
    watches: Counter[str] = field(default_factory=Counter)
    current: _Followed | None = None
    """The object of its last question."""

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
        self._followed: OrderedDict[tuple[str, Place], _Followed] = OrderedDict()
        """By client and object; what was quiet the longest is first."""
        self._sets = 0

    def take(self, call: AuditCall) -> None:
        """Add a call."""
        began, ended, resource = call.began, call.ended, call.place[0]
        if ended > self.last:
            self.last = ended
            self.first = self.first or began
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
        if burst is None or began - followed.ended > _GAP_SECONDS:
            burst = self._begin(client, followed, began)
        followed.ended = max(followed.ended, ended)
        burst.calls += 1
        burst.size_bytes += call.size
        burst.cpu_seconds += CPU_SECONDS.get(call.verb, 0.0017)
        if call.is_list:
            followed.lists.append(resource)
        elif has_changed:
            followed.has_changed = True
        elif call.is_write:
            followed.traffic.unchanged_writes += 1
        client.current = followed

    def finish(self) -> Iterator[tuple[Traffic, Counter[str]]]:
        """End what is under way; all traffic, each with the watches of its client by resource."""
        for followed in sorted(self._followed.values(), key=lambda each: -len(each.times)):
            self._drop(followed)
        self._followed.clear()
        for client in self._clients.values():
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
                if (client.name, owner) in self._followed:
                    place = owner
        key = client.name, place
        if (followed := self._followed.get(key)) is None:
            followed = self._followed[key] = _Followed(place, client.of(place[0]))
            followed.traffic.objects += 1
            if len(self._followed) > _MOST_OBJECTS:
                self._drop(self._followed.popitem(last=False)[1])
                self.left_out += 1
        else:
            self._followed.move_to_end(key)
        if current is not None and current is not followed and not current.place[2]:
            self._absorb(client, followed, current, call)
        return followed

    def _absorb(self, client: _Client, followed: _Followed, listed: _Followed, call: AuditCall) -> None:
        """Lists that stand before the first call about an object belong to its wake."""
        burst = listed.burst
        goes_on = followed.burst is not None and call.began - followed.ended <= _GAP_SECONDS
        if burst is None or goes_on or listed.place[1] not in ("", call.place[1]):
            return
        self._begin(client, followed, listed.began).add(burst)
        followed.ended, followed.lists = listed.ended, listed.lists
        listed.burst, listed.lists, listed.began = None, [], listed.times[-1] if listed.times else 0.0

    def _begin(self, client: _Client, followed: _Followed, began: float) -> Sum:
        """End the wake before, and begin another; the fields that had changed in between are its causes."""
        is_echo = followed.has_changed and began - followed.ended <= _ECHO_SECONDS
        since = followed.began
        self._end(followed)
        traffic, place = followed.traffic, followed.place
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
        traffic.echoes += is_echo
        followed.began, followed.causes, followed.has_changed = began, (before, just_before), False
        burst = followed.burst = Sum()
        return burst

    def _end(self, followed: _Followed) -> None:
        burst, traffic, times = followed.burst, followed.traffic, followed.times
        if burst is None:
            return
        followed.burst = None
        if len(times) == _MOST_TIMES:
            del times[0]
        times.append(followed.began)
        if followed.lists:
            traffic.lists.update(followed.lists)
            followed.lists = []
        burst.wrote, burst.idle = (1, 0) if followed.has_changed else (0, 1)
        if (total := traffic.sets.get(followed.causes)) is not None:
            total.add(burst)
        elif len(traffic.sets) < _MOST_SETS and self._sets < _MOST_SETS_IN_ALL:
            self._sets += 1
            traffic.sets[followed.causes] = burst
        else:
            self.unexplained += 1
            traffic.sets.setdefault((0, 0), Sum()).add(burst)

    def _drop(self, followed: _Followed) -> None:
        self._end(followed)
        traffic = followed.traffic
        if len(followed.times) >= LEAST_WAKES and traffic.tried < _MOST_RHYTHMS:
            traffic.tried += 1
            if rhythms := rhythms_of(followed.times):
                traffic.rhythms.append(rhythms)
        traffic.objects -= not followed.times
