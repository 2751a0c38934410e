"""Classes of Kubernetes objects and external records: only a change of a declared field wakes a function."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar, dataclass_transform, get_args

import msgspec

from levelog_base.errors import OperatorError
from levelog_base.wire.objects import CLUSTER_SCOPE, GroupResource, ObjectKey, Uid
from levelog_base.wire.records import is_traceparent

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON."""

Scope: TypeAlias = Literal["Namespaced", "Cluster"]

StructT = TypeVar("StructT", bound="Struct")


@dataclass(frozen=True)  # mypy takes a Struct that decorates for one that makes dataclasses
class CEL:
    """A validation rule in the Common Expression Language, which the API server checks.

    Use it in a type, `replicas: Annotated[int, CEL("self <= 5", message="at most five")]`, or as a decorator of a
    class: `@CEL("self.least <= self.most")`. `levelog crd` prints it; nothing in levelog evaluates it, not even the
    simulation.
    """

    rule: str
    message: str = ""
    message_expression: str = ""
    field_path: str = ""

    def __call__(self, cls: type[StructT]) -> type[StructT]:
        """Apply the rule to a Struct or Resource class."""
        cls.cel_rules = (self, *cls.cel_rules)
        return cls


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Part of an object: field names in snake_case stand for Kubernetes' camelCase ones.

    Instances are frozen, so one can be a default: `status: Status = Status()`.
    """

    cel_rules: ClassVar[tuple[CEL, ...]] = ()


class Owner(NamedTuple):
    """Who controls an object, as the key of an index: `images: Index[Owner, str]`, `images[web.as_owner]`.

    Anybody who may create an object may name any uid as its owner. As in Kubernetes, an owner in another namespace does
    not count: its namespace is part of the key.
    """

    group: str
    kind: str
    namespace: str
    """Empty for a kind without namespaces: it may own objects in all of them."""
    uid: Uid


class OwnerReference(Struct, omit_defaults=True):
    """An entry of metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool = False
    block_owner_deletion: bool = False


class Metadata(Struct):
    """The part of metadata that every handler sees."""

    name: str
    uid: Uid = Uid("")
    namespace: str = ""
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    """Wakes nothing: it never changes while the uid is the same."""
    deletion_timestamp: datetime | None = None

    def controlled_by(self, cls: "type[ResourceBase]") -> Owner | None:
        """The owner that manages the object, if it is of this class; in an index function, the key to yield under."""
        resource = cls.resource_type
        for each in self.owner_references:
            if each.controller and (each.api_version.rpartition("/")[0], each.kind) == (resource.group, resource.kind):
                return resource.owner(self.namespace, each.uid)
        return None


class LabelledMetadata(Metadata):
    """Metadata with labels."""

    labels: dict[str, str] = {}


class AnnotatedMetadata(LabelledMetadata):
    """Metadata with labels and annotations."""

    annotations: dict[str, str] = {}


class ResourceType(msgspec.Struct, frozen=True, kw_only=True):
    """Where a resource is served: its GVR, kind and scope."""

    group: str
    version: str
    plural: str
    kind: str
    scope: Scope | Literal[""]
    """Empty: as the API serves it, which not every layer says."""

    @property
    def group_resource(self) -> GroupResource:
        """The resource without its version."""
        return GroupResource(group=self.group, resource=self.plural)

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def owner(self, namespace: str, uid: str) -> Owner:
        """An object as the owner of others; the namespace is dropped for cluster-scoped resources."""
        return Owner(self.group, self.kind, "" if self.scope == "Cluster" else namespace, Uid(uid))

    def key(self, namespace: str, name: str) -> ObjectKey:
        """Key of one object; the namespace is dropped for cluster-scoped resources."""
        return ObjectKey(
            group=self.group,
            resource=self.plural,
            namespace="" if self.scope == "Cluster" else namespace,
            name=name,
        )


