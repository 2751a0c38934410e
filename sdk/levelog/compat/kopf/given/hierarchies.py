"""Prepares children of an object as Kopf does: owner, name, namespace and labels."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from levelog.edges import pointer_of, value_at

Child: TypeAlias = Any
"""A manifest, or an object of a client that holds one as `obj`, as pykube's do; or several."""

at_hand: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("levelog_kopf_body", default=None)
"""The object that the handler is called for which runs now."""


def adopt(
    objs: Child,
    owner: Mapping[str, Any] | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: str | Iterable[str] | None = None,
) -> None:
    """Make objects children of the owner: reference, name, namespace and labels, where they have none of their own."""
    owner = _owner(owner)
    append_owner_reference(objs, owner)
    harmonize_naming(objs, str(owner["metadata"].get("name", "")), forced=forced, strict=strict)
    adjust_namespace(objs, owner["metadata"].get("namespace"), forced=forced)
    label(objs, owner["metadata"].get("labels") or {}, forced=forced, nested=nested)


def append_owner_reference(
    objs: Child,
    owner: Mapping[str, Any] | None = None,
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> None:
    """Name the owner in objects, by its uid, in place of a reference to it that they have."""
    reference = build_owner_reference(_owner(owner), controller=controller, block_owner_deletion=block_owner_deletion)
    remove_owner_reference(objs, owner)
    for manifest in _manifests(objs):
        manifest["metadata"]["ownerReferences"].append(reference)


def remove_owner_reference(objs: Child, owner: Mapping[str, Any] | None = None) -> None:
    """Take the owner's reference out of objects."""
    uid = _owner(owner)["metadata"].get("uid")
    for manifest in _manifests(objs):
        owners = manifest.setdefault("metadata", {}).setdefault("ownerReferences", [])
        owners[:] = [each for each in owners if each.get("uid") != uid]


def build_owner_reference(
    body: Mapping[str, Any], *, controller: bool | None = True, block_owner_deletion: bool | None = True
) -> dict[str, Any]:
    """The entry of `ownerReferences` that names an object."""
    flags = {"controller": controller, "blockOwnerDeletion": block_owner_deletion}
    return {key: value for key, value in (_named(body) | flags).items() if value is not None}


def build_object_reference(body: Mapping[str, Any]) -> dict[str, Any]:
    """What an Event says of the object that it is about."""
    found = _named(body) | {"namespace": body["metadata"].get("namespace")}
    return {key: value for key, value in found.items() if value}


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: body.get(name) for name in ("apiVersion", "kind")}
    return told | {name: body["metadata"].get(name) for name in ("name", "uid")}


def harmonize_naming(objs: Child, name: str | None = None, *, forced: bool = False, strict: bool = False) -> None:
    """Name objects after the owner: with a suffix that the API makes, or by that very name if `strict`."""
    name = name if name is not None else str(_owner(None)["metadata"].get("name", ""))
    for manifest in _manifests(objs):
        metadata = manifest.setdefault("metadata", {})
        if forced or not (metadata.get("name") or metadata.get("generateName")):
            metadata.pop("name", None)
            metadata.pop("generateName", None)
            metadata["name" if strict else "generateName"] = name if strict else f"{name}-"


def adjust_namespace(objs: Child, namespace: str | None = None, *, forced: bool = False) -> None:
    """Put objects into the owner's namespace."""
    namespace = namespace if namespace is not None else _owner(None)["metadata"].get("namespace")
    for manifest in _manifests(objs):
        metadata = manifest.setdefault("metadata", {})
        if namespace and (forced or not metadata.get("namespace")):
            metadata["namespace"] = namespace


def label(
    objs: Child,
    labels: Mapping[str, str | None] | None = None,
    *,
    forced: bool = False,
    nested: str | Iterable[str] | None = None,
) -> None:
    """Put the owner's labels on objects, and on the templates in them at `nested`, such as `spec.template`."""
    given = labels if labels is not None else _owner(None)["metadata"].get("labels") or {}
    paths = [nested] if isinstance(nested, str) else list(nested or ())
    for manifest in _manifests(objs):
        for place in (manifest, *(_at(manifest, path) for path in paths)):
            existing = place.setdefault("metadata", {}).setdefault("labels", {}) if place is not None else {}
            for key, value in given.items():
                if forced or key not in existing:
                    existing[key] = value


def _owner(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    owner = given if given is not None else at_hand.get()
    if owner is None:
        raise LookupError("no owner is given, and no handler is running whose object it could be")
    return owner


def _manifests(objs: Child) -> Iterator[MutableMapping[str, Any]]:
    given: Sequence[Any] = objs if isinstance(objs, list | tuple) else [objs]
    for each in given:
        manifest: Any = getattr(each, "obj", each)
        if not isinstance(manifest, MutableMapping):
            raise TypeError(f"a child is a manifest, or an object that has one as obj, not {type(each).__name__}")
        yield manifest


def _at(manifest: MutableMapping[str, Any], path: str) -> MutableMapping[str, Any] | None:
    found = value_at(manifest, pointer_of(path))
    return found if isinstance(found, MutableMapping) else None  # pyright: ignore[reportUnknownVariableType]
