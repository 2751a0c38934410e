"""The lines of a bundle, a JSON lines file: a heading, records, decisions, and an end line.

A decision is a line of what it was made on, one of what it came to, and one for each of its writes, so that code that
decides otherwise changes lines of the latter kinds alone.
"""

import base64
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from levelog_base.wire.canonical import canonical
from levelog_base.wire.envelope import decode, encode
from levelog_base.wire.objects import Application, Cluster, Partition, Sequence
from levelog_base.wire.records import LoggedRecord, Unreadable
from levelog_base.wire.subjects import object_in
from levelog_history.reach import Moment
from levelog_replay.comparing import Conclusion
from levelog_store.decide.decisions import Asked, Basis, Decision, Read
from levelog_store.fold.changes import Causes
from levelog_store.rows import Origin, Verdict

FORMAT: Final = 1
"""Format of bundles that are written now."""
NULL: Final = b"null"
NOTHING: Final = Raw()
"""A value that is not there, as opposed to the null of a level whose sides may be null."""


class Heading(Struct, frozen=True, kw_only=True, tag="bundle", tag_field="line"):
    """Whose history it is."""

    format: int
    levelog: str
    """Version that wrote it."""
    cluster: Cluster
    application: Application
    partitions: int
    stream_created: str
    resources: list[str]
    """Whose records are in it, `webs.example.com`."""
    first: int
    """The log began with this record."""
    last: int
    """Up to here records are in it."""
    begins: Moment
    """Moment from which nothing is missing."""
    replaced_until: int = msgspec.field(default=0, name="cut")
    """Up to here versions of objects that were replaced by then are not in it; 0: they are."""
    has_bookmarks: bool = True
    """False: only those that end a lost contact are in it."""
    redaction: str = ""
    """Digest of the key and the rules by which secret values were replaced; empty in older bundles."""

    @property
    def origin(self) -> Origin:
        """The same, for those who make idempotency keys."""
        return Origin(**{name: getattr(self, name) for name in Origin.__struct_fields__})


class _Placed(Struct, frozen=True, kw_only=True):
    sequence: Sequence
    partition: Partition
    id: str


class RecordLine(_Placed, frozen=True, kw_only=True, tag="record", tag_field="line", omit_defaults=True):
    """A record, in the envelope of the version that wrote the bundle."""

    headers: dict[str, str]
    payload: Raw = Raw(NULL)
    base64: str = ""
    """The payload where it is not JSON."""

    def logged(self) -> LoggedRecord:
        """The record. Raises RecordError, ValueError."""
        payload = base64.b64decode(self.base64, validate=True) if self.base64 else bytes(self.payload)
        record = decode(self.headers, payload)
        return LoggedRecord(sequence=self.sequence, partition=self.partition, record_id=self.id, record=record)


class UnreadableLine(_Placed, frozen=True, kw_only=True, tag="unreadable", tag_field="line"):
    """A record that could not be decoded."""

    error: str
    subject: str
    time: datetime

    def logged(self) -> LoggedRecord:
        """The record."""
        key = object_in(self.subject)
        record = Unreadable(error=self.error, subject=self.subject, key=key, time=self.time)
        return LoggedRecord(sequence=self.sequence, partition=self.partition, record_id=self.id, record=record)


class DecisionLine(Struct, frozen=True, kw_only=True, tag="decision", tag_field="line"):
    """The inputs of a decision; fields as those of Decision."""

    ordinal: int
    view: str
    parent: str
    parent_uid: str
    parent_sequence: int
    cause: int
    causes: list[int]
    reads: list[tuple[str, str, int, Raw]]
    fingerprint: str
    decided_at: datetime
    basis: Basis

    def past(self, conclusion: "ConclusionLine") -> Decision:
        """The decision with what it came to."""
        return Decision(
            **{name: getattr(self, name) for name in _SHARED},
            **asdict(conclusion.verdict),
            causes=Causes(tuple(self.causes), has_more=False),
            suppressed=Causes((), has_more=False),
            is_called=True,
            reads=[Read(index, key, version, _bytes(held)) for index, key, version, held in self.reads],
            intents=conclusion.intents,
            basis=replace(self.basis, satisfied=tuple(conclusion.satisfied)),
        )


