"""`@op.children`: makes an index, a view and a reconcile function from a function that returns manifests."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec import Struct, field

from levelog.handlers.fingerprints import fingerprint
from levelog.handlers.indexers import APPLIED, MARK, ImplicitIndex
from levelog.handlers.injection import Given, Lender
from levelog.handlers.owned import (
    CONFIRMED,
    ChildKind,
    ChildrenLevel,
    WantedChild,
    as_stored,
    confirms,
    deletion_refusal,
    level_of,
    owned_child,
    sight_of,
)
from levelog.handlers.readers import each_of, require_resource
from levelog.handlers.signatures import holds_intents, parameters, refuse_coroutine, require_flag, shown, type_hints
from levelog.handlers.viewhandlers import IndexParameter, ReconcileHandler, ViewHandler, Writes
from levelog.intents import Intent, with_encoded_data
from levelog.levels import Level
from levelog.resources import Manifest, Metadata, Owner, ResourceBase, ResourceType, refuse_external
from levelog_base.errors import ChildRefused, OperatorError
from levelog_base.wire.canonical import canonical, digest
from levelog_base.wire.projection import Applied, fields_of
from levelog_base.wire.records import refuse_remains

if TYPE_CHECKING:
    from levelog_base.secrets.redaction import Redactor

REDACTOR: Final = f"{MARK}redactor"
"""Name under which the view is given the redactor, as manifests are compared with what is recorded of objects."""

KEEP: Final[Manifest] = {}
"""What a function returns, by identity, to leave the parent's children as they are: it cannot tell them now."""
_CODE: Final = "children 3"
"""Stands for this module in fingerprints: raised when the same manifests lead to other levels or other intents."""


class Remembered(Struct, frozen=True, kw_only=True):
    """An entry of the index of what was applied, `@applied/function`: under the parent's name, one for each target."""

    parent_uid: str
    uid: str
    applied: Applied


class _Owner(Struct, omit_defaults=True):
    uid: str
    api_version: str = field(name="apiVersion")
    kind: str
    name: str
    controller: bool = False

    def is_of(self, resource: ResourceType) -> bool:
        """Tell whether the owner is an object of the resource, in whatever version."""
        group = self.api_version.rpartition("/")[0]
        return (group, self.kind) == (resource.group, resource.kind)


class _Named(Struct, kw_only=True, omit_defaults=True):
    """An entry under the name of an object: who controls it."""

    uid: str
    controller: _Owner | None = None
    is_deleting: bool = False


class ChildIndex(ImplicitIndex):
    """Objects of one resource: who controls them, under their names; whole under the parent that does."""

    def __init__(self, parent: type[ResourceBase], cls: type[ResourceBase]) -> None:
        super().__init__(index_name(parent, cls), cls, lambda _: (), code=_CODE)
        self._parent = parent.resource_type
        resources = canonical([self._parent, cls.resource_type])
        self.fingerprint = digest(_CODE, resources)  # whatever fields the classes name

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """Entries of one object; one that is too large for the log is refused by the level of its parent alone."""
        found = msgspec.json.decode(body, type=dict[str, Any])
        metadata = found["metadata"]
        owners = msgspec.convert(metadata.get("ownerReferences") or [], list[_Owner])
        controller = next((owner for owner in owners if owner.controller), None)
        named = _Named(uid=metadata["uid"], controller=controller, is_deleting="deletionTimestamp" in metadata)
        entries: list[tuple[Any, Any]] = [((metadata.get("namespace", ""), metadata["name"]), named)]
        if controller is not None and controller.is_of(self._parent):
            entries.append((self._parent.owner(metadata.get("namespace", ""), controller.uid), as_stored(found)))
        return entries


