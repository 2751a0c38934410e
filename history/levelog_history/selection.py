"""Which objects are looked at: one, those of a namespace, those of a resource, or some of them by their labels."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.objects import CLUSTER_SCOPE, GroupResource, ObjectKey

_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?")
_REQUIREMENT: Final = re.compile(r"(?P<not>!)?(?P<key>[A-Za-z0-9._/-]+)(?:(?P<how>!=|==|=)(?P<value>[A-Za-z0-9._-]*))?")


class Selected(Struct, frozen=True):
    """Objects of one resource, of one namespace of it, or one object; what is empty leaves all in."""

    resource: GroupResource
    namespace: str = ""
    """`_` for objects that have none."""
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Selected":
        """Read `RESOURCE[.GROUP][/NAMESPACE[/NAME]]`. Raises ConfigurationError."""
        resource, *rest = text.split("/")
        if not _RESOURCE.fullmatch(resource) or len(rest) > 2 or not all(rest):
            raise ConfigurationError(
                f"{text!r} names no objects: write RESOURCE[.GROUP]/NAMESPACE/NAME as in webs.example.com/default/shop"
                f", with {CLUSTER_SCOPE} for no namespace; without a name, or without both, all are meant"
            )
        return cls(GroupResource.parse(resource), *rest)

    @property
    def key(self) -> ObjectKey | None:
        """The one object that is meant, if it is one."""
        if not self.name:
            return None
        namespace = "" if self.namespace == CLUSTER_SCOPE else self.namespace
        return ObjectKey(
            group=self.resource.group, resource=self.resource.resource, namespace=namespace, name=self.name
        )

    def has(self, key: ObjectKey) -> bool:
        """Tell whether an object is among them."""
        return (
            key.group_resource == self.resource
            and self.namespace in ("", key.namespace or CLUSTER_SCOPE)
            and self.name in ("", key.name)
        )

    def __str__(self) -> str:
        return "/".join(part for part in (str(self.resource), self.namespace, self.name) if part)


def label_selector(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """A test of an object's labels as kubectl writes it: `app=web,tier!=db,owner,!legacy`.

    Raises ConfigurationError for anything else; sets (`in (…)`) are not known.
    """
    requirements = [_requirement(part.strip(), text) for part in text.split(",") if part.strip()]

    def is_selected(manifest: Mapping[str, Any]) -> bool:
        labels: Mapping[str, str] = manifest.get("metadata", {}).get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return is_selected


def has_any(selected: Sequence[Selected], key: ObjectKey) -> bool:
    """Tell whether an object is among any of them."""
    return any(each.has(key) for each in selected)


def _requirement(part: str, text: str) -> Callable[[Mapping[str, str]], bool]:
    found = _REQUIREMENT.fullmatch(part)
    if found is None or (found["not"] and found["how"]):
        raise ConfigurationError(
            f"selector {text!r} cannot be read at {part!r}: write KEY=VALUE, KEY!=VALUE, KEY or !KEY, commas between"
        )
    key, value, how = found["key"], found["value"], found["how"]
    if how == "!=":
        return lambda labels: labels.get(key) != value
    if how:
        return lambda labels: labels.get(key) == value
    if found["not"]:
        return lambda labels: key not in labels
    return lambda labels: key in labels
