"""The operators of one application, arranged for look-ups by fold and decisions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from levelog.effects import EffectHandler
from levelog.handlers.children import ChildrenView, refuse_shared
from levelog.handlers.forobjects import CalledHandler, RecordHandler
from levelog.handlers.indexers import IndexHandler, OnError
from levelog.handlers.purity import require_pure
from levelog.handlers.runs import DaemonHandler
from levelog.handlers.sources import SourceHandler
from levelog.handlers.timers import TimerHandler
from levelog.handlers.views import ReconcileHandler, ViewHandler
from levelog.operator import Operator
from levelog.resources import ResourceBase, ResourceType, is_external
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest
from levelog_base.wire.objects import DELETED
from levelog_processors.decide.settling import MAX_BACKOFF
from levelog_store.owners.handlers import Handler, Kind
from levelog_store.rows import IndexKey, levels_place
from levelog_store.tables import RESERVED


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


class Program:
    """What the loaded operators define, by name and by the resource that feeds it; without any, objects are folded."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        self.operators: Final = tuple(operators)
        self.indices: Final[dict[str, BoundIndex]] = {}
        self.views: Final[dict[str, BoundView]] = {}
        self.effects: Final[dict[str, EffectHandler]] = {}
        """By name, `operator/effect`."""
        self.resources: Final[dict[str, ResourceType]] = {}
        """What has to be watched at the API, by `resource.group`."""
        self.sources: Final[dict[str, SourceHandler]] = {}
        """What gives the external records, by `resource.external`."""
        self.record_handlers: Final[dict[str, RecordHandler]] = {}
        """By name, `operator/function`."""
        self.timers: Final[dict[str, TimerHandler]] = {}
        """The same of timers whose calls leave no records."""
        for operator in self.operators:
            for selector in operator.open_selectors:
                raise OperatorError(
                    f"{selector.shown}, and nobody has asked a cluster which kinds those are: `levelog run` does at "
                    "its start, and keeps them in its data directory for commands that have none; ingest, process and "
                    "actuate cannot: name the resources in a loop: docs/from-kopf.md#everything-and-categories"
                )
            self._add(operator)
        if self.operators and not self.views and not self.indices and not self.unrecorded:
            names = ", ".join(operator.name for operator in self.operators)
            raise OperatorError(
                f"operator {names}: defines no index, no view and no handler, so there is nothing to run"
            )
        ends = [view for view in self.views.values() if view.handler.is_of_deleted]
        self.writers: Final = {name: view.reconcile for name, view in self.views.items() if view.reconcile is not None}
        """The reconcile functions, by view."""
        self._views_of = _grouped(self.views.values(), lambda view: view.parents)
        for view in self.views.values():
            self._fill_shelves(view)
        self._lookups: Final = {name: self._found_on_shelves(view) for name, view in self.views.items()}
        """What `lookups_of` gives, which is asked for each wakeup."""
        self._indices_of = _grouped(self.indices.values(), lambda index: str(index.handler.resource.group_resource))
        self._views_of_deleted = _grouped(ends, lambda view: str(view.handler.resource.group_resource))
        self.handled_deletions: Final = frozenset(index for view in ends for index in view.indices.values())
        """Effects that are called for deleted objects too, which have to know what they did before."""
        self.handlers: Final = tuple(sorted(self._handlers()))
        """What is compared with the code that was promoted before, sorted by kind and name."""
        self.fingerprint: Final = digest(*(f"{h.kind} {h.name}={h.fingerprint}" for h in self.handlers))
        self._require_sources()
        self.watched: Final = frozenset({*self.resources, *self.sources})
        """Everything that the log shows, by `resource.group`."""
        self.expires: Final = any(index.handler.expires is not None for index in self.indices.values())
        """Some index has entries that expire."""
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
        self.kept: Final = frozenset({*self._views_of_deleted, *(self.views[name].parents for name in self.looked_up)})
        """Resources whose objects stay in memory whole, since a fold or a view may ask for any of them."""
        self.awaited: Final = frozenset(
            view.name
            for view in self.views.values()
            if any(daemon.may_ask_for(view.handler) for daemon in _daemons(view.effects))
        )
        """Views for whose levels daemons may wait."""
        self.followed: Final = frozenset(self._followed())
        """Indices that daemons, effects and hooks read live."""
        self.max_backoff = MAX_BACKOFF
        """Between two rounds of a level that stays as it is."""

    def _add(self, operator: Operator) -> None:
        if any(other is not operator and other.name == operator.name for other in self.operators):
            raise OperatorError(f"two operators are named {operator.name!r}; names are unique in an application")
        for name, source in operator.sources.items():
            other = self.sources.setdefault(name, source)
            if other is not source:
                raise OperatorError(
                    f"{name} has two sources, {other.operator}/{other.name} and {source.operator}/{source.name}; "
                    "records of one kind come from one source: give one of the classes another plural"
                )
        for resource in operator.reads():
            if is_external(resource.group_resource):
                continue
            name = str(resource.group_resource)
            held = self.resources.setdefault(name, resource)
            if held.version != resource.version:
                raise OperatorError(
                    f"operator {operator.name!r} reads {name} in version {resource.version}, another handler in "
                    f"{held.version}; one version is recorded: choose one"
                )
        for index_name, index in operator.indices.items():
            name = f"{operator.name}/{index_name}"
            self.indices[name] = BoundIndex(name, index)
        for name in (*operator.indices, *operator.views):
            if name in RESERVED:
                raise OperatorError(
                    f"operator {operator.name!r}: an index or view named {name!r} would hide levelog's own table of "
                    "that name: rename the function"
                )
        operator.calls.require_whole()
        self.record_handlers.update((each.source, each) for each in operator.record_handlers.values())
        self.timers.update((each.source, each) for each in operator.timers.values())
        self.effects.update((f"{operator.name}/{name}", effect) for name, effect in operator.effects.items())
        _require_pure(operator)
        writes = operator.resources()
        _hide_conditions(operator)
        for view_name, view in operator.views.items():
            name = f"{operator.name}/{view_name}"
            refuse_shared(view, (bound.handler for bound in self.views.values() if bound.operator != operator.name))
            indices = {parameter.name: f"{operator.name}/{parameter.index.name}" for parameter in view.indices}
            objects = {cls: f"{operator.name}/{index.name}" for cls, index in view.objects.items()}
            reconcile = operator.reconcilers.get(view_name)
            self.views[name] = BoundView(
                name, operator.name, view, reconcile, indices, objects, tuple(operator.effects.values()), writes
            )

    def _require_sources(self) -> None:
        """Refuse to read external records that nothing gives: the views would wait for ever."""
        for operator in self.operators:
            for resource in operator.reads():
                name = str(resource.group_resource)
                if is_external(resource.group_resource) and name not in self.sources:
                    raise OperatorError(
                        f"operator {operator.name!r} reads {resource.kind}, which no source gives: "
                        f"write one, @op.source({resource.kind}, every=timedelta(seconds=30))"
                    )

    def _handlers(self) -> Iterator[Handler]:
        for name, index in self.indices.items():
            resource = str(index.handler.resource.group_resource)
            yield Handler(kind="index", name=name, fingerprint=index.handler.fingerprint, resource=resource)
        for name, effect in self.effects.items():
            resource = str(effect.index.resource.group_resource)
            yield Handler(kind="effect", name=name, fingerprint=effect.fingerprint, resource=resource)
        for name, view in self.views.items():
            resource = view.parents
            reads = tuple(sorted(view.sources))
            given = [f"{each.name} {each.reconcile_name}" for each in (*self.siblings_of(view), *self.lookups_of(view))]
            code = digest(view.handler.fingerprint, *given) if given else view.handler.fingerprint
            yield Handler(kind="view", name=name, fingerprint=code, resource=resource, reads=reads)
            if view.reconcile:
                yield Handler(kind="reconcile", name=name, fingerprint=view.reconcile.fingerprint, resource=resource)
        for name, handler in self.unrecorded.items():
            resource = str(handler.reader.resource.group_resource)
            kind: Kind = "timer" if name in self.timers else "event"
            yield Handler(kind=kind, name=name, fingerprint=handler.fingerprint, resource=resource)

    @property
    def unrecorded(self) -> dict[str, CalledHandler]:
        """All handlers whose calls leave no records, by name."""
        return {**self.record_handlers, **self.timers}

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

    def _followed(self) -> Iterator[str]:
        for operator in self.operators:
            for daemon in _daemons(operator.effects.values()):
                yield from (f"{operator.name}/{name}" for name in (daemon.wanted_name, *daemon.indices))
            for effect in operator.effects.values():
                yield from (f"{operator.name}/{name}" for name in effect.snapshots)
            for hook in operator.on.registered:
                yield from (f"{operator.name}/{name}" for name in hook.indices)

    def follows(self, keys: Iterable[IndexKey]) -> bool:
        """Tell whether a daemon, an effect or a hook reads one of these keys live."""
        return not self.followed.isdisjoint(index for index, _ in keys)

    def reads_elsewhere(self, view: BoundView) -> bool:
        """Tell whether a view may read anything that is not in its parent's partition."""
        return bool(view.sources or self.lookups_of(view))

    def indices_of(self, resource: str) -> list[BoundIndex]:
        """Indices that a resource's objects have entries in."""
        return self._indices_of.get(resource, [])

    def views_of(self, resource: str) -> list[BoundView]:
        """Views whose parents are objects of the resource."""
        return self._views_of.get(resource, [])

    def views_of_deleted(self, resource: str) -> list[BoundView]:
        """Views whose parents are what stands for deleted objects of the resource."""
        return self._views_of_deleted.get(resource, [])


def _grouped(handlers: Iterable[BoundT], resource_of: Callable[[BoundT], str]) -> dict[str, list[BoundT]]:
    found: dict[str, list[BoundT]] = {}
    for handler in handlers:
        found.setdefault(resource_of(handler), []).append(handler)
    return found


def _daemons(effects: Iterable[EffectHandler]) -> Iterator[DaemonHandler]:
    return (effect.daemon for effect in effects if effect.daemon is not None)


def _hide_conditions(operator: Operator) -> None:
    """Have functions see no conditions that sum up what they do.

    Views of plain objects see all, since they are woken by what they look at alone.
    """
    readers = [view.reader for view in operator.views.values() if not view.reader.is_plain]
    readers += [each.reader for each in operator.reconcilers.values() if not each.reader.is_plain]
    readers += [daemon.reader for daemon in _daemons(operator.effects.values())]
    for reader in readers:
        reader.hides_conditions = reader.cls in operator.with_conditions


def _require_pure(operator: Operator) -> None:
    """Refuse functions that read a clock: checked now, since they may call what is defined below them."""
    for index in operator.indices.values():
        if not index.is_implicit:
            require_pure("index", index.function)
    for view in operator.views.values():
        require_pure("view", view.function)