class AppliedIndex(ImplicitIndex):
    """What the server made of what was applied for the parents of one function; receipts fill it, not objects."""

    def __init__(self, function: str, parent: type[ResourceBase]) -> None:
        super().__init__(applied_name(function), parent, lambda _: (), code=_CODE)
        self.fingerprint = digest(_CODE)  # no change of code makes it forget: objects could not fill it again

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:  # noqa: ARG002 - a parent is not even decoded
        """No object has entries."""
        return []


class ConfirmedIndex(ImplicitIndex):
    """What a parent's annotation confirms, by its uid."""

    def __init__(self, parent: type[ResourceBase]) -> None:
        super().__init__(confirmed_name(parent), parent, lambda _: (), code=_CODE)
        self.fingerprint = digest(_CODE, CONFIRMED)

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """The value of the annotation, if there is one."""
        metadata = msgspec.json.decode(body, type=dict[str, Any])["metadata"]
        value = (metadata.get("annotations") or {}).get(CONFIRMED)
        return [] if value is None else [(metadata["uid"], value)]


def index_name(parent: type[ResourceBase], cls: type[ResourceBase]) -> str:
    """Name of the index of a child class: `children/webs.example.com/deployments.apps`."""
    return f"children/{parent.resource_type.group_resource}/{cls.resource_type.group_resource}"


def confirmed_name(parent: type[ResourceBase]) -> str:
    """Name of the index of what annotations of parents confirm."""
    return f"confirmed/{parent.resource_type.group_resource}"


def applied_name(function: str) -> str:
    """Name of the index of applied manifests: `applied/stack`."""
    return f"{APPLIED}{function}"


