"""Intents: the writes that a reconcile function asks for. Nothing is sent while the function runs."""

import builtins
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

from levelog.resources import (
    EVENTS,
    EVENTS_OF_CLUSTER,
    MOST_NAME_BYTES,
    Manifest,
    Resource,
    ResourceBase,
    ResourceType,
    Struct,
    refuse_external,
)
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.objects import CLUSTER_SCOPE, SECRETS, GroupResource, ObjectKey, field_manager

Verb: TypeAlias = Literal["apply", "create", "patch", "patch_status", "delete", "call", "event"]
PatchType: TypeAlias = Literal["merge", "json"]
EventType: TypeAlias = Literal["Normal", "Warning"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

RequestT = TypeVar("RequestT")

MOST_NOTE_BYTES: Final = 1024
"""Most bytes of an Event's note; a reason or an action has 128 characters. Origin: validation of events.k8s.io/v1."""
MOST_REASON_CHARACTERS: Final = 128
MOST_CALL_NAME_CHARACTERS: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS subdomain, as names of Events have to be."""
_MOST_NAME_CHARACTERS: Final = 253 - 33  # for a dot and the digest


class IntentOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to send an intent; part of the intent's identity."""

    force: bool = False
    """apply: take over fields that another field manager owns."""
    patch_type: PatchType = "merge"
    propagation: Propagation = "Background"
    """delete: what happens to the dependents."""
    if_unchanged: bool = False
    """Refuse if the target's resourceVersion is no longer the one that the decision saw."""
    owned: bool = True
    """apply, create: make the parent the controlling owner, unless the manifest names owners itself. delete: refuse
    what the parent does not control."""
    adopt: bool = False
    """apply: take over an object that exists and that nobody controls."""
    remembered: bool = False
    """apply: the receipt records what the server made of the manifest. Set for children."""
    as_field: bool = False
    """patch_status: if the status is no subresource, patch it as any other field. Set for calls of adapters."""
    name: str = ""
    """call: tells calls of an effect for one parent apart. event: Events of one name are counted as one."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A write, a call of an effect, or an Event that a reconcile function asks for.

    The target is the `resource` class, or else the apiVersion and kind of the manifest. An empty namespace means the
    parent's.
    """

    verb: Verb
    resource: type[ResourceBase] | None = None
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str
    body: Any = None
    options: IntentOptions = IntentOptions()
    effect: Callable[..., Any] | None = None
    """call: the function to call."""

    def __post_init__(self) -> None:
        _refuse_names(self)


def _refuse_names(intent: Intent) -> None:
    """Refuse names that no object has, and that the log, SQL or a path of the API could not hold."""
    if not intent.name:
        raise ValueError(f"{intent.verb}: give the name of an object, not ''")
    if intent.namespace == CLUSTER_SCOPE:
        raise ValueError(f"{intent.verb}: {CLUSTER_SCOPE!r} is no namespace: leave it out for what has none")
    texts: tuple[tuple[str, Any], ...] = (
        ("kind", intent.kind),
        ("namespace", intent.namespace),
        ("name", intent.name),
        ("name", intent.options.name),
    )
    for what, text in texts:
        is_text = isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance] - as a user may write it
        is_name = is_text and text.isprintable() and "/" not in text and text not in (".", "..")
        if not is_name or len(text.encode()) > MOST_NAME_BYTES:
            shown = repr(text)[:MOST_REASON_CHARACTERS]
            raise ValueError(
                f"{intent.verb}: {what} is {shown}: a text of up to {MOST_NAME_BYTES} bytes without /, not . or .."
            )


def _from_manifest(verb: Verb, manifest: Mapping[str, Any], options: IntentOptions) -> Intent:
    if not isinstance(manifest, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{verb}: a manifest is a mapping, not {_kind(manifest)}")
    metadata = manifest.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"{verb}: metadata of a manifest is a mapping, not {_kind(metadata)}")
    missing = [
        path
        for path, value in (
            ("apiVersion", manifest.get("apiVersion")),
            ("kind", manifest.get("kind")),
            ("metadata.name", metadata.get("name")),
        )
        if not value
    ]
    if missing:
        mend = "; names are given, never generated" if "metadata.name" in missing else ""
        raise ValueError(f"{verb}: the manifest has no {', '.join(missing)}{mend}")
    _refuse_identity(verb, manifest["kind"], metadata)
    return Intent(
        verb=verb,
        api_version=manifest["apiVersion"],
        kind=manifest["kind"],
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        body=dict(manifest),
        options=options,
    )


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _require_class(what: str, cls: object) -> None:
    if not isinstance(cls, type) or not issubclass(cls, ResourceBase) or not hasattr(cls, "resource_type"):
        raise TypeError(f"{what}: it takes a class derived from Resource with a plural, not {_kind(cls)}")
    refuse_external(f"{what}: ", cls)


