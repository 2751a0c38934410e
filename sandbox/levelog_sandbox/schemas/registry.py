"""What the API serves: each kind in each version, where it is stored, and how to find it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from levelog_sandbox.api import refusals
from levelog_sandbox.schemas.replicas import OF_WORKLOADS, ScalePaths
from levelog_sandbox.schemas.shapes import Schema, SchemaBuilder

Json = dict[str, Any]

# Origin: PrepareForCreate, AllowCreateOnUpdate, AllowUnconditionalUpdate of each strategy in kube-apiserver 1.36.
_RBAC: Final = frozenset(
    f"{plural}.rbac.authorization.k8s.io" for plural in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
)
WITHOUT_GENERATION: Final = _RBAC | {
    "configmaps",
    "endpoints",
    "events",
    "events.events.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "leases.coordination.k8s.io",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
}
CREATED_BY_REPLACE: Final = _RBAC | {
    "endpoints",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "limitranges",
    "services",
}
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
NEVER_UNCONDITIONAL: Final = frozenset(
    {
        "customresourcedefinitions.apiextensions.k8s.io",
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Table; `path` is a simple JSONPath such as `.spec.replicas`."""

    name: str
    type: str
    path: str
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """One kind at one served version; two versions of a kind share `storage`.

    `name` is `webs.example.com`, or `pods` in the legacy group; `api_version` is as in a manifest.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    has_status: bool
    schema: Schema
    storage: str
    stored_version: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    is_custom: bool = False
    scale: ScalePaths | None = None
    published: Json | None = None
    """The schema as its definition has it, for clients that ask; None for what is built in."""
    to_stored: Callable[[Json], Json] | None = None
    from_stored: Callable[[Json], Json] | None = None
    name: str = field(init=False)
    api_version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", refusals.qualified(self.group, self.plural))
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that it takes."""
        if not self.storage:
            return ("create",)
        return tuple(verb for verb in VERBS if verb != "deletecollection" or self.name != "namespaces")

    @property
    def list_kind(self) -> str:
        """The kind of a list of these."""
        return f"{self.kind}List"

    @property
    def has_generation(self) -> bool:
        """Whether `metadata.generation` counts changes."""
        return self.name not in WITHOUT_GENERATION

    @property
    def needs_version_to_replace(self) -> bool:
        """Whether a replacement without resourceVersion is refused."""
        return self.is_custom or self.name in NEVER_UNCONDITIONAL

    @property
    def has_qualified_finalizers(self) -> bool:
        """Whether a finalizer without a domain is refused."""
        return not self.is_custom and self.group != "apiextensions.k8s.io"

    @property
    def is_created_by_replace(self) -> bool:
        """Whether replacing an absent object creates it."""
        return self.name in CREATED_BY_REPLACE


class Registry:
    """Every resource served now; custom ones come and go."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], ServedResource] = {}
        self.builder, self.scale, own = _builtin()
        self.reviews = {(kind.group, kind.version, kind.plural): kind for kind in own if not kind.storage}
        """By group, version and plural: what is answered at once, and never stored."""
        for kind in own:
            if kind.storage:
                self.add(kind)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._resources.values())

    def add(self, resource: ServedResource) -> None:
        """Serve a resource."""
        self._resources[resource.group, resource.version, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving a resource at every version."""
        for key in [key for key in self._resources if (key[0], key[2]) == (group, plural)]:
            del self._resources[key]

    def at(self, group: str, version: str, plural: str) -> ServedResource:
        """The resource that a URL names. Raises `StatusError` 404, `NoSuchPathError` beside built-in versions."""
        resource = self._resources.get((group, version, plural))
        if resource is None:
            own = [*(each for each in self if not each.is_custom), *self.reviews.values()]
            is_built_in = any((group, version) == (each.group, each.version) for each in own)
            raise refusals.no_such_resource() if is_built_in else refusals.NoSuchPathError(plural)
        return resource

    def of_kind(self, api_version: str, kind: str) -> ServedResource | None:
        """The resource of a manifest; None when it is not served."""
        return next((r for r in self if r.api_version == api_version and r.kind == kind), None)

    def named(self, name: str) -> ServedResource:
        """By `plural` or `plural.group`, at the first version. Raises `StatusError` 404."""
        for resource in self:
            if resource.name == name:
                return resource
        raise refusals.no_such_resource()

    def stored_as(self, storage: str) -> ServedResource | None:
        """The resource at the version in which a collection is stored."""
        for resource in self:
            if resource.storage == storage and resource.api_version == resource.stored_version:
                return resource
        return None

    def storages(self) -> Iterable[str]:
        """The collections behind all resources, each once."""
        return dict.fromkeys(resource.storage for resource in self)