class ChildrenView(ViewHandler):
    """The view that is made of a function which returns manifests."""

    also = (Given.CHANCE,)

    parent: type[ResourceBase]
    kinds: tuple[ChildKind, ...]
    force: bool
    max_deletions: int | None
    may_return_none: bool
    """Its annotation says so; else None is what a function returns by mistake."""

    def own_indices(self) -> list[ImplicitIndex]:
        """The indices that the view reads, besides those that the function reads."""
        confirmed = [] if self.max_deletions is None else [ConfirmedIndex(self.parent)]
        children = (ChildIndex(self.parent, kind.cls) for kind in self.kinds)
        return [*children, AppliedIndex(self.name, self.parent), *confirmed]

    def children_in(self, desired: bytes | None, namespace: str, of: Collection[str]) -> tuple[str, ...]:
        """Names of the children that a level wants, of some resources; `namespace` is its parent's."""
        kinds = {kind.label: kind.resource for kind in self.kinds if str(kind.resource.group_resource) in of}
        found: list[str] = []
        for key in msgspec.json.decode(desired, type=dict[str, msgspec.Raw]) if desired and kinds else ():
            label, *place, name = key.split("/")
            if label in kinds:
                found.append(str(kinds[label].key(place[0] if place else namespace, name)))
        return tuple(sorted(found))

    def level(self, parent: Any, result: Any, indices: Mapping[str, Any], redactor: "Redactor") -> ChildrenLevel:
        """The level of one parent; `indices` by their names."""
        metadata: Metadata = parent.metadata
        manifests = self._manifests(result)
        wanted = self._wanted(metadata, manifests or (), redactor)
        key = str(self.resource.key(metadata.namespace, metadata.name))
        remembered = _by_uid(indices[MARK + applied_name(self.name)][key], metadata.uid)
        owned = [
            owned_child(kind, body, remembered, is_beside_parent=self._is_namespaced)
            for kind in self.kinds
            for body in indices[MARK + index_name(self.parent, kind.cls)][parent.as_owner]
        ]
        for each in owned:
            refuse_remains(each.body)
        if manifests is None:
            kept: dict[str, Any] = {child.key: {} for child in owned if not child.is_deleting}
            return ChildrenLevel(kept, kept)
        there = {child.key for child in owned}
        leaving: set[str] = set()
        for child in wanted:
            if child.key not in there:
                place = child.kind.resource.key(metadata.namespace or child.namespace, child.name)
                for found in indices[MARK + index_name(self.parent, child.kind.cls)][place.namespace, place.name]:
                    if self._leaves(child, msgspec.convert(found, _Named), metadata, remembered):
                        leaving.add(child.key)
        level = level_of(self.kinds, wanted, owned, leaving, force=self.force)
        if self.max_deletions is not None and any(step.verb == "delete" for step in level.steps):
            extra = [child for child in owned if child.key in level.drift.extra]
            confirmed = indices[MARK + confirmed_name(self.parent)][metadata.uid]
            if len(extra) > self.max_deletions and not any(confirms(each, extra, self.kinds) for each in confirmed):
                raise ChildRefused(deletion_refusal(extra, self.kinds, self.max_deletions, self.resource, metadata))
        return level

    def sight(
        self, desired: bytes, parent_uid: str, contents: Mapping[tuple[str, str], Sequence[bytes]]
    ) -> tuple[dict[tuple[str, str], Sequence[bytes]], bytes]:
        """What a level with these wanted fields sees of what it read: the rest of the contents, and of children.

        `contents` are values by index and canonical key; those under owners are children.
        """
        kinds = {MARK + index_name(self.parent, kind.cls): kind for kind in self.kinds}
        rest: dict[tuple[str, str], Sequence[bytes]] = {}
        values: list[tuple[ChildKind, Any]] = []
        remembered: dict[str, Applied] = {}
        for (index, key), held in contents.items():
            name = index.partition("/")[2]
            if name == MARK + applied_name(self.name) and key.startswith('"'):
                remembered |= _by_uid((msgspec.json.decode(value) for value in held), parent_uid)
            elif name in kinds and key.startswith("[") and len(msgspec.json.decode(key)) == len(Owner._fields):
                values += [(kinds[name], msgspec.json.decode(value)) for value in held]
            else:
                rest[index, key] = held
        owned = [owned_child(kind, value, remembered, is_beside_parent=self._is_namespaced) for kind, value in values]
        return rest, sight_of(desired, owned)

    @property
    def _is_namespaced(self) -> bool:
        return self.resource.scope == "Namespaced"

    def _leaves(self, child: WantedChild, found: _Named, parent: Metadata, remembered: Mapping[str, Applied]) -> bool:
        """Tell whether an object that is no child and has the name of one is about to go.

        Raises ChildRefused if it stays. One that this parent made, and that lost its owner, is taken back.
        """
        owner = found.controller
        was_ours = owner is not None and owner.is_of(self.resource) and owner.name == parent.name
        if found.is_deleting or was_ours:  # an earlier incarnation of the parent: its children are being collected
            return True
        if owner is None and found.uid in remembered:
            return False
        held_by = f"{owner.kind}/{owner.name}" if owner else "nobody"
        raise ChildRefused(f"{child.key} exists already and is controlled by {held_by}: it is not taken over")

    def _manifests(self, result: Any) -> Sequence[Any] | None:
        """What the function returned; None: the children stay as they are."""
        if result is None and not self.may_return_none:
            raise ChildRefused(
                "nothing is returned: return [] for no children, op.KEEP to leave them as they are, or annotate the "
                "function to return `Manifest | None`"
            )
        manifests = [] if result is None else [result] if isinstance(result, Mapping) else list(result)
        if any(each is KEEP for each in manifests):
            if len(manifests) > 1:
                raise ChildRefused("op.KEEP is returned beside manifests: it leaves all children as they are")
            return None
        return manifests

    def _wanted(self, parent: Metadata, manifests: Iterable[Any], redactor: "Redactor") -> list[WantedChild]:
        found: dict[str, WantedChild] = {}
        for manifest in manifests:
            child = self._child(parent, manifest, redactor)
            if child.key in found:
                raise ChildRefused(f"{child.key} is returned twice")
            found[child.key] = child
        return list(found.values())

    def _child(self, parent: Metadata, given: Any, redactor: "Redactor") -> WantedChild:
        if not isinstance(given, Mapping):
            mend = ": return the manifest itself, without apply(…)" if isinstance(given, Intent) else ""
            raise ChildRefused(f"{type(given).__name__} is returned, which is not a manifest{mend}")
        try:
            manifest: dict[str, Any] = msgspec.json.decode(canonical(dict(given)))
        except (TypeError, ValueError) as error:
            about: Any = given.get("metadata")
            named = about.get("name") if isinstance(about, Mapping) else None
            raise ChildRefused(f"{given.get('kind')} {named}: {error}") from error
        metadata = manifest.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        version, kind_name, name = manifest.get("apiVersion"), manifest.get("kind"), metadata.get("name")
        what = f"{kind_name or 'a manifest without kind'} {name or ''}".rstrip()
        if metadata.get("generateName") or not isinstance(name, str) or not name:
            raise ChildRefused(f"{what}: metadata.name has to be given, names are never generated")
        kind = next((k for k in self.kinds if (k.resource.api_version, k.resource.kind) == (version, kind_name)), None)
        if kind is None:
            known = ", ".join(f"{k.resource.api_version} {k.resource.kind}" for k in self.kinds)
            raise ChildRefused(f"{what}: {version or 'no apiVersion'} {kind_name} is not in of=; there are: {known}")
        namespace = metadata.get("namespace") or ""
        for text, is_wrong in (
            ("has no namespaces: leave metadata.namespace out", kind.resource.scope == "Cluster" and namespace),
            (
                f"is to be in namespace {namespace}, its parent is in {parent.namespace}: owners do not reach there",
                parent.namespace and namespace not in ("", parent.namespace),
            ),
            (
                "needs metadata.namespace, since its parent has none",
                kind.resource.scope == "Namespaced" and not parent.namespace and not namespace,
            ),
            ("names ownerReferences: the parent is the owner", "ownerReferences" in metadata),
            ("sets its status: children get what their manifests specify, a status is patched", "status" in manifest),
        ):
            if is_wrong:
                raise ChildRefused(f"{what}: {text}")
        key = kind.key(namespace, name, is_beside_parent=bool(parent.namespace))
        group_resource = kind.resource.group_resource
        manifest = with_encoded_data(group_resource, manifest)
        fields = fields_of(redactor.redact_manifest(group_resource, manifest, namespace=namespace or parent.namespace))
        return WantedChild(kind=kind, key=key, namespace=namespace, name=name, manifest=manifest, fields=fields)