EVENTS: Final = ResourceType(group="events.k8s.io", version="v1", plural="events", kind="Event", scope="Namespaced")
EVENTS_OF_CLUSTER: Final = "default"
"""Namespace of Events about objects that have none. Origin: validation of events.k8s.io/v1."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What `levelog crd` prints of a resource beside its fields, from the class statement."""

    crd: bool | None = None
    """False for what somebody else defines. None: as the group says."""
    storage: bool = False
    """Whether objects are stored in this version."""
    served: bool = True
    deprecated: str | bool = ""
    """What clients of this version are warned with; True: in the server's words."""
    singular: str = ""
    list_kind: str = ""
    annotations: Mapping[str, str] = {}
    """Annotations of the definition itself."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: Mapping[str, str | Mapping[str, Any]] = {}
    """Path of each column of `kubectl get`, by its title; or the column as it stands in the definition."""
    wide_columns: Mapping[str, str] = {}
    """Columns that only `kubectl get -o wide` shows."""
    scale: tuple[str, ...] | Mapping[str, str] = ()
    """Paths of the wanted replicas, of the actual ones and, if there is one, of their selector; or as it stands."""
    status_subresource: bool | None = None
    """None: if the class has a status."""
    selectable_fields: tuple[str, ...] = ()
    """Paths that a field selector may name."""
    extra_json_schema: Mapping[str, Any] = {}
    """Keywords that the schema of the whole object has as they stand."""


_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label that begins with a letter: so kube-apiserver wants plurals and versions of definitions."""
_GROUP: Final = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.(?=.)|\Z))*")
"""A DNS subdomain, or empty: the core group."""
_LETTERS: Final = "of letters, digits and -, beginning with a letter, as in Web"
_NAMED: Final = {
    "group": (_GROUP, "of a-z, 0-9, - and dots, as in example.com"),
    "version": (_LABEL, "of a-z, 0-9 and -, beginning with a letter, as in v1alpha1"),
    "kind": (re.compile(r"[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"), _LETTERS),
    "plural": (_LABEL, "of a-z, 0-9 and -, beginning with a letter, as in webs"),
}


class ResourceMeta(msgspec.StructMeta):
    """Takes group, version, plural, kind and scope from the class statement, and what only its definition says."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Build the struct and note which resource it stands for."""
        plural: Any = options.pop("plural", None)
        given: dict[str, Any] = {
            key: options.pop(key) for key in ("group", "version", "kind", "scope") if key in options
        }
        if given.get("scope", "Namespaced") not in get_args(Scope):
            raise OperatorError(f'class {name}: scope is "Namespaced" or "Cluster", not {given["scope"]!r}')
        defined = {key: options.pop(key) for key in Definition.__struct_fields__ if key in options}
        try:
            struct: Any = super().__new__(cls, name, bases, namespace, **options)
        except TypeError as error:
            if unknown := re.match(r"'(\w+)' is an invalid keyword", str(error)):
                raise OperatorError(f"class {name}: takes no option {unknown[1]!r}") from error
            raise
        if plural is not None:
            if given.get("group") != EXTERNAL_GROUP:
                _check_names(name, {"plural": plural, "kind": name, **given})
            struct.resource_type = ResourceType(
                group=given.get("group", ""),
                version=given.get("version", "v1"),
                plural=plural,
                kind=given.get("kind", name),
                scope=given.get("scope", "Namespaced"),
            )
            try:
                struct.definition = msgspec.convert(defined, Definition)
            except msgspec.ValidationError as error:
                raise OperatorError(f"class {name}: {error}") from error
        return struct


def _check_names(name: str, given: Mapping[str, Any]) -> None:
    for key, (pattern, form) in _NAMED.items():
        value = given.get(key)
        if key in given and not (isinstance(value, str) and pattern.fullmatch(value)):
            raise OperatorError(f"class {name}: {key}={value!r} is not as the API names resources: {form}")


class ResourceBase(Struct, metaclass=ResourceMeta):
    """What Resource and its variants share."""

    resource_type: ClassVar[ResourceType]
    definition: ClassVar[Definition]

    @property
    def as_owner(self) -> Owner:
        """This object as the owner of others: the key under which an index has what `controlled_by` gave."""
        metadata: Metadata = getattr(self, "metadata")  # noqa: B009 - each variant declares one of its own
        return self.resource_type.owner(metadata.namespace, metadata.uid)


class Resource(ResourceBase):
    """An object of the API, decoded to the fields that the subclass names.

    `class Web(Resource, group="example.com", version="v1", plural="webs")`. The kind is the name of the class unless
    you pass `kind=`; pass `scope="Cluster"` for objects without a namespace. Changes of labels and annotations do not
    count.

    For your own resources, `short_names=`, `categories=`, `singular=`, `list_kind=`, `annotations=`, `columns=`,
    `wide_columns=`, `scale=`, `status_subresource=`, `selectable_fields=`, `storage=`, `served=`, `deprecated=`,
    `extra_json_schema=` and `crd=` control what `levelog crd` prints.
    """

    metadata: Metadata


class LabelledResource(ResourceBase):
    """A Resource whose handlers also read labels, so that a changed label wakes them."""

    metadata: LabelledMetadata


class AnnotatedResource(ResourceBase):
    """A Resource whose handlers also read labels and annotations, so that a change of either wakes them."""

    metadata: AnnotatedMetadata


EXTERNAL_GROUP: Final = "external"
"""Stands where objects have their API group. No such group can be served: those that are defined have a dot, and none
that is built in has this name."""

MOST_NAME_BYTES: Final = 500
"""Of a name, and of a namespace: both go into a NATS subject, which has at most 4,096 bytes, with three for each that
is encoded."""

