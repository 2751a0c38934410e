"""Indices that levelog keeps by itself for what views read besides indices; their names begin with `@`."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog.canonical import canonical, digest
from levelog.errors import ObjectTooLarge
from levelog.fingerprints import class_fingerprint
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


class ObjectIndex(ImplicitIndex):
    """Index `@ClassName`: each object, as the class decodes it, under (namespace, name).

    An object that the class cannot decode has an entry that says why, so that those who look it up see that, and nobody
    else: the index never lacks an object.
    """

    def __init__(self, cls: type[ResourceBase]) -> None:
        super().__init__(cls.__name__, cls, lambda found: [(_named(cls, found.metadata), found)], code="unreadable")
        self.errors = "ignore"

    def entries(self, body: bytes) -> list[tuple[Any, Any]]:
        """The one entry of an object."""
        try:
            return super().entries(body)
        except (msgspec.ValidationError, ObjectTooLarge, ValueError, TypeError) as error:
            return [(_named(self.cls, _placed.decode(body).metadata), UnreadableObject(unreadable=str(error)))]

    def read(self, value: bytes) -> ResourceBase:
        """The object of an entry.

        Raises ValueError saying why for one that the class cannot decode.
        """
        try:
            found: ResourceBase = self.reader.read(value)
        except msgspec.ValidationError:
            raise ValueError(_unreadable.decode(value).unreadable) from None
        return found


class UnreadableObject(Struct, frozen=True):
    """What stands for an object that the class of its index cannot decode; no object has such a field at its top."""

    unreadable: str


class _Placed(Struct):
    class Metadata(Struct):
        name: str
        namespace: str = ""

    metadata: Metadata


_placed = msgspec.json.Decoder(_Placed)
_unreadable = msgspec.json.Decoder(UnreadableObject)


def _named(cls: type[ResourceBase], metadata: Any) -> tuple[str, str]:
    return object_key(cls, metadata.namespace, metadata.name)


def applied_place(view: str, parent: str) -> tuple[str, str]:
    """Index and canonical key under which what was applied for a parent of a children view is remembered."""
    operator, _, function = view.partition("/")
    return f"{operator}/{MARK}{APPLIED}{function}", canonical(parent).decode()


def call_entry(parent: str, name: str) -> str:
    """What stands for an object in the entry of a call: no object's name, so that no record of one touches it."""
    return f"{MARK}{parent}/{name}/"


def calls_of(parent: str) -> tuple[str, str]:
    """Between what the names of all entries of calls for a parent are, in byte order."""
    return f"{MARK}{parent}/", f"{MARK}{parent}0"  # 0 is what follows /


def object_key(cls: type[ResourceBase], namespace: str, name: str) -> tuple[str, str]:
    """Key of an object in an `ObjectIndex`."""
    key = cls.resource_type.key(namespace, name)
    return key.namespace, key.name


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