def inspect_children(
    function: Callable[..., Any],
    parent: type[ResourceBase],
    of: type[ResourceBase] | Sequence[type[ResourceBase]],
    inspect_view: Callable[[Callable[..., Any]], ChildrenView],
    *,
    force: bool,
    max_deletions: int | None,
) -> ChildrenView:
    """Make the view; `inspect_view` checks a function's signature as that of a view.

    Raises OperatorError naming the function and what is wrong.
    """
    kinds = _kinds(function.__name__, parent, of)
    refuse_coroutine(function, "children")
    require_flag(f"children {function.__name__}", "force", force)

    @wraps(function)
    def view(**given: Any) -> Level[dict[str, Any]]:
        redactor: Redactor = given.pop(REDACTOR)
        indices = {name: given.pop(name) for name in list(given) if name.startswith(MARK)}
        return handler.level(given[handler.parent_parameter], function(**given), indices, redactor)

    view.__annotations__ = {**function.__annotations__, "return": Level[dict[str, Any]]}
    hints = type_hints(function)
    if holds_intents(hints.get("return")):
        raise OperatorError(f"children {function.__name__}: is annotated to return intents: return manifests")
    hint = hints.get(next(iter(parameters(function, "children")), ""))
    if not isinstance(hint, type) or getattr(hint, "resource_type", None) != parent.resource_type:
        raise OperatorError(
            f"children {function.__name__}: the first parameter is {shown(hint)}; it has to be the parent, "
            f"{parent.__name__}"
        )
    handler = inspect_view(view)
    for name, given in handler.given.given.items():
        if given is Given.NOW:
            raise OperatorError(
                f"children {function.__name__}: parameter {name!r} asks for the time, but nothing calls the function "
                "again when that has come: use a view, which returns Level(…, recheck_at=…), and a reconcile function"
            )
    if max_deletions is not None and (type(max_deletions) is not int or max_deletions < 0):
        raise OperatorError(f"children {function.__name__}: max_deletions={max_deletions!r} is no number of children")
    handler.parent, handler.kinds, handler.force, handler.max_deletions = parent, kinds, force, max_deletions
    handler.may_return_none = NoneType in (hints.get("return"), *get_args(hints.get("return")))
    own = tuple(IndexParameter(index.name, index, Any, Any) for index in handler.own_indices())
    handler.indices = (*handler.indices, *own)
    labels = [f"{kind.label} {kind.resource.group_resource}" for kind in kinds]
    handler.fingerprint = digest(handler.fingerprint, fingerprint(function), _CODE, *labels, f"{force} {max_deletions}")
    return handler