def _require_object(what: str, target: object) -> Any:
    """The metadata of an object of a class that names a resource."""
    if not isinstance(target, ResourceBase) or not hasattr(target, "metadata"):
        raise TypeError(f"{what}: it takes an object of a class derived from {Resource.__name__}, not {_kind(target)}")
    _require_class(what, type(target))
    return getattr(target, "metadata")  # noqa: B009 - ResourceBase itself declares no metadata


def _refuse_identity(verb: Verb, kind: str, metadata: Any) -> None:
    """The incarnation and version that a write is meant for are the decision's to say."""
    found = [name for name in ("uid", "resourceVersion") if isinstance(metadata, Mapping) and name in metadata]
    if found:
        name = f" {metadata['name']}" if metadata.get("name") else ""
        raise ValueError(
            f"{verb} of {kind}{name}: leave out metadata.{' and metadata.'.join(found)}: a write goes to the "
            "incarnation that the decision saw, and with if_unchanged=True to the version too"
        )


def apply(
    manifest: Manifest, *, force: bool = False, owned: bool = True, adopt: bool = False, if_unchanged: bool = False
) -> Intent:
    """Server-side apply of a manifest; all applies of an operator use one field manager.

    The server removes fields that the last apply set and this one leaves out. The parent becomes the controlling owner,
    unless the manifest has ownerReferences or `owned` is False. An object that exists and is not the parent's is
    refused; `adopt=True` takes it over if nobody controls it.
    """
    options = IntentOptions(force=force, owned=owned, adopt=adopt, if_unchanged=if_unchanged)
    return _from_manifest("apply", manifest, options)


def create(manifest: Manifest, *, owned: bool = True) -> Intent:
    """Create an object and never change it afterwards; an existing one with the same owner is accepted."""
    return _from_manifest("create", manifest, IntentOptions(owned=owned))


def patch(
    resource: type[ResourceBase],
    name: str,
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    namespace: str = "",
    if_unchanged: bool = False,
) -> Intent:
    """Merge patch (a mapping) or JSON patch (a sequence of operations) of an object that exists."""
    _require_class("patch", resource)
    kind: PatchType = "merge" if isinstance(body, Mapping) else "json"
    if isinstance(body, Mapping):
        _refuse_identity("patch", f"{resource.resource_type.kind} {name}", body.get("metadata"))
    elif not isinstance(body, Sequence) or not all(isinstance(each, Mapping) for each in body):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"patch: the body is a mapping, or a list of JSON patch operations, not {_kind(body)}")
    content = dict(body) if isinstance(body, Mapping) else [dict(operation) for operation in body]
    options = IntentOptions(patch_type=kind, if_unchanged=if_unchanged)
    return Intent(verb="patch", resource=resource, name=name, namespace=namespace, body=content, options=options)


def patch_status(target: ResourceBase, status: Mapping[str, Any] | Struct, *, if_unchanged: bool = False) -> Intent:
    """Merge patch of an object's status subresource, with a mapping or all fields of a Struct."""
    metadata = _require_object("patch_status", target)
    if isinstance(status, msgspec.Struct):
        status = msgspec.to_builtins(status)
    if not isinstance(status, Mapping):
        raise TypeError(f"patch_status: the status is a mapping or a Struct, not {_kind(status)}")
    return Intent(
        verb="patch_status",
        resource=type(target),
        name=metadata.name,
        namespace=metadata.namespace,
        body={"status": dict(status)},
        options=IntentOptions(if_unchanged=if_unchanged),
    )


