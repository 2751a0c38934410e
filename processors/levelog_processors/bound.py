"""Views and indices under their names in the tables, and which levels each view is given or looks up."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from levelog.effects import EffectHandler
from levelog.handlers.children import ChildrenView
from levelog.handlers.indexers import IndexHandler, OnError
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler
from levelog.resources import ResourceBase, ResourceType
from levelog_base.errors import OperatorError
from levelog_base.wire.objects import DELETED
from levelog_store.rows import IndexKey, levels_place


class BoundIndex(Struct, frozen=True):
    """An index under its name in the tables, `operator/index`."""

    name: str
    handler: IndexHandler


class BoundView(Struct, frozen=True):
    """A view under its name in the tables, `operator/view`, with its reconcile function if it has one."""

    name: str
    operator: str
    handler: ViewHandler
    reconcile: ReconcileHandler | None
    indices: Mapping[str, str]
    """Name in the tables of each index, by the view's parameter."""
    objects: Mapping[type[ResourceBase], str]
    """Name in the tables of the index of each class in `reads=`."""
    effects: tuple[EffectHandler, ...]
    """What its reconcile function may call."""
    writes: Mapping[tuple[str, str], ResourceType]
    """Resources that the operator declares, by (apiVersion, kind)."""
    shelves: dict[str, list[str]] = {}
    """Where the levels are that it looks up, by the resource of their parents; filled once all operators are known."""

    @property
    def parents(self) -> str:
        """Resource of its parents in the tables."""
        resource = str(self.handler.resource.group_resource)
        if not self.handler.is_of_deleted:
            return resource
        return f"{resource}{DELETED}" if self.handler.resource.group else f"{resource}.{DELETED}"

    @property
    def reconcile_name(self) -> str:
        """Name of its reconcile function, `operator/function`; empty if it has none."""
        return f"{self.operator}/{self.reconcile.name}" if self.reconcile is not None else ""

    @property
    def guards(self) -> Mapping[str, OnError]:
        """Indices whose failures count for the view, by name, and what becomes of it then."""
        sources = sorted(self.handler.sources, key=lambda index: index.name)
        return {f"{self.operator}/{index.name}": index.errors for index in sources if index.errors != "ignore"}

    @property
    def reads(self) -> frozenset[str]:
        """Resources that have to be listed before the view may decide."""
        sources = {str(index.resource.group_resource) for index in self.handler.sources if index.has_objects}
        return frozenset({str(self.handler.resource.group_resource), *sources})

    @property
    def sources(self) -> frozenset[str]:
        """Names in the tables of all indices that the view may read."""
        return frozenset({*self.indices.values(), *self.objects.values()})


BoundT = TypeVar("BoundT", BoundIndex, BoundView)


def grouped(handlers: Iterable[BoundT], resource_of: Callable[[BoundT], str]) -> dict[str, list[BoundT]]:
    """Indices or views by resource."""
    found: dict[str, list[BoundT]] = {}
    for handler in handlers:
        found.setdefault(resource_of(handler), []).append(handler)
    return found


