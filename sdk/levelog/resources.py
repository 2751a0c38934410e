"""Typed views of Kubernetes objects: a handler declares the fields that it reads, and nothing else wakes it."""

from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from levelog.errors import OperatorError
from levelog.objects import GroupResource, ObjectKey, Uid

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON."""

Scope: TypeAlias = Literal["Namespaced", "Cluster"]


class Struct(msgspec.Struct, rename="camel"):
    """Part of an object: field names in snake_case stand for Kubernetes' camelCase ones."""


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
    """Wakes nothing: it does not change while the uid is the same."""
    deletion_timestamp: datetime | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, if it has one."""
        return next((owner for owner in self.owner_references if owner.controller), None)


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
    scope: Scope

    @property
    def group_resource(self) -> GroupResource:
        """The resource without its version."""
        return GroupResource(group=self.group, resource=self.plural)

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def key(self, namespace: str, name: str) -> ObjectKey:
        """Key of one object; the namespace is dropped for cluster-scoped resources."""
        return ObjectKey(
            group=self.group,
            resource=self.plural,
            namespace=namespace if self.scope == "Namespaced" else "",
            name=name,
        )


class ResourceMeta(msgspec.StructMeta):
    """Takes group, version, plural, kind and scope from the class statement."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        """Build the struct and note which resource it stands for."""
        plural: str | None = options.pop("plural", None)
        given = {key: options.pop(key) for key in ("group", "version", "kind", "scope") if key in options}
        if given.get("scope", "Namespaced") not in get_args(Scope):
            raise OperatorError(f'class {name}: scope is "Namespaced" or "Cluster", not {given["scope"]!r}')
        struct: Any = super().__new__(cls, name, bases, namespace, **options)
        if plural is not None:
            struct.resource_type = ResourceType(
                group=given.get("group", ""),
                version=given.get("version", "v1"),
                plural=plural,
                kind=given.get("kind", name),
                scope=given.get("scope", "Namespaced"),
            )
        return struct


class ResourceBase(Struct, metaclass=ResourceMeta):
    """What Resource and its variants share."""

    resource_type: ClassVar[ResourceType]


class Resource(ResourceBase):
    """An object of the API, decoded to the fields that the subclass names.

    `class Web(Resource, group="example.com", version="v1", plural="webs")`; the kind is the class's name unless
    `kind=` says otherwise, `scope="Cluster"` for objects without a namespace. Labels and annotations do not count.
    """

    metadata: Metadata


class LabelledResource(ResourceBase):
    """A Resource whose handler also reads labels, so that a changed label wakes it."""

    metadata: LabelledMetadata


class AnnotatedResource(ResourceBase):
    """A Resource whose handler also reads labels and annotations."""

    metadata: AnnotatedMetadata