def delete(
    target: type[ResourceBase] | ResourceBase,
    name: str = "",
    *,
    namespace: str = "",
    propagation: Propagation = "Background",
    owned: bool = True,
    if_unchanged: bool = False,
) -> Intent:
    """Delete an object, given itself or as class and name; only the uid that the decision saw is deleted.

    Anything but the parent itself and what it controls is refused, unless `owned` is False.
    """
    options = IntentOptions(propagation=propagation, owned=owned, if_unchanged=if_unchanged)
    if not isinstance(target, type):
        metadata = _require_object("delete", target)
        return Intent(
            verb="delete", resource=type(target), name=metadata.name, namespace=metadata.namespace, options=options
        )
    _require_class("delete", target)
    return Intent(verb="delete", resource=target, name=name, namespace=namespace, options=options)


def call(effect: Callable[Concatenate[RequestT, ...], Any], request: RequestT, *, name: str = "") -> Intent:
    """Call an effect of the operator (`@op.effect`) with a request, at least once.

    `name` tells several calls of one effect for one parent apart: calls of the same name run one after the other, and
    the effect's index holds the last one.
    """
    if not callable(effect):  # pyright: ignore[reportUnnecessaryComparison]
        raise TypeError(f"call: it takes a function under @op.effect, not {_kind(effect)}")
    if "/" in name or len(name) > MOST_CALL_NAME_CHARACTERS:
        raise ValueError(f"call: name={name!r} has a / or more than {MOST_CALL_NAME_CHARACTERS} characters")
    function = getattr(effect, "__name__", str(effect))
    return Intent(verb="call", name=function, body=request, options=IntentOptions(name=name), effect=effect)


def event(
    reason: str,
    note: str = "",
    *,
    type: EventType = "Normal",  # noqa: A002 - so the field of the API is called
    action: str = "Reconcile",
    regarding: ResourceBase | None = None,
) -> Intent:
    """Post a Kubernetes Event (events.k8s.io/v1) about the parent, or about `regarding`.

    `reason` and `action` are words in CamelCase; `note` is a sentence for people, cut to 1,024 bytes. The same Event
    again raises the count of the existing one. No level waits for an Event or fails because of one.
    """
    for what, word in (("reason", reason), ("action", action)):
        if not word or len(word) > MOST_REASON_CHARACTERS:
            raise ValueError(f"event: {what}={word!r} has to have 1 to {MOST_REASON_CHARACTERS} characters")
    if type not in get_args(EventType):
        raise ValueError(f'event: type is "Normal" or "Warning", not {type!r}')
    body: dict[str, Any] = {"type": type, "reason": reason, "action": action, "note": _cut(str(note))}
    if regarding is None:
        return Intent(verb="event", name=reason, body=body)
    metadata = _require_object("event", regarding)
    body["regarding"] = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return Intent(verb="event", name=reason, resource=builtins.type(regarding), body=body)


def addressed_event(
    intent: Intent, resource: ResourceType, named: Mapping[str, str], operator: str
) -> tuple[ObjectKey, bytes]:
    """The Event of an intent and its content; `named` has name, namespace and uid of the object that it is about.

    The same Event again has the same name, so that its count is raised.
    """
    regarding = {name: value for name, value in named.items() if value}
    regarding |= {"apiVersion": resource.api_version, "kind": resource.kind}
    content = canonical({**intent.body, "regarding": regarding, "reportingController": field_manager(operator)})
    begin = named["name"][:_MOST_NAME_CHARACTERS].rstrip("-.")
    name = f"{begin if _NAME.fullmatch(begin) else 'event'}.{digest(content)}"
    return EVENTS.key(named["namespace"] or EVENTS_OF_CLUSTER, name), content


def _cut(note: str) -> str:
    """A note as long as the API takes it."""
    data = note.encode(errors="backslashreplace")
    return data.decode() if len(data) <= MOST_NOTE_BYTES else data[: MOST_NOTE_BYTES - 3].decode(errors="ignore") + "…"


def with_encoded_data(resource: GroupResource, manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of a Secret with `stringData` in `data`, where the server puts it; any other as it is.

    Applied as `stringData`, what is left out later would stay, since the field manager does not own it in `data`.
    """
    texts = manifest.get("stringData")
    if resource != SECRETS or not isinstance(texts, Mapping):
        return manifest
    encoded = {name: b64encode(str(text).encode()).decode() for name, text in texts.items()}
    rest = {name: value for name, value in manifest.items() if name != "stringData"}
    return rest | {"data": {**(manifest.get("data") or {}), **encoded}}