class BoundViews:
    """The views of all operators, by name, and which levels each may see."""

    def __init__(self, views: Mapping[str, BoundView]) -> None:
        """Raises OperatorError for levels that there cannot be, or that lead in a circle."""
        self.views: Final = views
        self._views_of = grouped(self.views.values(), lambda view: view.parents)
        for view in self.views.values():
            self._fill_shelves(view)
        self._lookups: Final = {name: self._found_on_shelves(view) for name, view in self.views.items()}
        """What `lookups_of` gives, which is asked for each wakeup."""
        self.readers: Final[dict[str, list[str]]] = {}
        """Views that are given levels, by the names of the views whose levels these are."""
        for view in self.views.values():
            for sibling in self.siblings_of(view):
                self.readers.setdefault(sibling.name, []).append(view.name)
        self.behind: Final[dict[str, frozenset[str]]] = {}
        """All views whose levels a view may see, directly or through others."""
        for name in self.views:
            self._see_behind(name, ())
        self.looked_up: Final = self._looked_up()
        """Shelves of each view whose levels others look up by their parents."""
        self.shelves: Final = sorted({shelf for shelves in self.looked_up.values() for shelf in shelves})
        """All of these."""

    def views_of(self, resource: str) -> list[BoundView]:
        """Views whose parents are objects of the resource."""
        return self._views_of.get(resource, [])

    def siblings_of(self, view: BoundView) -> list[BoundView]:
        """Views whose levels a view gets: those on the same resource, in its operator, that take no levels."""
        resource = view.handler.resource
        if names := view.handler.stands_on:
            return [self.views[f"{view.operator}/{name}"] for name in names]
        if not view.handler.reads_levels:
            return []
        views = (each for each in self.views.values() if not each.handler.is_of_deleted)
        mine = [each for each in views if each.operator == view.operator and each.handler.resource == resource]
        return [each for each in mine if not each.handler.reads_levels]

    def views_on(self, operator: str, resource: str) -> list[BoundView]:
        """Views whose levels count as an object's levels: those of the operator that take no levels."""
        mine = [each for each in self.views_of(resource) if each.operator == operator]
        return [each for each in mine if not each.handler.reads_levels]

    def children_of(self, view: BoundView) -> frozenset[str]:
        """Resources of children that a view makes, and that its operator has views of."""
        handler = view.handler
        kinds = handler.kinds if isinstance(handler, ChildrenView) else ()
        found = {str(kind.resource.group_resource) for kind in kinds}
        return frozenset(resource for resource in found if self.views_on(view.operator, resource))

    def levels_on(self, shelf: str, resource: str) -> list[BoundView]:
        """Views whose levels of a resource's objects are on a shelf."""
        if "/" not in shelf:
            return self.views_on(shelf, resource)
        return [each for each in self.views_of(resource) if each.name == shelf]

    def lookups_of(self, view: BoundView) -> list[BoundView]:
        """Views whose levels a view looks up: those in its `levels_of=`, and on children, and on theirs."""
        return self._lookups[view.name]

    def _found_on_shelves(self, view: BoundView) -> list[BoundView]:
        found = {
            each.name: each
            for resource, shelves in view.shelves.items()
            for shelf in shelves
            for each in self.levels_on(shelf, resource)
        }
        return list(found.values())

    def places_of(self, view: str, parent: str) -> list[IndexKey]:
        """Keys under which others look up a level."""
        return [levels_place(shelf, parent) for shelf in self.looked_up.get(view, ())]

    def _fill_shelves(self, view: BoundView) -> None:
        """Find the levels that a view looks up. Raises OperatorError for such as there cannot be."""
        if not view.handler.reads_levels:
            return
        left = [str(cls.resource_type.group_resource) for cls in view.handler.levels_of]
        for cls, resource in zip(view.handler.levels_of, left, strict=True):
            if not self.views_on(view.operator, resource):
                raise OperatorError(
                    f"view {view.handler.name}: levels_of= names {cls.__name__}, of which operator "
                    f"{view.operator!r} has no view but such as are given levels themselves: name these, operator/view"
                )
        left += [resource for each in self.siblings_of(view) for resource in self.children_of(each)]
        while left:
            resource = left.pop()
            if resource not in view.shelves:
                view.shelves[resource] = [view.operator]
                shown = self.views_on(view.operator, resource)
                left += [child for each in shown for child in self.children_of(each)]
        for name in view.handler.levels_by_name:
            named = self.views.get(name)
            if named is None or named.handler.is_of_deleted:
                operator = name.partition("/")[0]
                known = ", ".join(sorted(each for each in self.views if each.startswith(f"{operator}/")))
                raise OperatorError(
                    f"view {view.name}: levels_of= names {name!r}, "
                    + (f"operator {operator} has {known}" if known else f"but no operator {operator} is loaded with it")
                    + ": levels of other applications cannot be looked up"
                )
            view.shelves.setdefault(named.parents, []).append(name)

    def _see_behind(self, name: str, path: tuple[str, ...]) -> frozenset[str]:
        """Find what is behind a view that is seen through those of a path. Raises OperatorError for a circle."""
        if name in path:
            circle = " looks up ".join((*path[path.index(name) :], name))
            raise OperatorError(f"levels_of= leads in a circle, so that none would be decided on first: {circle}")
        if name not in self.behind:
            view = self.views[name]
            seen = [each.name for each in (*self.siblings_of(view), *self.lookups_of(view))]
            self.behind[name] = frozenset(seen).union(*(self._see_behind(each, (*path, name)) for each in seen))
        return self.behind[name]

    def _looked_up(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        places = {(s, resource) for view in self.views.values() for resource, of in view.shelves.items() for s in of}
        for shelf, resource in sorted(places):
            for each in self.levels_on(shelf, resource):
                found.setdefault(each.name, []).append(shelf)
        return found