def reconciler_of(view: ChildrenView, lender: Lender) -> ReconcileHandler:
    """The reconcile function that takes the steps which the level knows."""

    async def reconcile(parent: ResourceBase, level: Level[Any]) -> list[Intent]:  # noqa: ARG001 - needs no thread
        return list(level.steps) if isinstance(level, ChildrenLevel) else []

    reconcile.__name__ = f"{view.name}.reconcile"
    reconcile.__annotations__["parent"] = view.parent
    writes: Writes = {kind.cls: ("apply", "delete") for kind in view.kinds}
    handler = ReconcileHandler(reconcile, view, writes, lender)
    handler.fingerprint = digest(_CODE, view.name)
    return handler


def refuse_shared(view: ViewHandler, others: Iterable[ViewHandler]) -> None:
    """Raises OperatorError if two functions return children of one kind for the same parents."""
    for other in others:
        if isinstance(view, ChildrenView) and isinstance(other, ChildrenView) and other.resource == view.resource:
            taken = [kind.resource.group_resource for kind in other.kinds]
            shared = [kind.label for kind in view.kinds if kind.resource.group_resource in taken]
            if shared:
                raise OperatorError(
                    f"children {view.name}: {', '.join(shared)} of a {view.resource.kind} are children of "
                    f"{other.name!r} already, which would delete them: return both from one function"
                )


def _kinds(name: str, parent: type[ResourceBase], of: Any) -> tuple[ChildKind, ...]:
    classes = each_of(of)
    if not classes:
        raise OperatorError(f"children {name}: of=[] names no class of children")
    for cls in (parent, *classes):
        require_resource(f"children {name}: ", cls)
        refuse_external(f"children {name}: ", cls)
    resources = [cls.resource_type for cls in classes]
    for resource in resources:
        if resources.count(resource) > 1:
            raise OperatorError(f"children {name}: of= names {resource.group_resource} twice")
        if resource.scope == "Cluster" and parent.resource_type.scope == "Namespaced":
            raise OperatorError(
                f"children {name}: {resource.kind} has no namespace, so that a {parent.resource_type.kind}, "
                "which has one, cannot own it"
            )
    shared = [resource.kind for resource in resources]
    return tuple(
        ChildKind(f"{cls.resource_type.kind}.{cls.resource_type.group}".rstrip("."), cls)
        if shared.count(cls.resource_type.kind) > 1
        else ChildKind(cls.resource_type.kind, cls)
        for cls in classes
    )


def _by_uid(values: Iterable[Any], parent_uid: str) -> dict[str, Applied]:
    found = (msgspec.convert(value, Remembered) for value in values)
    return {one.uid: one.applied for one in found if one.parent_uid == parent_uid}
