"""Encodes a source's records: names, JSON, redaction, and a check that they can be read back."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct

from levelog.layers import containing, described
from levelog.resources import External, Gone, Traced, external_key
from levelog.sources import SourceHandler
from levelog_base.errors import RecordError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import refuse_unwritable
from levelog_base.wire.objects import ObjectKey, Uid


class EncodedSet(Struct, frozen=True):
    """A whole set: bytes of each record, and what cannot be recorded."""

    bodies: Mapping[ObjectKey, bytes]
    refused: Mapping[ObjectKey, str]
    """Why records were refused, by key; what was recorded of these before stays."""
    unnamed: tuple[str, ...]
    """Why records without a key were refused."""
    traces: Mapping[ObjectKey, str] = {}
    """Where records come from, as far as they say."""

    @property
    def complaint(self) -> str:
        """One sentence on the refused records; empty if there are none."""
        reasons = [*self.unnamed, *(self.refused[key] for key in sorted(self.refused))]
        if not reasons:
            return ""
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        return f"{reasons[0]}{more}"


class Encoder:
    """Encodes the records of one source."""

    def __init__(self, source: SourceHandler, redactor: Redactor) -> None:
        self._cls = source.cls
        self._redactor = redactor
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(source.cls)

    def key(self, record: External | Gone) -> ObjectKey:
        """Key of a record. Raises RecordError for what is no record of the source's class, or has no usable name."""
        cls = record.cls if isinstance(record, Gone) else type(record)
        if cls is not self._cls:
            name = getattr(cls, "__name__", type(cls).__name__)
            raise RecordError(f"something of class {name} is no {self._cls.__name__}")
        try:
            with containing():
                return external_key(self._cls, record.name, record.namespace)
        except Exception as error:  # the class is the user's, and may raise anything
            raise RecordError(f"a {self._cls.__name__} cannot be recorded: {described(error)}") from error

    def body(self, key: ObjectKey, record: External) -> bytes:
        """JSON of a record; equal for equal records. Raises RecordError if its class could not read it."""
        metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {}), "uid": uid_of(key)}
        try:
            with containing():
                head = msgspec.json.encode({"metadata": metadata})
                refuse_unwritable(record)
                fields = msgspec.json.encode(record, order="deterministic")  # sets, and mappings in any order, compare
                body = head[:-1] + b"," + fields[1:]
                self._decoder.decode(body)
                return self._redactor.redact_body(key.group_resource, body)
        except Exception as error:
            raise RecordError(f"{shown(self._cls, key)} cannot be recorded: {described(error)}") from error

    def whole(self, records: Iterable[object]) -> EncodedSet:
        """Encode a set. What cannot be encoded, or comes twice, is refused by itself."""
        bodies: dict[ObjectKey, bytes] = {}
        refused: dict[ObjectKey, str] = {}
        unnamed: list[str] = []
        traces: dict[ObjectKey, str] = {}
        for given in records:
            record, trace = Traced.of(given)
            try:
                key = self.key(record)  # type: ignore[arg-type]  # whatever the user's function gives is looked at
            except RecordError as error:
                unnamed.append(str(error))
                continue
            if key in bodies or key in refused:
                bodies.pop(key, None)
                refused.setdefault(key, f"{shown(self._cls, key)} is there more than once")
                continue
            try:
                bodies[key] = self.body(key, record)  # type: ignore[arg-type]
            except RecordError as error:
                refused[key] = str(error)
            if trace:
                traces[key] = trace
        return EncodedSet(bodies, refused, tuple(unnamed), traces)


def uid_of(key: ObjectKey) -> Uid:
    """A record has one incarnation: its name is all that tells it from others."""
    return Uid(str(uuid5(NAMESPACE_URL, f"levelog:{key}")))


def shown(cls: type[External], key: ObjectKey) -> str:
    """A record as messages name it: `Branch 'main'`."""
    return f"{cls.__name__} {(f'{key.namespace}/{key.name}' if key.namespace else key.name)!r}"
