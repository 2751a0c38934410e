"""Reads the events of kube-apiserver's audit log."""

from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

VERSIONS_READ: Final = ("audit.k8s.io/v1", "audit.k8s.io/v1beta1")
WRITING: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
WRITTEN_PARTS: Final = frozenset(
    {"", "status", "scale", "binding", "finalize", "approval", "resize", "eviction", "ephemeralcontainers"}
)
"""Subresources whose writes change a stored object; `exec`, `token` or a review change none."""
_REMEMBERED: Final = 8192
"""Events of which a second copy is noticed: a webhook sends a batch again if its answer is lost."""
_MOST_OPEN: Final = 100_000
_MOST_CLIENTS: Final = 20_000
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Raised for JSON that is broken, or too deep."""
_Time = Annotated[datetime, Meta(tz=True)]

Place = tuple[str, str, str]
"""Resource with its group (`statefulsets.apps`), namespace and name; for a path of the API its beginning alone."""


class _AuditUser(Struct, frozen=True, gc=False):
    username: str = ""


class _Target(Struct, frozen=True, rename="camel", gc=False):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""
    subresource: str = ""


class _Answered(Struct, frozen=True, gc=False):
    code: int = 0


class _Line(Struct, rename="camel", gc=False):
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
    request_object: Raw = Raw()
    response_object: Raw = Raw()
    request_received_timestamp: _Time | None = None
    stage_timestamp: _Time | None = None


class AuditCall(Struct, gc=False, eq=False):
    """One request to the API that has an answer, or a watch that has begun."""

    client: str
    """User and program, as `shown_client` writes them."""
    verb: str
    place: Place
    """Without a name for lists, and where the server generates it."""
    subresource: str
    version: str
    """Of the API: `v1`."""
    sent_version: str
    """The resourceVersion that the request names; empty where it names none."""
    is_write: bool
    """Whether it may have changed a stored object: not refused, no dry run."""
    is_list: bool
    """A list, or the first page of one."""
    began: float
    """Seconds since 1970, by the server's clock."""
    ended: float
    size: int
    """Bytes sent and answered, as far as the log has bodies."""
    body: bytes
    """The response; empty unless the level is RequestResponse."""


class Remarks(dict[str, tuple[str, int]]):
    """The oddities of the input: each kind once, with the place of the first one, and their number."""

    def note(self, what: str, place: str = "", times: int = 1) -> None:
        """Count one."""
        first, number = self.get(what, (place, 0))
        self[what] = first, number + times

    def lines(self) -> list[str]:
        """A line for each kind."""
        return [f"{number:,} {what}{place and f' (first: {place})'}" for what, (place, number) in self.items()]


class AuditReader:
    """Turns lines, or bodies of a webhook, into calls; what it cannot read it notes and skips."""

    def __init__(self, remarks: Remarks) -> None:
        self.remarks = remarks
        self.events = 0
        self._decode = msgspec.json.Decoder(_Line).decode
        self._clients: dict[tuple[str, str], str] = {}
        self._seen: set[str] = set()
        self._seen_before: set[str] = set()
        self._open: set[str] = set()
        self._watches: set[str] = set()

    def read(self, line: bytes, source: str, number: int = 1) -> list[AuditCall]:
        """The calls of an event or of an EventList; source and number say which line it is."""
        try:
            read = self._decode(line)
        except UNREADABLE:
            self.remarks.note("lines are cut or no audit events, and left out", f"{source}:{number}")
            return []
        for item in read.items:
            item.api_version = item.api_version or read.api_version
        events = read.items if read.items or read.kind == "EventList" else (read,)
        self.events += len(events)
        calls: list[AuditCall] = []
        for event in events:
            skipped = self._skipped(event)
            if skipped is None:
                calls.append(self._call(event))
            elif skipped:
                self.remarks.note(skipped, f"{source}:{number}")
        return calls

    def finish(self) -> None:
        """Note what only the end shows."""
        if self._open:
            self.remarks.note("requests have no ResponseComplete: still running, or lost", times=len(self._open))

    def _skipped(self, event: _Line) -> str | None:
        """None where it tells of a call for the first time, of a watch when it begins; else what is odd, or nothing."""
        audit_id, is_over = event.audit_id, event.stage not in ("RequestReceived", "ResponseStarted")
        if event.api_version not in VERSIONS_READ:
            return f"events of {event.api_version or 'no version'} are left out"
        if event.request_received_timestamp is None:
            return "events without a time are left out"
        if audit_id in self._seen or audit_id in self._seen_before:
            return "events came twice, and count once"
        if event.stage == "RequestReceived":
            if len(self._open) < _MOST_OPEN:
                self._open.add(audit_id)
            return ""
        if event.verb == "watch":
            self._open.discard(audit_id)
            has_begun = audit_id in self._watches
            if is_over:
                self._watches.discard(audit_id)
            elif not has_begun and len(self._watches) < _MOST_OPEN:
                self._watches.add(audit_id)
                return None
            return None if is_over and not has_begun else ""
        if not is_over:
            return ""
        self._open.discard(audit_id)
        if audit_id:
            self._seen.add(audit_id)
            if len(self._seen) >= _REMEMBERED:
                self._seen_before, self._seen = self._seen, set()
        return None

    def _call(self, event: _Line) -> AuditCall:
        target, verb, uri, received = event.object_ref, event.verb, event.request_uri, event.request_received_timestamp
        who = event.user.username, event.user_agent
        if (client := self._clients.get(who)) is None:
            client = self._new_client(who)
        if target is None or not target.resource:
            target, place = _Target(), ("/".join(uri.partition("?")[0].split("/")[:2]), "", "")
        else:
            group = target.api_group
            place = (f"{target.resource}.{group}" if group else target.resource, target.namespace, target.name)
        code = event.response_status.code if event.response_status else 0
        is_write = (
            verb in WRITING
            and target.subresource in WRITTEN_PARTS
            and 200 <= code < 300
            and "dryRun=All" not in uri
            and not target.resource.endswith("reviews")
        )
        began = received.timestamp() if received else 0.0
        over = event.stage_timestamp
        return AuditCall(
            client,
            verb,
            place,
            target.subresource,
            target.api_version,
            target.resource_version,
            is_write,
            verb == "list" and "continue=" not in uri,
            began,
            over.timestamp() if over and verb != "watch" else began,
            len(event.response_object) + len(event.request_object),
            bytes(event.response_object),
        )

    def _new_client(self, who: tuple[str, str]) -> str:
        if len(self._clients) >= _MOST_CLIENTS:
            self.remarks.note("events of clients beyond the first 20,000 are told together")
            return "others"
        return self._clients.setdefault(who, shown_client(*who))


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
