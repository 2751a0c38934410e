"""Intents: what a reconcile function asks to be written. Nothing is sent while the function runs."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Final, Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from levelog.resources import Manifest, Resource, ResourceBase, refuse_external

Verb: TypeAlias = Literal["apply", "create", "patch", "patch_status", "delete", "call", "event"]
PatchType: TypeAlias = Literal["merge", "json"]
EventType: TypeAlias = Literal["Normal", "Warning"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]

RequestT = TypeVar("RequestT")

MOST_NOTE_BYTES: Final = 1024
"""Of an Event's note; most of a reason or an action is 128 characters. Origin: validation of events.k8s.io/v1."""
MOST_REASON_CHARACTERS: Final = 128
MOST_CALL_NAME_CHARACTERS: Final = 253


class IntentOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an intent is to be sent; part of its identity."""

    force: bool = False
    """apply: take over fields that another field manager owns."""
    patch_type: PatchType = "merge"
    propagation: Propagation = "Background"
    """delete: what happens to the dependants."""
    if_unchanged: bool = False
    """Refuse if the target's resourceVersion is not the one that the decision was made on."""
    owned: bool = True
    """apply, create: make the parent the controlling owner, unless the manifest names owners itself."""
    remembered: bool = False
    """apply: the receipt says what the server made of the manifest (of children)."""
    name: str = ""
    """call: which call of the effect it is, where a parent has several."""


class Intent(Struct, frozen=True, kw_only=True):
    """One write, or another thing to do, that a reconcile function asks for.

    The target is given as its Resource class, or left to the manifest's apiVersion and kind. An empty namespace
    means the parent's.
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
    """call: the function."""


def _from_manifest(verb: Verb, manifest: Mapping[str, Any], options: IntentOptions) -> Intent:
    metadata = manifest.get("metadata") or {}
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
        raise ValueError(f"{verb}: the manifest has no {', '.join(missing)}; names are given, never generated")
    _refuse_identity(verb, manifest["kind"], metadata)
    return Intent(
        verb=verb,
        api_version=manifest["apiVersion"],
        kind=manifest["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        body=dict(manifest),
        options=options,
    )


def _refuse_identity(verb: Verb, kind: str, metadata: Any) -> None:
    """The incarnation and version that a write is meant for are the decision's to say."""
    found = [name for name in ("uid", "resourceVersion") if isinstance(metadata, Mapping) and name in metadata]
    if found:
        name = f" {metadata['name']}" if metadata.get("name") else ""
        raise ValueError(
            f"{verb} of {kind}{name}: leave out metadata.{' and metadata.'.join(found)}: a write goes to the "
            "incarnation that the decision saw, and with if_unchanged=True to the version too"
        )


def apply(manifest: Manifest, *, force: bool = False, owned: bool = True, if_unchanged: bool = False) -> Intent:
    """Server-side apply of a manifest, by the operator's one field manager.

    Fields that were applied before and are left out now are removed by the server. The parent becomes the controlling
    owner unless the manifest has ownerReferences or `owned` is False.
    """
    return _from_manifest("apply", manifest, IntentOptions(force=force, owned=owned, if_unchanged=if_unchanged))


def create(manifest: Manifest, *, owned: bool = True) -> Intent:
    """Create an object that is left alone afterwards; one that exists already with the same owner is accepted."""
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
    refuse_external("patch: ", resource)
    kind: PatchType = "merge" if isinstance(body, Mapping) else "json"
    if isinstance(body, Mapping):
        _refuse_identity("patch", f"{resource.resource_type.kind} {name}", body.get("metadata"))
    content = dict(body) if isinstance(body, Mapping) else [dict(operation) for operation in body]
    options = IntentOptions(patch_type=kind, if_unchanged=if_unchanged)
    return Intent(verb="patch", resource=resource, name=name, namespace=namespace, body=content, options=options)


def patch_status(target: ResourceBase, status: Mapping[str, Any], *, if_unchanged: bool = False) -> Intent:
    """Merge patch of an object's status subresource."""
    refuse_external("patch_status: ", type(target))
    metadata = _metadata(target)
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
    if_unchanged: bool = False,
) -> Intent:
    """Delete an object, given itself or as class and name; only the incarnation that the decision saw is deleted."""
    options = IntentOptions(propagation=propagation, if_unchanged=if_unchanged)
    refuse_external("delete: ", target if isinstance(target, type) else type(target))
    if isinstance(target, ResourceBase):
        metadata = _metadata(target)
        return Intent(
            verb="delete", resource=type(target), name=metadata.name, namespace=metadata.namespace, options=options
        )
    if not name:
        raise ValueError(f"delete: which {target.resource_type.plural}? give a name")
    return Intent(verb="delete", resource=target, name=name, namespace=namespace, options=options)


def call(effect: Callable[Concatenate[RequestT, ...], Any], request: RequestT, *, name: str = "") -> Intent:
    """Have an effect of the operator (`@op.effect`) called with a request, at least once.

    `name` tells several calls of one effect for one parent apart: for each name, calls are made one after the other,
    and the index of the effect holds the last one.
    """
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
    """Tell users something by a Kubernetes Event (events.k8s.io/v1), of the parent unless `regarding` is given.

    `reason` and `action` are words in CamelCase, `note` is a sentence for people, cut to 1,024 bytes. The same again
    raises the count of the Event that is there. No level waits for an Event, or fails because of one.
    """
    for what, word in (("reason", reason), ("action", action)):
        if not word or len(word) > MOST_REASON_CHARACTERS:
            raise ValueError(f"event: {what}={word!r} has to have 1 to {MOST_REASON_CHARACTERS} characters")
    if type not in get_args(EventType):
        raise ValueError(f'event: type is "Normal" or "Warning", not {type!r}')
    body: dict[str, Any] = {"type": type, "reason": reason, "action": action, "note": _cut(note)}
    if regarding is None:
        return Intent(verb="event", name=reason, body=body)
    metadata = _metadata(regarding)
    body["regarding"] = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
    return Intent(verb="event", name=reason, resource=builtins.type(regarding), body=body)


def _cut(note: str) -> str:
    """A note as long as the API takes it."""
    data = note.encode(errors="backslashreplace")
    return data.decode() if len(data) <= MOST_NOTE_BYTES else data[: MOST_NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _metadata(target: ResourceBase) -> Any:
    if not hasattr(target, "metadata"):
        raise TypeError(f"{type(target).__name__} has no metadata: derive it from {Resource.__name__}")
    return getattr(target, "metadata")  # noqa: B009 - ResourceBase itself declares no metadata
