"""What views look up, and what of it counts when a level is compared."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from levelog.children import ChildrenView
from levelog.errors import OperatorError
from levelog.implicit import ObjectIndex, object_key
from levelog.lookups import Objects
from levelog.resources import ResourceBase
from levelog_processors.fold.entries import canonical_key
from levelog_processors.program import BoundView
from levelog_store.rows import IndexKey

R = TypeVar("R", bound=ResourceBase)


class _Placed(Struct):
    class Metadata(Struct):
        namespace: str = ""

    metadata: Metadata


_placed = msgspec.json.Decoder(_Placed)


class ObjectLookups(Objects):
    """Objects as one evaluation sees them; `bucket` gives what is under a key of an index, and records that.

    `namespaces` are those that alone are watched, by resource: in others nobody knows what there is.
    """

    def __init__(
        self,
        view: BoundView,
        parent: bytes,
        bucket: Callable[[str, str], tuple[bytes, ...]],
        namespaces: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._view = view
        self._parent = parent
        self._bucket = bucket
        self._namespaces = namespaces

    def get(self, resource: type[R], name: str, namespace: str | None = None) -> R | None:
        """Look an object up; see `Objects.get`."""
        index = self._view.objects.get(resource)
        view = self._view.handler.name
        if index is None:
            declared = ", ".join([*(cls.__name__ for cls in self._view.objects), resource.__name__])
            raise OperatorError(
                f"view {view} looks up {resource.__name__} {name!r} without declaring that it reads "
                f"{resource.__name__}: write @op.view(reads=[{declared}])"
            )
        place = _placed.decode(self._parent).metadata.namespace if namespace is None else namespace
        if not place and resource.resource_type.scope == "Namespaced":
            raise OperatorError(
                f"view {view} looks up {resource.__name__} {name!r} without a namespace, and its parent has none: "
                f"write objects.get({resource.__name__}, {name!r}, namespace=…)"
            )
        watched = self._namespaces.get(str(resource.resource_type.group_resource), ())
        if watched and resource.resource_type.scope == "Namespaced" and place not in watched:
            raise OperatorError(
                f"view {view} looks up {resource.__name__} {name!r} in namespace {place}, but levelog watches "
                f"{', '.join(watched)} alone and cannot tell what is there"
            )
        found = self._bucket(index, canonical_key(object_key(resource, place, name)))
        if not found:
            return None
        source = cast("ObjectIndex", self._view.handler.objects[resource])
        try:
            return cast("R", source.read(found[0]))
        except ValueError as error:
            shown = resource.resource_type.key(place, name)
            raise ValueError(f"{shown} cannot be read as {resource.__name__}: {error}") from error


Contents: TypeAlias = Mapping[IndexKey, Sequence[bytes]]

Sight: TypeAlias = Callable[[Contents], tuple[Contents, bytes]]
"""From what was read to what of it counts: contents that count as they are, and the sum of the others."""


def sight(view: BoundView, parent_uid: str, desired: bytes | None) -> Sight | None:
    """How a level with this desired value sees what it reads; None: as it is.

    A level of children does not see fields that no manifest sets, so that they wake nothing.
    """
    if not isinstance(view.handler, ChildrenView):
        return None
    return partial(view.handler.sight, desired or b"", parent_uid)
