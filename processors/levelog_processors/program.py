"""The operators of one application, checked together and arranged for look-ups by fold and decisions.

It is made once, when the files are loaded, and calls no user's function.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from levelog.effects import EffectHandler
from levelog.handlers.children import refuse_shared
from levelog.handlers.forobjects import CalledHandler, RecordHandler
from levelog.handlers.purity import require_pure
from levelog.handlers.runs import DaemonHandler
from levelog.handlers.timers import TimerHandler
from levelog.operator import Operator
from levelog.resources import ResourceType, is_external
from levelog.sources import SourceHandler
from levelog_base.errors import OperatorError
from levelog_base.wire.canonical import digest
from levelog_processors.bound import BoundIndex, BoundView, BoundViews, grouped
from levelog_store.owners.handlers import Handler, Kind
from levelog_store.rows import IndexKey
from levelog_store.tables import RESERVED

MAX_BACKOFF: Final = timedelta(minutes=16)
"""Origin: docs/decisions/0011-levels-are-retried-by-backoff.md"""


class Program(BoundViews):
    """What the loaded operators define, by name and by the resource that feeds it; without any, objects are folded."""

    def __init__(self, operators: Iterable[Operator]) -> None:
        self.operators: Final = tuple(operators)
        self.indices: Final[dict[str, BoundIndex]] = {}
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
                    f"actuate cannot: {selector.instead}"
                )
            self._add(operator)
        super().__init__(_bound_views(self.operators))
        if self.operators and not self.views and not self.indices and not self.unrecorded:
            names = ", ".join(operator.name for operator in self.operators)
            raise OperatorError(
                f"operator {names}: defines no index, no view and no handler, so there is nothing to run"
            )
        ends = [view for view in self.views.values() if view.handler.is_of_deleted]
        self.writers: Final = {name: view.reconcile for name, view in self.views.items() if view.reconcile is not None}
        """The reconcile functions, by view."""
        self._indices_of = grouped(self.indices.values(), lambda index: str(index.handler.resource.group_resource))
        self._views_of_deleted = grouped(ends, lambda view: str(view.handler.resource.group_resource))
        self.kept: Final = frozenset({*self._views_of_deleted, *(self.views[name].parents for name in self.looked_up)})
        """Resources whose objects stay in memory whole, since a fold or a view may ask for any of them."""
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
        _hide_conditions(operator)

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

    def views_of_deleted(self, resource: str) -> list[BoundView]:
        """Views whose parents are what stands for deleted objects of the resource."""
        return self._views_of_deleted.get(resource, [])


def _bound_views(operators: Iterable[Operator]) -> dict[str, BoundView]:
    """All views, by name. Raises OperatorError for two that keep the same children."""
    found: dict[str, BoundView] = {}
    for operator in operators:
        writes, effects = operator.resources(), tuple(operator.effects.values())
        for view_name, view in operator.views.items():
            name = f"{operator.name}/{view_name}"
            refuse_shared(view, (bound.handler for bound in found.values() if bound.operator != operator.name))
            indices = {parameter.name: f"{operator.name}/{parameter.index.name}" for parameter in view.indices}
            objects = {cls: f"{operator.name}/{index.name}" for cls, index in view.objects.items()}
            reconcile = operator.reconcilers.get(view_name)
            found[name] = BoundView(name, operator.name, view, reconcile, indices, objects, effects, writes)
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
