"""Cuts from the bytes of an object what is not recorded; nothing else is encoded again, and nothing is redacted here.

Cut out are `metadata.managedFields`, of which manager and time of the newest entry are kept, and kubectl's annotation
last-applied-configuration, in which secrets hide. The API server writes compact JSON, so that a member is found as its
bytes; where it is not, as in JSON with white space, the object is decoded and encoded again.
"""

from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from levelog_base.errors import RecordError
from levelog_base.wire.canonical import storable
from levelog_base.wire.objects import Uid, Version, parse_version
from levelog_base.wire.records import MEMBER, LeftOut, Written

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_LAST_APPLIED_BYTES: Final = LAST_APPLIED.encode()
_NOTHING: Final = Raw(b"")
_TIMES: Final = ("creationTimestamp", "deletionTimestamp")
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "generation", *_TIMES)
_BELONGINGS: Final = ("ownerReferences", "finalizers", "labels", "annotations")
MOST_NAME_CHARACTERS: Final = 253  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_annotations: Final = msgspec.json.Decoder(dict[str, Raw])


class Trimmed(NamedTuple):
    """An object as it is recorded, with what stands in the envelope."""

    namespace: str
    name: str
    uid: Uid
    version: Version
    written: Written
    body: bytes


class _Name(Struct):
    name: str
    namespace: str = ""


class _Named(Struct):
    metadata: _Name


class _Metadata(_Name, rename="camel", kw_only=True):
    uid: str
    resource_version: str
    annotations: Raw = _NOTHING
    managed_fields: Raw = _NOTHING


class _Object(Struct):
    metadata: Raw
    kind: str = ""


class _ManagedFields(Struct):
    manager: str = ""
    time: str = ""


_objects: Final = msgspec.json.Decoder(_Object)
_named: Final = msgspec.json.Decoder(_Named)
_metadata: Final = msgspec.json.Decoder(_Metadata)
_managed_fields: Final = msgspec.json.Decoder(list[_ManagedFields] | None)


def trim(body: bytes, *, api_version: str = "", kind: str = "") -> Trimmed:
    """Cut an object. `api_version` and `kind` are put in where the object has none, as an item of a list.

    Raises RecordError, which quotes nothing of it, if it is no object with name, uid and numeric resourceVersion.
    """
    try:
        found = _objects.decode(body)
        before = bytes(found.metadata)
        metadata = _metadata.decode(before)
        _check_names(metadata)
        written = _last_written(metadata.managed_fields)
        if "\0" in metadata.uid + written.at:
            raise ValueError("a NUL in its uid or the time of its writing")  # noqa: TRY301 - told as all else that is wrong with it
        version = parse_version(metadata.resource_version)
        after = _cut_metadata(before, metadata)
        if after is None or (trimmed := _replace(body, before, after)) is None:
            trimmed = _encode_again(body)
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise RecordError(
            f"not an object that can be recorded: {_without_quotes(error)} ({len(body)} bytes)"
        ) from error
    if not found.kind and kind:
        head = msgspec.json.encode({"kind": kind, "apiVersion": api_version})
        trimmed = head[:-1] + b"," + trimmed.lstrip()[1:]
    return Trimmed(metadata.namespace, metadata.name, Uid(metadata.uid), version, written, trimmed)


def name_of(body: bytes) -> tuple[str, str] | None:
    """Namespace and name of an object that cannot be recorded; None if they cannot be read either."""
    try:
        named = _named.decode(body).metadata
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
    return (named.namespace, named.name) if named.name else None


def is_recordable(namespace: str, name: str) -> bool:
    """Tell whether objects of that name can be recorded: a Role's, for one, may be longer than the log takes."""
    return all(
        len(text) <= MOST_NAME_CHARACTERS and text.isprintable() and "/" not in text for text in (namespace, name)
    )


def only_metadata(body: bytes, reason: str, *, is_least: bool = False) -> bytes:
    """The recorded form of an object that is too large: identity, owners, and why the rest is missing.

    `is_least` keeps only the identity, if even the metadata are too large.
    """
    given: dict[str, Any] = msgspec.json.decode(body)
    kept = _IDENTITY if is_least else (*_IDENTITY, *_BELONGINGS)
    return msgspec.json.encode(
        {
            MEMBER: LeftOut(reason=reason, bytes=len(body), sha256=sha256(body).hexdigest()),
            **{name: given[name] for name in ("apiVersion", "kind") if name in given},
            "metadata": {name: given["metadata"][name] for name in kept if name in given["metadata"]},
        }
    )


def _check_names(metadata: _Name) -> None:
    """Raise ValueError for names that cannot stand in a subject or a key."""
    if not is_recordable(metadata.namespace, metadata.name):
        raise ValueError("its name or namespace is none of Kubernetes")
    if not metadata.name:
        raise ValueError("its name is empty")


def _without_quotes(error: Exception) -> str:
    """The error without its quotes of the bytes, which may be a secret."""
    return f"{error.reason} (byte {error.start})" if isinstance(error, UnicodeDecodeError) else str(error)


def _last_written(managed_fields: Raw) -> Written:
    if not managed_fields:
        return Written()
    entries = _managed_fields.decode(managed_fields) or ()
    # Times are whole seconds. The server puts what was applied first: a status that follows within the second is last.
    newest = max(reversed(entries), key=lambda entry: entry.time, default=_ManagedFields())
    return Written(manager=storable(newest.manager), at=newest.time)


def _cut_metadata(raw: bytes, metadata: _Metadata) -> bytes | None:
    """The metadata without the parts to cut; None if these cannot be found as bytes."""
    kept: bytes | None = raw
    if metadata.managed_fields:
        kept = _cut(raw, b"managedFields", bytes(metadata.managed_fields))
    if kept is not None and metadata.annotations and _LAST_APPLIED_BYTES in bytes(metadata.annotations):
        before = bytes(metadata.annotations)
        value = _annotations.decode(before).get(LAST_APPLIED)
        if value is not None:
            after = _cut(before, _LAST_APPLIED_BYTES, bytes(value))
            kept = None if after is None else _replace(kept, before, after, b'"annotations":')
    return kept


def _cut(container: bytes, name: bytes, value: bytes) -> bytes | None:
    """An object without one of its members, and without the comma at the member's side."""
    member = b'"%b":%b' % (name, value)
    start = container.find(member)
    if start < 0:
        return None
    end = start + len(member)
    if container[end : end + 1] == b",":
        end += 1
    elif container[start - 1 : start] == b",":
        start -= 1
    return container[:start] + container[end:]


def _replace(container: bytes, before: bytes, after: bytes, label: bytes = b'"metadata":') -> bytes | None:
    # The first place is the right one: no other member holds the same bytes, with this uid and resourceVersion.
    start = container.find(label + before)
    if start < 0:
        return None
    start += len(label)
    return container[:start] + after + container[start + len(before) :]


def _encode_again(body: bytes) -> bytes:
    given: dict[str, Any] = msgspec.json.decode(body)
    metadata = given["metadata"]
    metadata.pop("managedFields", None)
    if isinstance(annotations := metadata.get("annotations"), dict):
        annotations.pop(LAST_APPLIED, None)
    return msgspec.json.encode(given)