def anything(
    version: str, plural: str, kind: str, registry: Registry, *, namespaced: bool, group: str = ""
) -> ServedResource:
    """A resource whose content nobody checks, with a status."""
    return ServedResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        namespaced=namespaced,
        has_status=True,
        schema=registry.builder.custom_resource({"x-kubernetes-preserve-unknown-fields": True}),
        storage=refusals.qualified(group, plural),
        stored_version=f"{group}/{version}" if group else version,
        is_custom=bool(group),
    )


@cache
def _builtin() -> tuple[SchemaBuilder, ServedResource, Sequence[ServedResource]]:
    """The kind of what `/scale` of a resource is, which has no path of its own, and all others; for all sandboxes."""
    document: Json = msgspec.json.decode(files("levelog_sandbox").joinpath("schemas/builtin.json").read_bytes())
    builder = SchemaBuilder(document["definitions"])
    return builder, _scale(builder), [_builtin_resource(kind, builder) for kind in document["kinds"]]


def _builtin_resource(kind: Json, builder: SchemaBuilder) -> ServedResource:
    group, version, plural = kind["group"], kind["version"], kind["plural"]
    is_event_view = group == "events.k8s.io"
    return ServedResource(
        group=group,
        version=version,
        plural=plural,
        kind=kind["kind"],
        singular=kind["singular"],
        namespaced=kind["namespaced"],
        has_status=kind["has_status"],
        scale=OF_WORKLOADS if kind["has_scale"] else None,
        schema=builder.definition(kind["definition"]),
        storage="events" if is_event_view else refusals.qualified(group, plural) if kind["is_stored"] else "",
        stored_version="v1" if is_event_view else f"{group}/{version}" if group else version,
        short_names=tuple(kind["short_names"]),
        categories=tuple(kind["categories"]),
        to_stored=_event_to_core if is_event_view else None,
        from_stored=_event_from_core if is_event_view else None,
    )


def _scale(builder: SchemaBuilder) -> ServedResource:
    return ServedResource(
        group="autoscaling",
        version="v1",
        plural="scales",
        kind="Scale",
        singular="scale",
        namespaced=True,
        has_status=False,
        schema=builder.definition("autoscaling.v1.Scale"),
        storage="",
        stored_version="autoscaling/v1",
        columns=(
            Column("Desired", "integer", ".spec.replicas"),
            Column("Available", "integer", ".status.replicas"),
            Column("Age", "date", ".metadata.creationTimestamp"),
        ),
    )


# Origin: the conversions in pkg/apis/events/v1 of kube-apiserver; events of both groups are one collection.
_EVENT_FIELDS: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def _renamed(body: Json, names: Mapping[str, str], api_version: str) -> Json:
    return {names.get(key, key): value for key, value in body.items()} | {"apiVersion": api_version}


def _event_to_core(body: Json) -> Json:
    return _renamed(body, _EVENT_FIELDS, "v1")


def _event_from_core(body: Json) -> Json:
    names = {core: ours for ours, core in _EVENT_FIELDS.items()}
    event = _renamed(body, names, "events.k8s.io/v1")
    reporter = ("reportingController", "reportingInstance")
    return {key: value for key, value in event.items() if value or key not in reporter}
