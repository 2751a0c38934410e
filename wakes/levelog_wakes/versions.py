"""The last version of each object, as writes show it: who changed which field when, and who belongs to whom."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from levelog_base.wire.objects import parse_version
from levelog_wakes.audit import UNREADABLE, AuditCall, Place
from levelog_wakes.fields import ABSENT, CREATED, DELETED, WRITTEN, changed_fields, is_time, names_in

_MOST_OBJECTS: Final = 10_000
_MOST_GROUPS: Final = 10_000
_MOST_BYTES: Final = 64 << 20
"""Of the bodies that are kept; what was written longest ago is forgotten first."""
_LARGEST_BYTES: Final = 256 << 10
_MOST_FIELDS: Final = 40
_MOMENTS: Final = 6

Relation = Literal["itself", "owned", "owner", "named", "namesake", "namespace", "cluster"]
RELATIONS: Final[Sequence[Relation]] = ("itself", "owned", "owner", "named", "namesake", "namespace", "cluster")
"""From the closest to the farthest."""
Cause = tuple[Relation, str, str]
"""How an object belongs to the one that is looked at, its resource, its field."""


class KindSeen(Struct, frozen=True):
    """The facts about a resource in the log."""

    version: str
    kind: str
    has_namespaces: bool


class _OwnerRef(Struct, frozen=True):
    uid: str = ""


class _BodyMeta(Struct, frozen=True, rename="camel"):
    uid: str = ""
    name: str = ""
    resource_version: str = ""
    owner_references: list[_OwnerRef] = []


class _ObjectBody(Struct, frozen=True):
    kind: str = ""
    metadata: _BodyMeta = _BodyMeta()


_Change = tuple[float, str, Any]
"""Its moment, its client, and the value before."""


class _Fields(dict[tuple[str, str], list[_Change]]):
    """The last changes of fields; that which changed last is at the end."""

    touched = 0.0
    """The time of the last change of one, in seconds since 1970."""

    def note(self, field: tuple[str, str], change: _Change) -> None:
        """Add a change of a field, named by its resource and its path."""
        self.touched = change[0]
        changes = self[field] = self.pop(field, [])
        if len(changes) == _MOMENTS:
            del changes[0]
        changes.append(change)
        if len(self) > _MOST_FIELDS:
            del self[next(iter(self))]

    def since(self, moment: float, but: str) -> list[tuple[tuple[str, str], list[float]]]:
        """Fields that others than a client changed since then, and when, the last moment first."""
        found: list[tuple[tuple[str, str], list[float]]] = []
        for field, changes in reversed(self.items()):
            if changes[-1][0] <= moment:
                break
            if times := [at for at, client, _ in reversed(changes) if at > moment and client != but]:
                found.append((field, times))
        return found


class _Known(Struct):
    fields: _Fields
    raw: bytes = b""
    version: str = ""
    uid: str = ""
    owners: tuple[str, ...] = ()
    """Their uids; of an object without a body, what its name begins with: `shop/web` for `web-0`."""
    names: frozenset[str] = frozenset()
    sent: str = ""
    """The resourceVersion of the last update, where nothing else is known."""


class LastVersions:
    """Fed with all calls in order; forgets what was written longest ago, so that memory stays flat."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindSeen] = {}
        self.clocks_apart_seconds = 0.0
        self.forgotten = 0
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._bytes = 0
        self._uids: dict[str, Place] = {}
        self._near: dict[tuple[str, ...], _Fields] = {}
        """Of the objects of an owner, of a name in a namespace, and of a namespace; what changed last is at the end."""
        self._newest = (0, 0.0)

    def see(self, call: AuditCall) -> None:
        """Learn an object from an answer to a `get`, if nothing is known of it."""
        if call.body and call.place[2] and not call.subresource and call.place not in self._known:
            self._learn(self._of(call.place), call.place, call, _body_of(call.body))

    def write(self, call: AuditCall) -> tuple[bool, list[str]]:
        """Take in a write: whether it changed the object, as far as one can tell, and whose changes it undid."""
        body, (resource, namespace, name) = _body_of(call.body), call.place
        if call.verb == "deletecollection" or not (name or body):
            return True, []
        place = (resource, namespace, name or (body.metadata.name if body else ""))
        known, is_own = self._of(place), call.subresource in ("", "status")
        version = body.metadata.resource_version if body else ""
        before, before_version, before_sent = known.raw, known.version, known.sent
        if call.subresource == "scale" and version:  # its body has the version of the object that it scales
            known.version = version
            return version != before_version and self._note(known, place, call, "spec.replicas"), []
        if body and is_own and body.metadata.name == place[2]:
            if before_version and version != before_version:
                self._check_clock(call, version)
            self._learn(known, place, call, body)
        elif not known.version and not known.owners:
            known.owners = tuple(f"{namespace}/{each}" for each in _prefixes(place[2]))
        if call.verb in ("delete", "create") and (is_own or call.verb == "delete"):
            return self._note(known, place, call, DELETED if call.verb == "delete" else CREATED), []
        anything = "status" if call.subresource == "status" else WRITTEN
        if not known.version or body is None:
            known.sent = call.sent_version
            self._note(known, place, call, anything)
            return not call.sent_version or before_sent != call.sent_version, []
        if known.version == (before_version or call.sent_version):
            return False, []
        if not before or not known.raw:
            return self._note(known, place, call, anything), []
        return self._compare(known, place, call, before)

    def causes(self, place: Place, since: float, client: str) -> dict[Cause, list[float]]:
        """The changes of others since a moment, and their times, by the closest relation to the object."""
        found: dict[Cause, list[float]] = {}
        known, (_, namespace, name), near = self._known.get(place), place, self._near.get
        own, cluster = near(("namespace", namespace)), near(("namespace", ""))
        if (own is None or own.touched <= since) and (cluster is None or cluster.touched <= since):
            return found
        owner = known.uid if known is not None and known.uid else f"{namespace}/{name}"  # no bodies: by their names
        related: list[tuple[Relation, _Fields | None]] = []
        if known is not None:
            related.append(("itself", known.fields))
        related.append(("owned", near(("owned", owner))))
        if known is not None:
            related.extend(("owner", self._known[each].fields) for each in self.owners(place))
            for each in known.names:
                related.extend(("named", near(("name", around, each))) for around in (namespace, ""))
        related.append(("namesake", near(("name", namespace, name))))
        if namespace:
            related.append(("namespace", own))
        related.append(("cluster", cluster))
        met: set[tuple[str, str]] = set()
        for relation, fields in related:
            if fields is not None and fields.touched > since:
                for field, times in fields.since(since, client):
                    if field not in met:
                        met.add(field)
                        found[relation, *field] = times
        return found

    def owners(self, place: Place) -> Sequence[Place]:
        """The objects that own one, as far as they are known."""
        known = self._known.get(place)
        return [self._uids[uid] for uid in known.owners if uid in self._uids] if known and known.owners else ()

    def _of(self, place: Place) -> _Known:
        known = self._known.get(place)
        if known is not None:
            self._known.move_to_end(place)
            return known
        known = self._known[place] = _Known(_Fields())
        while len(self._known) > _MOST_OBJECTS or (self._bytes > _MOST_BYTES and len(self._known) > 1):
            self._forget()
        return known

    def _forget(self) -> None:
        known = self._known.popitem(last=False)[1]
        self.forgotten += 1
        self._bytes -= len(known.raw)
        self._uids.pop(known.uid, None)

    def _learn(self, known: _Known, place: Place, call: AuditCall, body: _ObjectBody | None) -> None:
        if body is None or body.kind == "Status":
            return
        if place[0] not in self.kinds:
            self.kinds[place[0]] = KindSeen(call.version, body.kind, bool(place[1]))
        known.version = body.metadata.resource_version
        if body.metadata.uid != known.uid:
            self._uids.pop(known.uid, None)
            known.uid = body.metadata.uid
            self._uids[known.uid] = place
        known.owners = tuple(dict.fromkeys(each.uid for each in body.metadata.owner_references))
        self._bytes -= len(known.raw)
        known.raw = call.body if len(call.body) <= _LARGEST_BYTES else b""
        self._bytes += len(known.raw)
        if not known.names or call.subresource != "status":
            known.names = frozenset(names_in(_decoded(known.raw).get("spec")))

    def _note(self, known: _Known, place: Place, call: AuditCall, path: str, before: Any = None) -> bool:
        """Note that a field has changed; True."""
        field, change, above = (place[0], path), (call.ended, call.client, before), list(known.owners)
        for owner in self.owners(place):
            above += self._known[owner].owners
        for group in (*(("owned", each) for each in above), ("name", *place[1:]), ("namespace", place[1])):
            near = self._near[group] = self._near.pop(group) if group in self._near else _Fields()
            near.note(field, change)
        while len(self._near) > _MOST_GROUPS:
            del self._near[next(iter(self._near))]
        known.fields.note(field, change)
        return True

    def _compare(self, known: _Known, place: Place, call: AuditCall, before: bytes) -> tuple[bool, list[str]]:
        undone: list[str] = []
        changes = changed_fields(_decoded(before), _decoded(known.raw))
        if changes and all(is_time(old) and is_time(new) for _, old, new in changes):
            return False, []  # it says again, at another time, what it had said
        for path, old, new in changes:
            if is_time(old) and is_time(new):
                continue
            if (earlier := known.fields.get((place[0], path))) is not None:
                _, client, value = earlier[-1]
                if client != call.client and value == _short(new) != ABSENT:
                    undone.append(client)
            self._note(known, place, call, path, _short(old))
        return True, undone

    def _check_clock(self, call: AuditCall, version: str) -> None:
        """A write has the highest version of all so far; where it has not, its server's clock is late."""
        newest, ended = self._newest
        with suppress(ValueError):
            if (number := parse_version(version)) > newest:
                self._newest = (number, call.ended)
            else:
                self.clocks_apart_seconds = max(self.clocks_apart_seconds, call.ended - ended)


def _prefixes(name: str) -> list[str]:
    """The names that an object may be derived from: `shop` and `shop-db` for `shop-db-0`."""
    words = name.split("-")
    return ["-".join(words[:end]) for end in range(1, min(len(words), 8))]


def _short(value: Any) -> Any:
    """A value to compare, or its hash."""
    return hash(msgspec.json.encode(value)) if isinstance(value, dict | list) else value


def _body_of(raw: bytes) -> _ObjectBody | None:
    with suppress(*UNREADABLE):
        return msgspec.json.decode(raw, type=_ObjectBody) if raw else None
    return None


def _decoded(raw: bytes) -> dict[str, Any]:
    with suppress(*UNREADABLE):
        decoded = msgspec.json.decode(raw) if raw else {}
        return decoded if isinstance(decoded, dict) else {}
    return {}