_OPTIONS: Final = {"group", "version", "kind", *Definition.__struct_fields__}


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A source yields it for a record that no longer exists; make it with `External.gone`."""

    cls: type["External"]
    name: str
    namespace: str = ""


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """What a source gives for a record with the trace that it comes from; made by `External.traced`."""

    record: "External"
    traceparent: str
    """As W3C Trace Context writes it; empty where there is none, or none that can be read."""

    @classmethod
    def of(cls, given: object) -> tuple[object, str]:
        """What a source gave, and the trace that it comes from."""
        return (given.record, given.traceparent) if isinstance(given, cls) else (given, "")


class ExternalMeta(ResourceMeta):
    """Takes plural and scope from the class statement; the rest is the same for all."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Build the struct and note what it stands for."""
        given = sorted(_OPTIONS & options.keys())
        if given:
            raise OperatorError(
                f"class {name}: {given[0]}= is for classes of the Kubernetes API; an External has plural= and scope="
            )
        plural = options.get("plural")
        if plural is not None:
            if not isinstance(plural, str) or not re.fullmatch(r"-*[a-z0-9][-a-z0-9]*", plural):
                raise OperatorError(f"class {name}: plural={plural!r} has to be of a-z, 0-9 and -, as in dns-entries")
            options = {"scope": "Cluster", **options, "group": EXTERNAL_GROUP, "version": "v1"}
        if "metadata" in namespace.get("__annotations__", {}):
            raise OperatorError(f"class {name}: metadata is levelog's own; give the field another name")
        return super().__new__(cls, name, bases, namespace, **options)


class External(ResourceBase, metaclass=ExternalMeta, kw_only=True):
    """A record of an external system: an `@op.source` function lists it, views and indices read it like an object.

    `class Branch(External, plural="branches"): commit: str` declares one, and `Branch(name="main", commit="2f1c")`
    makes one. The name is unique within the class; with `scope="Namespaced"`, within the class and a namespace. The
    record is not in the cluster: you cannot write to it, and it cannot be the parent of a view.
    """

    name: str
    namespace: str = ""

    @property
    def metadata(self) -> Metadata:
        """Name and namespace, in the place where an API object has them."""
        return Metadata(name=self.name, namespace=self.namespace)

    @classmethod
    def gone(cls, name: str, *, namespace: str = "") -> Gone:
        """What an async generator yields when a record no longer exists."""
        return Gone(cls=cls, name=name, namespace=namespace)

    def traced(self, traceparent: str) -> Traced:
        """Link the record to a trace, by the header `traceparent` of a request or a message.

        The log keeps the header with the record; it wakes nothing. An invalid header is dropped, as the standard says.
        """
        return Traced(record=self, traceparent=traceparent if is_traceparent(traceparent) else "")


def is_external(resource: GroupResource) -> bool:
    """Whether a resource is an External class's, and no API server has it."""
    return resource.group == EXTERNAL_GROUP


def external_key(cls: type[External], name: object, namespace: object) -> ObjectKey:
    """Key of a record.

    Raises ValueError for a name or namespace that cannot stand in the log, and for a namespace where there are none.
    """
    resource = cls.resource_type
    if not isinstance(name, str) or not isinstance(namespace, str):
        # not a TypeError: callers handle one kind
        raise ValueError(f"its name is {name!r}, its namespace {namespace!r}; both have to be texts")  # noqa: TRY004
    if resource.scope == "Cluster" and namespace:
        raise ValueError(
            f"it has the namespace {namespace!r}, but {cls.__name__} has none: "
            f'class {cls.__name__}(External, plural="{resource.plural}", scope="Namespaced")'
        )
    if resource.scope == "Namespaced":
        _require_name("namespace", namespace)
        if "/" in namespace or namespace == CLUSTER_SCOPE:
            raise ValueError(f"its namespace is {namespace!r}: it may not hold a slash, nor be {CLUSTER_SCOPE}")
    _require_name("name", name)
    return resource.key(namespace, name)


def refuse_external(where: str, cls: object) -> None:
    """Raise OperatorError for an External class where an object of the cluster is needed."""
    if isinstance(cls, type) and issubclass(cls, External):
        raise OperatorError(
            f"{where}{cls.__name__} is External: it is read through indices, reads= and LiveIndex; "
            "nothing writes it, and it is nobody's parent or child"
        )


def _require_name(what: str, text: str) -> None:
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError(f"its {what} is {text!r}: it may not be empty, begin or end with a blank, or hold controls")
    size = len(text.encode())
    if size > MOST_NAME_BYTES:
        raise ValueError(f"its {what} has {size} bytes; at most {MOST_NAME_BYTES} are taken")
