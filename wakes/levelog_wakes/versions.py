"""The last version of each object, as writes show it: who changed which field when, and who belongs to whom."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec

from levelog_wakes.audit import AuditCall
from levelog_wakes.fields import ABSENT, CREATED, DELETED, WRITTEN, changed_fields, is_time, names_in

_MOST_OBJECTS: Final = 10_000
_MOST_NAMESPACES: Final = 2_000
_MOST_BYTES: Final = 64 << 20
"""Of the bodies that are kept; what was written longest ago is forgotten first."""
_LARGEST_BYTES: Final = 256 << 10
_MOST_FIELDS: Final = 40
_MOMENTS: Final = 12
EPISODE_SECONDS: Final = 5.0
"""Changes of a field so close to each other are one: whoever watches is woken once."""
_QUIET: Final = ("leases.coordination.k8s.io", "events", "events.events.k8s.io")
"""Resources that change all the time, and for which nobody waits who does not name them."""
_MOST_RELATED: Final = 64

Relation = Literal["itself", "owned", "owner", "named", "namesake", "namespace", "cluster"]
RELATIONS: Final[Sequence[Relation]] = ("itself", "owned", "owner", "named", "namesake", "namespace", "cluster")
"""From the closest to the farthest."""
Place = tuple[str, str, str]
"""Resource, namespace and name."""
Effect = Literal["changed", "unchanged", "unknown"]
Cause = tuple[Relation, str, str]
"""How an object belongs to the one that is looked at, its resource, its field."""


class KindSeen(msgspec.Struct, frozen=True):
    """What the log says about a resource."""

    version: str
    kind: str
    has_namespaces: bool


class _OwnerRef(msgspec.Struct):
    uid: str = ""


class _BodyMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    name: str = ""
    resource_version: str = ""
    owner_references: list[_OwnerRef] = []


class _ObjectBody(msgspec.Struct, frozen=True):
    kind: str = ""
    metadata: _BodyMeta = _BodyMeta()


class _Moments(msgspec.Struct):
    """When a field was changed, by whom, and what it was before the last time."""

    moments: tuple[tuple[float, str], ...] = ()
    before: Any = None


class Changed(msgspec.Struct, frozen=True):
    """What happened to a field since a moment."""

    episodes: int
    last: float


class _Fields(OrderedDict[tuple[str, str], _Moments]):
    """Fields by resource and name, those that changed last at the end."""

    def change(self, field: tuple[str, str], at: float, client: str) -> _Moments:
        """Note a change."""
        noted = self.get(field)
        if noted is None:
            noted = self[field] = _Moments()
            if len(self) > _MOST_FIELDS:
                self.popitem(last=False)
        else:
            self.move_to_end(field)
        noted.moments = (*noted.moments[1 - _MOMENTS :], (at, client))
        return noted

    def since(self, moment: float, but: str) -> Iterator[tuple[tuple[str, str], Changed]]:
        """Fields that others than a client changed since then."""
        for field in reversed(self):
            moments = self[field].moments
            if moments[-1][0] <= moment:
                return
            if times := [at for at, client in moments if at > moment and client != but]:
                episodes = 1 + sum(later - first > EPISODE_SECONDS for first, later in pairwise(times))
                yield field, Changed(episodes, times[-1])


class _Known(msgspec.Struct):
    fields: _Fields
    touched: float = 0.0
    """When it was changed last, in seconds since 1970."""
    raw: msgspec.Raw = msgspec.Raw()
    version: str = ""
    uid: str = ""
    owners: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    sent: tuple[str, str] = ("", "")
    """Client and resourceVersion of the last update, where nothing else is known."""


class LastVersions:
    """Fed with all calls in order; forgets what was written longest ago, so that memory stays flat."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindSeen] = {}
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._bytes = 0
        self._uids: dict[str, Place] = {}
        self._owned: dict[str, dict[Place, None]] = defaultdict(dict)
        self._named: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._near: OrderedDict[str, _Fields] = OrderedDict()
        self._touched: dict[str, float] = {}
        self._newest = (0, 0.0)
        self.clocks_apart_seconds = 0.0
        self.forgotten = 0

    def see(self, call: AuditCall) -> None:
        """Learn an object from an answer to a `get`, if nothing is known of it."""
        place = (call.resource, call.namespace, call.name)
        if call.body and not call.subresource and call.name and place not in self._known:
            self._learn(self._of(place), place, call)

    def write(self, call: AuditCall) -> tuple[Effect, list[str]]:
        """Take in a write: whether it changed the object, and whose changes it undid."""
        if call.verb == "deletecollection" or not (call.name or call.body):
            return "unknown", []
        body = _body_of(call.body)
        place = (call.resource, call.namespace, call.name or (body.metadata.name if body else ""))
        known = self._of(place)
        if call.subresource == "scale" and body is not None and body.metadata.resource_version:
            return self._scale(known, place, call, body.metadata.resource_version)
        before, version, last = known.raw, known.version, known.sent
        is_own = not call.subresource or call.subresource == "status"
        if body is not None and is_own and body.metadata.name == place[2]:
            if version and body.metadata.resource_version != version:
                self._check_clock(call, body.metadata.resource_version)
            self._learn(known, place, call)
        elif not known.version and not known.owners:
            known.owners = tuple(f"{place[1]}/{each}" for each in _prefixes(place[2]))
            for owner in known.owners:
                self._owned[owner][place] = None
        if call.verb == "delete":
            return self._mark(known, place, call, DELETED)
        if call.verb == "create" and is_own:
            return self._mark(known, place, call, CREATED)
        if not known.version or body is None:
            known.sent = (call.client, call.sent_version)
            is_same = bool(call.sent_version) and last[1] == call.sent_version
            self._mark(known, place, call, "status" if call.subresource == "status" else WRITTEN)
            return ("unchanged" if is_same else "unknown"), []
        if known.version == (version or call.sent_version):
            return "unchanged", []
        if not before or not known.raw:
            return self._mark(known, place, call, "status" if call.subresource == "status" else WRITTEN)
        return self._compare(known, place, call, before)

    def _scale(self, known: _Known, place: Place, call: AuditCall, version: str) -> tuple[Effect, list[str]]:
        """Take in a write of a scale, whose body has the version of the object that it scales, and no more of it."""
        is_same, known.version = known.version == version, version
        return ("unchanged", []) if is_same else self._mark(known, place, call, "spec.replicas")

    def causes(self, place: Place, since: float, client: str) -> dict[Cause, Changed]:
        """What others changed since a moment, by the closest relation to the object."""
        found: dict[Cause, Changed] = {}
        met: set[tuple[str, str]] = set()
        if max(self._touched.get(place[1], 0.0), self._touched.get("", 0.0)) <= since:
            return found
        for relation, near in self._related(place):
            if near.touched <= since:
                continue
            for field, changed in near.fields.since(since, client):
                found.setdefault((relation, *field), changed)
                met.add(field)
        around: list[tuple[Relation, str]] = [("namespace", place[1]), ("cluster", "")]
        for relation, namespace in around if place[1] else around[1:]:
            if (fields := self._near.get(namespace)) is not None:
                for field, changed in fields.since(since, client):
                    if field not in met:
                        found[relation, *field] = changed
        return found

    def owners(self, place: Place) -> Iterator[Place]:
        """The objects that own one, as far as they are known."""
        known = self._known.get(place)
        return (self._uids[uid] for uid in (known.owners if known else ()) if uid in self._uids)

    def _related(self, place: Place) -> Iterator[tuple[Relation, _Known]]:
        known = self._known.get(place)
        seen = {place}
        pairs: list[tuple[Relation, Place]] = []
        if known is not None:
            yield "itself", known
            owned = list(self._owned.get(known.uid, ()))[:_MOST_RELATED] if known.uid else []
            below = [(self._known[each].uid if each in self._known else "") for each in owned]
            owned += [each for uid in below if uid for each in self._owned.get(uid, ())]
            pairs.extend(("owned", each) for each in owned[:_MOST_RELATED])
            pairs.extend(("owner", each) for each in self.owners(place))
            for namespace in dict.fromkeys((place[1], "")):
                pairs.extend(
                    ("named", (resource, namespace, name))
                    for name in known.names
                    for resource in self._named.get((namespace, name), ())
                )
        if known is None or not known.uid:  # no bodies: by their names
            pairs.extend(
                ("owned", each) for each in list(self._owned.get(f"{place[1]}/{place[2]}", ()))[:_MOST_RELATED]
            )
        pairs.extend(("namesake", (resource, place[1], place[2])) for resource in self._named.get(place[1:], ()))
        for relation, each in pairs:
            if each not in seen and (near := self._known.get(each)) is not None:
                seen.add(each)
                yield relation, near

    def _of(self, place: Place) -> _Known:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = _Known(_Fields())
            self._named[place[1:]][place[0]] = None
        else:
            self._known.move_to_end(place)
        while len(self._known) > _MOST_OBJECTS or (self._bytes > _MOST_BYTES and len(self._known) > 1):
            self._forget()
        return known

    def _forget(self) -> None:
        place, known = self._known.popitem(last=False)
        self.forgotten += 1
        self._bytes -= len(known.raw)
        self._uids.pop(known.uid, None)
        for uid in known.owners:
            _drop(self._owned, uid, place)
        _drop(self._named, place[1:], place[0])

    def _learn(self, known: _Known, place: Place, call: AuditCall) -> None:
        body = _body_of(call.body)
        if body is None or body.kind == "Status":
            return
        if place[0] not in self.kinds:
            self.kinds[place[0]] = KindSeen(call.kind_version.rpartition("/")[2], body.kind, bool(place[1]))
        known.version = body.metadata.resource_version
        if body.metadata.uid != known.uid:
            self._uids.pop(known.uid, None)
            known.uid = body.metadata.uid
            self._uids[known.uid] = place
        owners = tuple(each.uid for each in body.metadata.owner_references)
        if owners != known.owners:
            for uid in known.owners:
                _drop(self._owned, uid, place)
            for uid in owners:
                self._owned[uid][place] = None
            known.owners = owners
        self._bytes -= len(known.raw)
        known.raw = call.body.copy() if len(call.body) <= _LARGEST_BYTES else msgspec.Raw()
        self._bytes += len(known.raw)
        if not known.names or call.subresource != "status":
            known.names = frozenset(names_in(_decoded(known.raw).get("spec")))

    def _mark(self, known: _Known, place: Place, call: AuditCall, field: str) -> tuple[Effect, list[str]]:
        self._note(known, place, call, field)
        return "changed", []

    def _note(self, known: _Known, place: Place, call: AuditCall, field: str) -> _Moments:
        known.touched = call.ended
        self._touched[place[1]] = call.ended
        if place[0] not in _QUIET:
            self._near.setdefault(place[1], _Fields()).change((place[0], field), call.ended, call.client)
            self._near.move_to_end(place[1])
            if len(self._near) > _MOST_NAMESPACES:
                self._touched.pop(self._near.popitem(last=False)[0], None)
        return known.fields.change((place[0], field), call.ended, call.client)

    def _compare(self, known: _Known, place: Place, call: AuditCall, before: msgspec.Raw) -> tuple[Effect, list[str]]:
        undone: list[str] = []
        changes = changed_fields(_decoded(before), _decoded(known.raw))
        if changes and all(is_time(old) and is_time(new) for _, old, new in changes):
            return "unchanged", []  # it says again, at another time, what it had said
        for name, old, new in changes:
            if is_time(old) and is_time(new):
                continue
            earlier = known.fields.get((place[0], name))
            if (
                earlier is not None
                and earlier.moments[-1][1] != call.client
                and earlier.before == _short(new) != ABSENT
            ):
                undone.append(earlier.moments[-1][1])
            self._note(known, place, call, name).before = _short(old)
        return "changed", undone

    def _check_clock(self, call: AuditCall, version: str) -> None:
        """A write has the highest version of all so far; where it has not, its server's clock is late."""
        if version.isdigit():
            newest, ended = self._newest
            if int(version) > newest:
                self._newest = (int(version), call.ended)
            else:
                self.clocks_apart_seconds = max(self.clocks_apart_seconds, call.ended - ended)


def _drop(index: dict[Any, dict[Any, None]], key: Any, item: Any) -> None:
    if key in index:
        index[key].pop(item, None)
        if not index[key]:
            del index[key]


def _prefixes(name: str) -> list[str]:
    """What an object may be named after: `shop` and `shop-db` for `shop-db-0`."""
    words = name.split("-")
    return ["-".join(words[:end]) for end in range(1, min(len(words), 8))]


def _short(value: Any) -> Any:
    """A value to compare, or its hash."""
    return hash(msgspec.json.encode(value)) if isinstance(value, dict | list) else value


def _body_of(raw: msgspec.Raw) -> _ObjectBody | None:
    try:
        return msgspec.json.decode(raw, type=_ObjectBody) if raw else None
    except msgspec.DecodeError:
        return None


def _decoded(raw: msgspec.Raw) -> dict[str, Any]:
    decoded = msgspec.json.decode(raw) if raw else {}
    return decoded if isinstance(decoded, dict) else {}