_SHARED: Final = tuple(
    name
    for name in DecisionLine.__struct_fields__
    if name in Decision.__struct_fields__ and name not in ("causes", "reads", "basis")
)
"""What a line has as its decision has it."""


class ConclusionLine(Struct, frozen=True, kw_only=True, tag="outcome", tag_field="line", omit_defaults=True):
    """The outcome of the decision above."""

    status: str
    reason: str
    round: int
    desired: Raw = NOTHING
    """As `actual`, not there if no view has ever returned a level."""
    actual: Raw = NOTHING
    drift: dict[str, list[str]]
    intents: list[str]
    """Idempotency keys."""
    satisfied: list[str]
    """Intents whose targets held their fields already."""

    @classmethod
    def of(cls, conclusion: Conclusion) -> "ConclusionLine":
        """The line of a conclusion."""
        verdict = conclusion.verdict
        return cls(
            status=verdict.status,
            reason=verdict.reason,
            round=verdict.round,
            desired=NOTHING if verdict.desired is None else Raw(verdict.desired),
            actual=NOTHING if verdict.actual is None else Raw(verdict.actual),
            drift=verdict.differing,
            intents=list(conclusion.keys),
            satisfied=list(conclusion.satisfied),
        )

    @property
    def verdict(self) -> Verdict:
        """The conclusion about the level."""
        return Verdict(
            status=self.status,
            reason=self.reason,
            round=self.round,
            desired=bytes(self.desired) or None,
            actual=bytes(self.actual) or None,
            drift=canonical(self.drift) if self.drift else None,
        )


class IntentLine(Struct, frozen=True, kw_only=True, tag="intent", tag_field="line"):
    """A write of the decision above."""

    key: str
    verb: str
    target: str
    body: Raw

    @property
    def asked(self) -> Asked:
        """The intent."""
        return Asked(key=self.key, verb=self.verb, target=self.target, body=bytes(self.body))


class EndLine(Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    """The last line: what was before it is complete."""

    records: int
    decisions: int
    sha256: str
    """Digest of the lines above the first decision: heading, records."""


Line: TypeAlias = Heading | RecordLine | UnreadableLine | DecisionLine | ConclusionLine | IntentLine | EndLine
HASHED: Final = (Heading, RecordLine, UnreadableLine)
"""What the end holds a hash of."""


def record_line(logged: LoggedRecord) -> RecordLine | UnreadableLine:
    """The line of a record."""
    record = logged.record
    place: dict[str, Any] = {"sequence": logged.sequence, "partition": logged.partition, "id": logged.record_id}
    if isinstance(record, Unreadable):
        return UnreadableLine(**place, error=record.error, subject=record.subject, time=record.time)
    headers, payload = encode(record, record_id=logged.record_id, source="export")
    if _is_line(payload):
        return RecordLine(**place, headers=headers, payload=Raw(payload))
    return RecordLine(**place, headers=headers, base64=base64.b64encode(payload).decode())


def decision_lines(past: Decision, asked: Iterable[Asked]) -> list[Line]:
    """The lines of a decision, with those of its writes that are kept."""
    decision = DecisionLine(
        **{name: getattr(past, name) for name in _SHARED},
        causes=list(past.causes.sequences),
        reads=[(read.index, read.key, read.version, Raw(read.content or NULL)) for read in past.reads],
        basis=replace(past.basis, satisfied=()),
    )
    return [decision, *conclusion_lines(Conclusion.recorded(past, asked))]


def conclusion_lines(conclusion: Conclusion) -> list[Line]:
    """The lines of what a decision came to."""
    intents = [IntentLine(key=i.key, verb=i.verb, target=i.target, body=Raw(i.body)) for i in conclusion.intents]
    return [ConclusionLine.of(conclusion), *intents]


def _bytes(value: Raw) -> bytes | None:
    return None if (content := bytes(value)) == NULL else content


def _is_line(payload: bytes) -> bool:
    """Tell whether a payload is JSON that can stand in a line as it is."""
    if b"\n" in payload or b"\r" in payload or not payload or payload.strip() != payload:
        return False
    try:
        msgspec.json.decode(payload)
        payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
