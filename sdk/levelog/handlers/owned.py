"""The level of a parent's children: desired manifests, owned objects, their drift, and the next step."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.intents import Intent, apply, delete
from levelog.levels import Drift, Level
from levelog.resources import Metadata, ResourceBase, ResourceType
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.projection import Applied, differing, project

CONFIRMED: Final = "levelog/confirm-deletions"
"""Annotation of a parent that lets its function delete more children at once than it may."""
_NAMED: Final = 3
"""Children that a reason names of those that are not deleted."""
MOST_PATHS: Final = 20
"""Fields of one child that a drift names."""

_NOISE: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
)


class ChildKind(Struct, frozen=True):
    """One of the classes in `of=`."""

    label: str
    """The kind, with its group where two have the same."""
    cls: type[ResourceBase]

    @property
    def resource(self) -> ResourceType:
        """Where it is served."""
        return self.cls.resource_type

    def key(self, namespace: str, name: str, *, is_beside_parent: bool) -> str:
        """Name of a child within its level: `Service/shop`, `Service/default/shop` for a parent without namespace."""
        has_namespace = self.resource.scope == "Namespaced" and not is_beside_parent
        return f"{self.label}/{namespace}/{name}" if has_namespace else f"{self.label}/{name}"


class WantedChild(Struct, frozen=True, kw_only=True):
    """A manifest that the function returned."""

    kind: ChildKind
    key: str
    namespace: str
    """As the manifest says; empty: the parent's."""
    name: str
    manifest: dict[str, Any]
    fields: dict[str, Any]
    """What counts of the manifest, redacted."""


class OwnedChild(Struct, frozen=True, kw_only=True):
    """An object whose controlling owner is the parent."""

    kind: ChildKind
    key: str
    namespace: str
    name: str
    is_deleting: bool
    body: Mapping[str, Any]
    applied: Applied | None
    """What is remembered of the last apply to this incarnation."""


class ChildrenLevel(Level[dict[str, Any]]):
    """A level whose parts are children, by their keys; it knows the intents of the next round."""

    __slots__ = ("steps",)

    def __init__(
        self, desired: dict[str, Any], actual: dict[str, Any], steps: Sequence[Intent] = (), reason: str = ""
    ) -> None:
        super().__init__(desired, actual, reason=reason)
        self.steps = tuple(steps)

    @property
    def drift(self) -> Drift:
        """Children that are missing or extra; for each that is changed, its fields: `Deployment/shop spec.replicas`."""
        if self._drift is None:
            changed = [
                f"{key} {path}"
                for key in sorted(self.desired.keys() & self.actual.keys())
                for path in differing(self.desired[key], self.actual[key])[:MOST_PATHS]
            ]
            self._drift = Drift(
                missing=frozenset(self.desired.keys() - self.actual.keys()),
                extra=frozenset(self.actual.keys() - self.desired.keys()),
                changed=frozenset(changed),
            )
        return self._drift


def level_of(
    kinds: Sequence[ChildKind],
    wanted: Sequence[WantedChild],
    owned: Sequence[OwnedChild],
    leaving: Set[str],
    *,
    force: bool,
) -> ChildrenLevel:
    """Compare, and plan the next round: what to apply, of the first kind that differs.

    Only once all kinds match, surplus children are deleted, the last kind first. It waits for children that are being
    deleted, and for the objects under the keys in `leaving`, which are no children and about to go.
    """
    desired = {child.key: child.fields for child in wanted}
    actual = actual_of(desired, owned)
    leaving = leaving | {child.key for child in owned if child.is_deleting}
    for kind in kinds:
        open_ones = [
            child
            for child in wanted
            if child.kind == kind and (child.key not in actual or differing(child.fields, actual[child.key]))
        ]
        if open_ones:
            steps = [_applied(child, force=force) for child in open_ones if child.key not in leaving]
            waits = f"waits for the end of {', '.join(child.key for child in open_ones)}"
            return ChildrenLevel(desired, actual, steps, "" if steps else waits)
    for kind in reversed(kinds):
        extra = [child for child in owned if child.kind == kind and child.key in actual and child.key not in desired]
        if extra:
            steps = [delete(kind.cls, child.name, namespace=child.namespace) for child in extra]
            return ChildrenLevel(desired, actual, steps)
    return ChildrenLevel(desired, actual)


def actual_of(desired: Mapping[str, Any], owned: Iterable[OwnedChild]) -> dict[str, Any]:
    """What the children that are not being deleted hold of the wanted fields, by their keys."""
    return {
        child.key: project(desired[child.key], child.body, child.applied) if child.key in desired else {}
        for child in owned
        if not child.is_deleting
    }


def deletion_refusal(
    extra: Sequence[OwnedChild], kinds: Sequence[ChildKind], most: int, parents: ResourceType, parent: Metadata
) -> str:
    """Why these children are not deleted, and how to confirm that they shall be."""
    names = sorted(child.key for child in extra)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    place = f" -n {parent.namespace}" if parent.namespace else ""
    return (
        f"{len(extra)} children would be deleted, and {most} may be at once: {', '.join(names[:_NAMED])}{more}; they "
        f"stay until you confirm it with `kubectl annotate --overwrite {parents.group_resource} {parent.name}{place} "
        f"{CONFIRMED}={len(extra)}-{_last(extra, kinds)}`"
    )


def confirms(value: str, extra: Sequence[OwnedChild], kinds: Sequence[ChildKind]) -> bool:
    """Tell whether an annotation confirms these deletions: until the last child is gone, and no later ones."""
    number, _, last = value.partition("-")
    return last == _last(extra, kinds) and number.isdecimal() and int(number) >= len(extra)


def _last(extra: Sequence[OwnedChild], kinds: Sequence[ChildKind]) -> str:
    """Names the incarnation that is deleted last."""
    last = min(extra, key=lambda child: (kinds.index(child.kind), child.key))
    return digest(last.body["metadata"]["uid"])[:6]


def as_stored(body: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an object that a manifest can set, and its uid: what changes by itself is left out."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _NOISE}
    return {name: value for name, value in body.items() if name not in ("metadata", "status")} | {"metadata": metadata}


def owned_child(
    kind: ChildKind, stored: Mapping[str, Any], remembered: Mapping[str, Applied], *, is_beside_parent: bool
) -> OwnedChild:
    """A child as its index holds it; `remembered` is by uid."""
    metadata = stored["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    return OwnedChild(
        kind=kind,
        key=kind.key(namespace, name, is_beside_parent=is_beside_parent),
        namespace=namespace,
        name=name,
        is_deleting="deletionTimestamp" in metadata,
        body=stored,
        applied=remembered.get(metadata["uid"]),
    )


def sight_of(desired: bytes, owned: Sequence[OwnedChild]) -> bytes:
    """What a level with these wanted fields sees of children; equal bytes mean that it would come out the same."""
    wanted: dict[str, Any] = msgspec.json.decode(desired) if desired else {}
    leaving = sorted(child.key for child in owned if child.is_deleting)
    return canonical([actual_of(wanted, owned), leaving])


def _applied(child: WantedChild, *, force: bool) -> Intent:
    intent = apply(child.manifest, force=force)
    options = msgspec.structs.replace(intent.options, remembered=True)
    return msgspec.structs.replace(intent, resource=child.kind.cls, options=options)
