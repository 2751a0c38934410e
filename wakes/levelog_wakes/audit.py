"""Events of kube-apiserver's audit log, as much of them as is read here."""

from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

VERSIONS_READ: Final = ("audit.k8s.io/v1", "audit.k8s.io/v1beta1")
WRITING: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
WRITTEN_PARTS: Final = frozenset(
    {"", "status", "scale", "binding", "finalize", "approval", "resize", "eviction", "ephemeralcontainers"}
)
"""Subresources whose writes change a stored object; `exec`, `token` or a review change none."""
_REMEMBERED: Final = 8192
"""Events of which a second copy is noticed: a webhook sends a batch again if its answer is lost."""
_MOST_OPEN: Final = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _AuditUser(msgspec.Struct, frozen=True):
    username: str = ""


class _Target(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class _Answered(msgspec.Struct, frozen=True):
    code: int = 0


class _Line(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    items: "list[_Line]" = []
    audit_id: str = msgspec.field(default="", name="auditID")
    stage: str = ""
    request_uri: str = msgspec.field(default="", name="requestURI")
    verb: str = ""
    user: _AuditUser = _AuditUser()
    user_agent: str = ""
    object_ref: _Target | None = None
    response_status: _Answered | None = None
    request_object: msgspec.Raw = msgspec.Raw()
    response_object: msgspec.Raw = msgspec.Raw()
    request_received_timestamp: datetime | None = None
    stage_timestamp: datetime | None = None


class AuditCall(msgspec.Struct, kw_only=True, gc=False):
    """One request to the API that has an answer, or a watch that has begun."""

    client: str
    """User and program, as `shown_client` writes them."""
    verb: str
    resource: str
    """`statefulsets.apps`; for requests for no resource, the beginning of the path."""
    kind_version: str
    """`apps/v1`, `v1`."""
    namespace: str
    name: str
    """Empty for lists, and where the server generates it."""
    subresource: str
    uid: str
    sent_version: str
    """The resourceVersion that the request names; empty where it names none."""
    is_write: bool
    """Whether it may have changed a stored object: not refused, no dry run."""
    is_paged: bool
    """Whether it is the second or a later page of a list."""
    began: float
    """Seconds since 1970, by the server's clock."""
    ended: float
    body: msgspec.Raw
    """What was answered; empty unless the level is RequestResponse."""
    sent: msgspec.Raw
    """What was sent; empty below the level Request."""


class Remarks(Counter[str]):
    """What was odd about the input: each kind once, with a number and the place where it was met first."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, str] = {}

    def note(self, what: str, place: str = "", times: int = 1) -> None:
        """Count one."""
        self[what] += times
        self._first.setdefault(what, place)

    def lines(self) -> list[str]:
        """A line for each kind."""
        places = {what: f" (first: {place})" if place else "" for what, place in self._first.items()}
        return [f"{number:,} {what}{places.get(what, '')}" for what, number in self.items()]


class AuditReader:
    """Turns lines, or bodies of a webhook, into calls; what it cannot read it notes and skips."""

    def __init__(self, remarks: Remarks) -> None:
        self.remarks = remarks
        self.events = 0
        self._decoder = msgspec.json.Decoder(_Line)
        self._clients: dict[tuple[str, str], str] = {}
        self._seen: set[str] = set()
        self._order: deque[str] = deque()
        self._open: set[str] = set()
        self._watches: set[str] = set()

    def read(self, line: bytes, place: str) -> Iterator[AuditCall]:
        """The calls of an event or of an EventList."""
        try:
            read = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.remarks.note("lines are cut or no JSON, and left out", place)
            return
        if read.kind == "EventList" or read.items:
            for item in read.items:
                item.api_version = item.api_version or read.api_version
                yield from self._one(item, place)
        else:
            yield from self._one(read, place)

    def finish(self) -> None:
        """Note what only the end shows."""
        if self._open:
            self.remarks.note("requests have no ResponseComplete: still running, or lost", times=len(self._open))

    def _one(self, event: _Line, place: str) -> Iterator[AuditCall]:
        self.events += 1
        if event.api_version not in VERSIONS_READ:
            self.remarks.note(f"events of {event.api_version or 'no version'} are left out", place)
            return
        audit_id = event.audit_id
        if event.stage == "RequestReceived":
            if len(self._open) < _MOST_OPEN:
                self._open.add(audit_id)
            return
        began, ended = event.request_received_timestamp, event.stage_timestamp
        if began is None or began.tzinfo is None or (ended is not None and ended.tzinfo is None):
            self.remarks.note("events without a time are left out", place)
            return
        is_watch = event.verb == "watch"
        if event.stage == "ResponseStarted":
            if not is_watch or len(self._watches) >= _MOST_OPEN:
                return
            self._watches.add(audit_id)
            self._open.discard(audit_id)
        else:
            self._open.discard(audit_id)
            if is_watch and audit_id in self._watches:
                self._watches.discard(audit_id)
                return
        if audit_id in self._seen:
            self.remarks.note("events came twice, and count once", place)
            return
        if audit_id:
            self._seen.add(audit_id)
            self._order.append(audit_id)
            if len(self._order) > _REMEMBERED:
                self._seen.discard(self._order.popleft())
        yield self._call(event, began, ended if ended is not None and not is_watch else began)

    def _call(self, event: _Line, began: datetime, ended: datetime) -> AuditCall:
        target, code = event.object_ref, event.response_status.code if event.response_status else 0
        who = event.user.username, event.user_agent
        if (client := self._clients.get(who)) is None:
            client = shown_client(*who)
            if len(self._clients) < _MOST_OPEN:
                self._clients[who] = client
        if target is None or not target.resource:
            path = event.request_uri.partition("?")[0]
            target, resource = _Target(), "/".join(path.split("/")[:2])
        else:
            resource = f"{target.resource}.{target.api_group}" if target.api_group else target.resource
        is_write = (
            event.verb in WRITING
            and target.subresource in WRITTEN_PARTS
            and 200 <= code < 300
            and "dryRun=All" not in event.request_uri
            and not target.resource.endswith("reviews")
        )
        return AuditCall(
            client=client,
            verb=event.verb,
            resource=resource,
            kind_version=f"{target.api_group}/{target.api_version}" if target.api_group else target.api_version,
            namespace=target.namespace,
            name=target.name,
            subresource=target.subresource,
            uid=target.uid,
            sent_version=target.resource_version,
            is_write=is_write,
            is_paged="continue=" in event.request_uri,
            began=(began - _EPOCH).total_seconds(),
            ended=(ended - _EPOCH).total_seconds(),
            body=event.response_object,
            sent=event.request_object,
        )


def shown_client(username: str, user_agent: str) -> str:
    """A short name for a client: program and what it calls itself last, then the user.

    >>> shown_client("system:serviceaccount:shop:op", "manager/v0.1 (linux/amd64) kubernetes/ab12/shards")
    'manager/shards (shop/op)'
    """
    program, _, rest = user_agent.partition("/")
    _, has_build, own = rest.partition(" kubernetes/")
    own = own.partition("/")[2].removeprefix("system:serviceaccount:kube-system:") if has_build else ""
    user = username.removeprefix("system:serviceaccount:").replace(":", "/", 1 if ":serviceaccount:" in username else 0)
    return f"{program}{'/' if own else ''}{own} ({user})"
