"""Indices that levelog keeps by itself for what views read besides indices; their names begin with `@`."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from levelog.canonical import canonical, digest
from levelog.fingerprints import fingerprint
from levelog.handlers import IndexHandler
from levelog.objectreaders import ObjectReader, require_resource
from levelog.resources import ResourceBase
from levelog.selectors import Selector

APPLIED: Final = "applied/"
"""Begins the name of an index that receipts fill, before that of its view."""

MARK: Final = "@"
"""Begins the name of every implicit index; no function's name does."""


class ImplicitIndex(IndexHandler):
    """An index of one class whose entries are levelog's own choice; the fold maintains it like any other.

    It has no SQL view. `code` names what makes its entries, so that another way of making them is noticed.
    """

    def __init__(
        self,
        name: str,
        cls: type[ResourceBase],
        entries_of: Callable[[Any], Iterable[tuple[Any, Any]]],
        *,
        code: str,
    ) -> None:
        super().__init__(
            entries_of,
            ObjectReader(cls, Selector()),
            returns=None,
            name=f"{MARK}{name}",
            code=digest(code, class_fingerprint(cls)),
        )
        self.cls = cls


def objects_by_name(cls: type[ResourceBase]) -> ImplicitIndex:
    """Index `@ClassName`: each object, as the class decodes it, under (namespace, name)."""

    def entries(found: Any) -> Iterable[tuple[tuple[str, str], Any]]:
        yield object_key(cls, found.metadata.namespace, found.metadata.name), found

    return ImplicitIndex(cls.__name__, cls, entries, code="(namespace, name)")


def applied_place(view: str, parent: str) -> tuple[str, str]:
    """Index and canonical key under which what was applied for a parent of a children view is remembered."""
    operator, _, function = view.partition("/")
    return f"{operator}/{MARK}{APPLIED}{function}", canonical(parent).decode()


def object_key(cls: type[ResourceBase], namespace: str, name: str) -> tuple[str, str]:
    """Key of an object in the index `objects_by_name`."""
    key = cls.resource_type.key(namespace, name)
    return key.namespace, key.name


def class_fingerprint(cls: type[ResourceBase]) -> str:
    """Identity of how a class decodes objects: its fields with their types and defaults, and its definition."""
    schema = msgspec.json.schema(cls, schema_hook=lambda unknown: {"type": repr(unknown)})
    return digest(canonical(schema), canonical(cls.resource_type), fingerprint(cls))


def require_resources(view: str, classes: Iterable[type[ResourceBase]]) -> tuple[type[ResourceBase], ...]:
    """The classes of `reads=`, each once.

    Raises OperatorError for one that is not a Resource class.
    """
    found: list[type[ResourceBase]] = []
    for cls in classes:
        require_resource(f"view {view}: reads=", cls)
        if cls not in found:
            found.append(cls)
    return tuple(found)
