"""Names of resources and objects, in one form for all of levelog."""

import re
from functools import lru_cache
from typing import Final, NewType
from urllib.parse import quote, unquote

from msgspec import Struct

from levelog_base.errors import ConfigurationError

Cluster = NewType("Cluster", str)
"""uid of the namespace kube-system."""

Application = NewType("Application", str)
"""Name of the operators that are loaded together."""

Uid = NewType("Uid", str)
"""metadata.uid: one incarnation of an object."""

Sequence = NewType("Sequence", int)
"""Position of a record in the log, from 1."""

Partition = NewType("Partition", int)

Version = NewType("Version", int)
"""metadata.resourceVersion as a number; comparable within one resource of one cluster (KEP-5504)."""

MAX_VERSION: Final = 2**63 - 1
"""What a column of SQL holds; etcd's revisions are such numbers too."""

DELETED: Final = ":deleted"
"""Ends the group of what stands for deleted objects until all is handled that their deletion asks for."""

CLUSTER_SCOPE = "_"
"""Stands for the namespace of objects that have none."""


def field_manager(operator: str) -> str:
    """The field manager of what an operator writes, and the reporter of its Events."""
    return f"levelog-{operator}"


def parse_version(text: str) -> Version:
    """A resourceVersion as a number. Raises ValueError if it is none, in decimal digits, up to MAX_VERSION."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_VERSION)) and int(text) <= MAX_VERSION):
        raise ValueError(f"{text[:40]!r} is no resourceVersion")
    return Version(int(text))


_NAMED: Final = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


def is_newer(api_version: str, than: str) -> bool:
    """Tell which of two versions of a group comes later: v1alpha1, v1beta1, v1, v2alpha1; other names before all these.

    False where one of them is not known. Not Kubernetes' order of preference, which puts v1 after v2alpha1.
    """
    return bool(api_version and than) and _rank(api_version) > _rank(than)


def _rank(api_version: str) -> tuple[int, str, int, str]:
    name = api_version.rpartition("/")[2]
    found = _NAMED.fullmatch(name)
    return (int(found[1]), found[2] or "stable", int(found[3] or 0), "") if found else (0, "", 0, name)


class GroupResource(Struct, frozen=True, order=True):
    """A resource in a group; prints as kubectl does: `pods`, `webs.example.com`."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @classmethod
    def parse(cls, text: str) -> "GroupResource":
        """Read `pods` or `webs.example.com`."""
        resource, _, group = text.partition(".")
        return cls(group=group, resource=resource)


SECRETS: Final = GroupResource(group="", resource="secrets")


class ObjectKey(Struct, frozen=True, order=True):
    """Names one object of a cluster, over all its incarnations; prints as `webs.example.com/default/shop`."""

    group: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{kind}/{self.namespace or CLUSTER_SCOPE}/{self.name}"

    @property
    def group_resource(self) -> GroupResource:
        """The resource that the object belongs to."""
        return GroupResource(group=self.group, resource=self.resource)

    @property
    def is_sound(self) -> bool:
        """Whether its text names it and nothing else, and can be stored."""
        is_named = bool(self.resource and self.name) and self.namespace != CLUSTER_SCOPE
        text = self.group + self.resource + self.namespace + self.name
        return is_named and "." not in self.resource and "/" not in text and "\0" not in text

    def deleted(self, uid: str) -> "ObjectKey":
        """Stands for one incarnation of the object after its end: `webs.example.com:deleted/default/shop:UID`.

        No group of the API has a colon in its name.
        """
        return ObjectKey(
            group=f"{self.group}{DELETED}", resource=self.resource, namespace=self.namespace, name=f"{self.name}:{uid}"
        )

    @property
    def living(self) -> "ObjectKey":
        """The object that this one was, if it stands for a deleted one."""
        if not self.group.endswith(DELETED):
            return self
        group, name = self.group.removesuffix(DELETED), self.name.rpartition(":")[0]
        return ObjectKey(group=group, resource=self.resource, namespace=self.namespace, name=name)

    @classmethod
    def parse(cls, text: str) -> "ObjectKey":
        """Read what `str` wrote.

        A name may hold slashes, as those of external records do. Raises ConfigurationError if the text has not the
        form RESOURCE[.GROUP]/NAMESPACE/NAME.
        """
        parts = text.split("/", 2)
        if len(parts) != 3 or not all(parts):
            raise ConfigurationError(
                f"{text!r} does not name an object: write RESOURCE[.GROUP]/NAMESPACE/NAME, with _ for no namespace"
            )
        kind = GroupResource.parse(parts[0])
        namespace = "" if parts[1] == CLUSTER_SCOPE else parts[1]
        return cls(group=kind.group, resource=kind.resource, namespace=namespace, name=parts[2])


@lru_cache(maxsize=256)
def effect_of(view: str, target: ObjectKey) -> str:
    """The effect that a call is of, `operator/effect`, by the view that asked for it and its target."""
    return f"{view.partition('/')[0]}/{target.resource}"


_PLAIN_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]*")


def encode_token(text: str) -> str:
    """Percent-encode a name so that it is one token of a NATS subject (no dot, space, * or >)."""
    return text if _PLAIN_TOKEN.fullmatch(text) else quote(text, safe="").replace(".", "%2E").replace("~", "%7E")


def decode_token(token: str) -> str:
    """Undo `encode_token`."""
    return unquote(token)
