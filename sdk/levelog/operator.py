"""The Operator: where a user's functions are registered. Decorators return the function unchanged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, overload

from levelog.conditions import conditions_writer, inspect_conditions
from levelog.effects import EFFECT_TIME, EffectHandler
from levelog.errors import OperatorError
from levelog.handlers.children import ChildrenView, inspect_children, reconciler_of, refuse_shared
from levelog.handlers.edgehandlers import EdgeOptions
from levelog.handlers.edgeregistry import EdgeRegistry
from levelog.handlers.indexers import ImplicitIndex, IndexHandler, ObjectIndex, OnError, require_resources
from levelog.handlers.injection import Lender
from levelog.handlers.listeners import RecordHandler
from levelog.handlers.on import HandlerF, On
from levelog.handlers.readers import function_or_class, require_resource
from levelog.handlers.runs import (
    GRACE,
    DaemonHandler,
    daemon_effect,
    daemon_view,
    daemon_writer,
    wanted_index,
)
from levelog.handlers.signatures import ChildrenF, EffectF, IndexF, ReconcileF, ViewF, needs, one_place
from levelog.handlers.sources import SOURCE_TIME, PolledF, SourceHandler, WatchingF
from levelog.handlers.timers import TimerHandler, timer_effect, timer_view, timer_writer
from levelog.handlers.views import RECONCILE_TIME, VIEW_TIME, ReconcileHandler, ViewHandler, Writes
from levelog.levels import Level
from levelog.resources import External, ResourceBase, ResourceType, is_external
from levelog.selectors import Selector, Value, taken_from


class Operator:
    """A named set of indices, views and reconcile functions.

    Names are unique in an operator, and indices and views share one name space with the SQL views made of them.
    `settings` are given to every function that has a parameter annotated with their class. They are read when the
    operator is made, and count as part of the code: other values are another version of the functions that take them.
    """

    def __init__(self, name: str, *, settings: object | None = None) -> None:
        self.name = name
        self.settings = settings
        self._lender = Lender(name, settings)
        self.indices: dict[str, IndexHandler] = {}
        """By name; those that levelog keeps by itself begin with `@`."""
        self.views: dict[str, ViewHandler] = {}
        self.reconcilers: dict[str, ReconcileHandler] = {}
        """By the name of the view."""
        self.with_conditions: set[type[ResourceBase]] = set()
        """Classes whose objects have conditions that sum up their levels."""
        self.effects: dict[str, EffectHandler] = {}
        """By name; each has an index of that name too."""
        self.sources: dict[str, SourceHandler] = {}
        """By the resource of their records, `branches.external`."""
        self.edges = EdgeRegistry(
            name,
            self._lender,
            self._claim,
            indices=self.indices,
            effects=self.effects,
            views=self.views,
            reconcilers=self.reconcilers,
        )
        self.record_handlers: dict[str, RecordHandler] = {}
        """By name: what is called for each record."""
        self.on = On(self._lender, self.indices, self.edges.register, self._register_records)
        """Edge handlers, `@op.on.create` and the like, and the hooks `@op.on.startup` and `@op.on.cleanup`."""
        self._views_by_function: dict[Callable[..., Any], ViewHandler] = {}

    @overload
    def index(self, function: IndexF) -> IndexF: ...

    @overload
    def index(
        self,
        *,
        of: type[ResourceBase] | None = None,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        errors: OnError = "block",
        expires: timedelta | None = None,
    ) -> Callable[[IndexF], IndexF]: ...

    def index(
        self,
        function: IndexF | None = None,
        *,
        of: type[ResourceBase] | None = None,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        errors: OnError = "block",
        expires: timedelta | None = None,
    ) -> IndexF | Callable[[IndexF], IndexF]:
        """Register `(object) -> yields (key, value)`, or one that returns a mapping.

        Keys are JSON scalars or tuples of them. Objects that the filters leave out have no entries; `when` is asked
        with the object as the function takes it. With `of=Pod` the function takes pods as plain `Mapping[str, Any]`.

        An object for which the function raises keeps the entries that it had. If it had none, the views that read the
        index are blocked, as they would take it for absent; with `errors="ignore"` they go on without it.

        With `expires` the entries of an object go once it has not changed for that long, by the time of what the log
        records; its next change brings them back.
        """

        def register(function: IndexF) -> IndexF:
            selector = Selector(labels=dict(labels or {}), annotations=dict(annotations or {}), when=when)
            handler = IndexHandler.inspect(function, selector, self._lender, errors=errors, expires=expires, of=of)
            self._claim(handler.name, function)
            self.indices[handler.name] = handler
            return function

        return register if function is None else register(function)

    @overload
    def view(self, function: ViewF) -> ViewF: ...

    @overload
    def view(
        self,
        *,
        of: type[ResourceBase] | None = None,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        deleting: bool = False,
        timeout: timedelta = VIEW_TIME,
        reads: Iterable[type[ResourceBase]] = (),
        levels_of: Iterable[type[ResourceBase]] = (),
    ) -> Callable[[ViewF], ViewF]: ...

    def view(
        self,
        function: ViewF | None = None,
        *,
        of: type[ResourceBase] | None = None,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        deleting: bool = False,
        timeout: timedelta = VIEW_TIME,
        reads: Iterable[type[ResourceBase]] = (),
        levels_of: Iterable[type[ResourceBase]] = (),
    ) -> ViewF | Callable[[ViewF], ViewF]:
        """Register a pure function of one parent and of the indices and objects it names; it returns a Level.

        `deleting=True` also evaluates parents that have a deletionTimestamp. Indices are defined before the views
        that read them. `reads` are the Resource classes that the view looks up through a parameter `objects: Objects`;
        their resources are watched. With `of=Web` the function takes Webs as plain `Mapping[str, Any]`, and wakes for
        changes at the places that it looked at. A parent that the filters leave out has no level; `when` is asked with
        the parent, decoded or plain. A view that computes for longer than `timeout` is ended, and its level fails.
        With a parameter `levels: Levels` it is given how the other levels of its parent stand; `levels_of` are the
        classes of other parents whose levels it looks up by `levels.of(Web, name)`.
        """

        def register(function: ViewF) -> ViewF:
            selector = Selector(labels=dict(labels or {}), annotations=dict(annotations or {}), when=when)
            objects = {cls: ObjectIndex(cls) for cls in require_resources(function.__name__, reads)}
            looked_up = require_resources(function.__name__, levels_of, option="levels_of")
            handler = ViewHandler.inspect(
                function,
                self.indices,
                selector,
                self._lender,
                deleting=deleting,
                objects=objects,
                levels_of=looked_up,
                of=of,
                timeout=timeout,
            )
            self._claim(handler.name, function)
            for index in objects.values():
                self._keep(index)
            self.views[handler.name] = handler
            self._views_by_function[function] = handler
            return function

        return register if function is None else register(function)

    def conditions(self, cls: type[ResourceBase], *, name: str = "conditions", events: bool = True) -> None:
        """Keep `Ready`, `Reconciling` and `Stalled` in `status.conditions` of each object of a class.

        They sum up its levels whose views have reconcile functions: in sync, under way, failed. The definition of the
        class needs the field and the status subresource; conditions of other types stay as they are. A status is
        written when one of them changes, and not while a level settles for less than a second. `name` is that of the
        view that is made. A level that fails, with another error than before, leaves a Kubernetes Event on the object
        (`Failed`, a warning), unless `events=False`. Functions of this operator are given the objects without these
        conditions, which would wake them; indices have them, and so has who takes plain objects.
        """

        def inspect_view(view: Callable[..., Any]) -> ViewHandler:
            return ViewHandler.inspect(view, self.indices, Selector(), self._lender, deleting=False, objects={}, of=cls)

        handler = inspect_conditions(cls, name, self.reconcilers, inspect_view)
        self._claim(name, self.conditions)
        self.with_conditions.add(cls)
        self.views[name] = handler
        self.reconcilers[name] = conditions_writer(cls, self.reconcilers, handler, self._lender, events=events)

    def reconcile(
        self,
        view: Callable[..., Level[Any]],
        *,
        writes: Writes | None = None,
        timeout: timedelta = RECONCILE_TIME,
    ) -> Callable[[ReconcileF], ReconcileF]:
        """Register the function that yields intents for a view; called once per round while the level drifts.

        An async function, or async generator, runs in the event loop and is cancelled after `timeout`; a plain one runs
        in a thread beside others, which cannot be ended: after `timeout` the level fails, and the function is not
        called for that object again before the thread has returned. `writes={Pod: ["apply", "delete"]}` says which
        intents it yields, by the class of what they write; any other is refused then, and fails the level. `levelog
        rbac` makes roles of it, and kinds that no handler of the operator reads become known by it.
        """
        if not callable(view):  # pyright: ignore[reportUnnecessaryComparison]
            raise OperatorError(f"reconcile takes the function of a view, not {view!r}: @op.reconcile({view})")
        handler = self._views_by_function.get(view)
        if handler is None:
            called = getattr(view, "__name__", repr(view))
            raise OperatorError(
                f"{called} is not a view of the operator {self.name!r}: decorate it with @op.view first"
            )

        name = handler.name

        def register(function: ReconcileF) -> ReconcileF:
            if name in self.reconcilers:
                raise OperatorError(
                    f"{function.__name__}: the view {name!r} is reconciled by {self.reconcilers[name].name!r} already"
                )
            made = ReconcileHandler.inspect(function, handler, writes, self._lender, timeout=timeout)
            self._claim(made.name, function)
            self.reconcilers[name] = made
            return function

        return register

    @overload
    def effect(self, function: EffectF) -> EffectF: ...

    @overload
    def effect(
        self, *, timeout: timedelta = EFFECT_TIME, max_concurrency: int | None = None
    ) -> Callable[[EffectF], EffectF]: ...

    def effect(
        self, function: EffectF | None = None, *, timeout: timedelta = EFFECT_TIME, max_concurrency: int | None = None
    ) -> EffectF | Callable[[EffectF], EffectF]:
        """Register what is done outside the cluster: `(request) -> result`, both of any type that has a JSON form.

        A reconcile function asks for it by `call(function, request)`. The actuator calls it at least once, each time
        with the same `idempotency_key: str`, if it takes one; it may take a logger and the settings too. A plain
        function runs in a thread, an async one in the event loop, where it is cancelled after `timeout`. One that
        raises is called again until it does not; `Retry` says that nothing was done, and `GiveUp` that it is no use. At
        most `max_concurrency` calls run at a time in one process; None: as many as the process has room for.

        The calls that took place are an index of the effect's name: `page: Index[str, Call[Page, Ticket]]`, by the uid
        of the parent, is what a view reads.
        """

        def register(function: EffectF) -> EffectF:
            handler = EffectHandler.inspect(function, self._lender, timeout=timeout, max_concurrency=max_concurrency)
            self._claim(handler.name, function)
            self.effects[handler.name] = handler
            self.indices[handler.name] = handler.index
            return function

        return register if function is None else register(function)

    def children(
        self,
        parent: type[ResourceBase],
        *,
        of: type[ResourceBase] | Sequence[type[ResourceBase]],
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        reads: Iterable[type[ResourceBase]] = (),
        timeout: timedelta = VIEW_TIME,
        force: bool = True,
    ) -> Callable[[ChildrenF], ChildrenF]:
        """Register a pure function of a parent, and of what a view may take, that returns manifests of its children.

        One manifest, several (also yielded), or None. levelog makes a view of the function's name, and writes: a child
        that is missing or differs in a field that its manifest sets is applied, kind by kind in the order of `of`; one
        that is not returned any more is deleted, once all others are as wanted, the last kind first. The parent's
        children of these kinds are this function's alone. With `force=False` a field that another manager has taken is
        a conflict, with its name, and not taken back. Filters, `reads` and `timeout` are those of views; a parent
        that the filters leave out keeps its children as they are.
        """

        def register(function: ChildrenF) -> ChildrenF:
            selector = Selector(labels=dict(labels or {}), annotations=dict(annotations or {}), when=when)
            objects = {cls: ObjectIndex(cls) for cls in require_resources(function.__name__, reads)}

            def inspect_view(view: Callable[..., Any]) -> ChildrenView:
                return ChildrenView.inspect(
                    view, self.indices, selector, self._lender, deleting=False, objects=objects, timeout=timeout
                )

            handler = inspect_children(function, parent, of, inspect_view, force=force)
            refuse_shared(handler, self.views.values())
            self._claim(handler.name, function)
            for index in objects.values():
                self._keep(index)
            for own in handler.own_indices():
                self.indices.setdefault(own.name, own)
            self.views[handler.name] = handler
            self.reconcilers[handler.name] = reconciler_of(handler, self._lender)
            self._views_by_function[function] = handler
            return function

        return register

    @overload
    def source(
        self, record: type[External], *, every: timedelta, timeout: timedelta = SOURCE_TIME
    ) -> Callable[[PolledF], PolledF]: ...

    @overload
    def source(
        self, record: type[External], *, timeout: timedelta | None = None
    ) -> Callable[[WatchingF], WatchingF]: ...

    def source(
        self, record: type[External], *, every: timedelta | None = None, timeout: timedelta | None = None
    ) -> Callable[[Any], Any]:
        """Register the function that tells which records of a class there are in an external system.

        It runs in ingest, in one process at a time, and may take `logger` and `settings`. With `every` it gives the
        whole set at each call: returned or yielded, by a plain function, which runs in a thread, or an async one. A
        record that is missing then is gone. Without `every` it is an async generator that waits for changes by itself:
        it yields whole sets, a list first, or single changes, a record or `Branch.gone("main")`.

        Only what differs is recorded. While it raises, or takes longer than `timeout`, the records stay as they are,
        indices of them are stale, and it is called again with backoff.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            handler = SourceHandler.inspect(function, record, self._lender, every=every, timeout=timeout)
            self._claim(handler.name, function)
            resource = str(handler.resource.group_resource)
            if resource in self.sources:
                raise OperatorError(
                    f"source {handler.name}: the records of {record.__name__} are given by "
                    f"{self.sources[resource].name!r} already; a class has one source"
                )
            self.sources[resource] = handler
            return function

        return register

    @needs("every", "timedelta(hours=1)")
    def timer(
        self,
        of: type[ResourceBase] | None = None,
        *,
        every: timedelta,
        initial_delay: timedelta = timedelta(0),
        idle: timedelta | None = None,
        sharp: bool = False,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
    ) -> Callable[[HandlerF], HandlerF]:
        """Call a function for each object, `initial_delay` after its creation, then `every` so often after each call.

        When it was called is kept in the log and in SQL: a restart does not begin anew, and what was missed is called
        once. With `sharp`, calls are due at whole multiples of `every` after the first one. With `idle`, a call waits
        until nothing that the function reads of the object has changed for so long. The function is one as
        `op.on.create` takes, but yields nothing, and so are the other options; while an object is being deleted, it is
        not called.
        """

        def register(function: HandlerF) -> HandlerF:
            selector = Selector(labels=dict(labels or {}), annotations=dict(annotations or {}), when=when)
            options = EdgeOptions(
                of=of,
                selector=selector,
                timeout=timeout,
                retries=retries,
                backoff=backoff,
                give_up_after=give_up_after,
                max_concurrency=max_concurrency,
            )
            handler = TimerHandler(function, every, initial_delay, idle, options, self._lender, sharp=sharp)
            self._claim(handler.name, function)
            self._claim(handler.calls_name, function)
            effect = timer_effect(handler, self._lender)
            self.effects[effect.name] = effect
            self.indices[effect.name] = effect.index

            def inspect_view(view: Callable[..., Any]) -> ViewHandler:
                return ViewHandler.inspect(
                    view, self.indices, selector, self._lender, deleting=False, objects={}, of=of
                )

            view = timer_view(handler, inspect_view)
            self.views[view.name] = view
            self.reconcilers[view.name] = timer_writer(handler, view, effect, self._lender)
            return function

        return register

    @overload
    def daemon(
        self,
        of: type[ResourceBase] | None = None,
        *,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        grace: timedelta = GRACE,
        retries: int | None = None,
        backoff: timedelta | None = None,
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def daemon(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("daemon", "@op.daemon(Web)")
    def daemon(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Run an async function for each object: in one process at a time, until it returns or the object is gone.

        It takes the object, and by name `daemon: Daemon[Web, State]`, live indices, and what `op.on.create` gives. It
        has to end when its object is being deleted or does not fit the filters any more, and when the process ends: it
        is told through the Daemon, and cancelled after `grace`. A run that the process cut short goes on elsewhere,
        with the state that it kept. What it raises is tried again; `retries`, `backoff`, Retry and GiveUp are as there.
        """
        function, said = function_or_class("daemon", of, options)

        def register(function: HandlerF) -> HandlerF:
            selector, rest = taken_from(said)
            grace = rest.pop("grace", GRACE)
            if unknown := rest.keys() - {"of", "retries", "backoff"}:
                raise OperatorError(f"daemon {function.__name__}: takes no option {min(unknown)!r}")
            known = EdgeOptions(selector=selector, **rest)
            handler = DaemonHandler(function, grace, known, self._lender, self.indices, self._views_by_function)
            self._claim(handler.name, function)
            self._claim(handler.runs_name, function)
            effect, wanted = daemon_effect(handler, self._lender), wanted_index(handler)
            self.effects[effect.name] = effect
            self.indices |= {effect.name: effect.index, wanted.name: wanted}
            known_indices = {**self.indices, "wanted": wanted}

            def inspect_view(view: Callable[..., Any]) -> ViewHandler:
                return ViewHandler.inspect(
                    view, known_indices, known.selector, self._lender, deleting=False, objects={}, of=known.of
                )

            view = daemon_view(handler, inspect_view)
            self.views[view.name] = view
            self.reconcilers[view.name] = daemon_writer(handler, view, effect, self._lender)
            return function

        return register if function is None else register(function)

    def remove_finalizer(self, cls: type[ResourceBase]) -> None:
        """Take this operator's finalizer off all objects of a class, whose handlers that wanted it were removed.

        Needed where no edge handler of the class is left, which would do it too. Keep it as long as `levelog
        levels` lists objects under the view that it makes, `webs_finalizer` for Webs.
        """
        require_resource("op.remove_finalizer: ", cls)
        if is_external(cls.resource_type.group_resource):
            raise OperatorError(
                f"op.remove_finalizer: {cls.__name__} is external: no object of the Kubernetes API has a finalizer"
            )
        self.edges.remove_finalizer(cls, self.remove_finalizer)

    def _register_records(self, handler: RecordHandler) -> None:
        self._claim(handler.name, handler.function)
        self.record_handlers[handler.name] = handler

    def _keep(self, index: ImplicitIndex) -> None:
        """Hold an implicit index; the same one may be asked for by several handlers.

        Raises OperatorError if another class of that name has it.
        """
        held = self.indices.setdefault(index.name, index)
        if isinstance(held, ImplicitIndex) and held.cls is not index.cls:
            raise OperatorError(
                f"operator {self.name!r} reads objects of two classes named {index.cls.__name__}, of "
                f"{held.resource.group_resource} and of {index.resource.group_resource}: rename one"
            )

    def resources(self) -> dict[tuple[str, str], ResourceType]:
        """All resources of the Kubernetes API that the operator reads or writes, by (apiVersion, kind).

        Raises OperatorError if one resource is declared in two versions.
        """
        found: dict[tuple[str, str], ResourceType] = {}
        versions: dict[str, ResourceType] = {}
        written = (write.resource for handler in self.reconcilers.values() for write in handler.writes or ())
        for resource in (*self.reads(), *written):
            if is_external(resource.group_resource):
                continue
            found[resource.api_version, resource.kind] = resource
            other = versions.setdefault(str(resource.group_resource), resource)
            if other.version != resource.version:
                raise OperatorError(
                    f"operator {self.name!r} declares {resource.group_resource} in versions "
                    f"{other.version} and {resource.version}; one version is recorded: choose one"
                )
        return found

    def reads(self) -> list[ResourceType]:
        """What has to be watched, external records too: of indices, parents and `reads=`; each once, sorted."""
        reads = {h.resource for h in self.indices.values() if h.has_objects} | {h.resource for h in self.views.values()}
        reads |= {handler.reader.resource for handler in self.record_handlers.values()}
        return sorted(reads, key=lambda r: (r.group, r.plural, r.version))

    def _claim(self, name: str, function: Callable[..., Any]) -> None:
        """Refuse a second handler of one name; one function may reconcile several views."""
        kinds: dict[str, Mapping[str, object]] = {"index": self.indices, "view": self.views}
        held = [kind for kind, handlers in kinds.items() if name in handlers]
        if any(handler.name == name and handler.function is not function for handler in self.reconcilers.values()):
            held.append("reconcile function")
        if any(handler.name == name for handler in self.sources.values()):
            held.append("source")
        if name in self.record_handlers:
            held.append("event handler")
        if held:
            raise OperatorError(
                f"{function.__qualname__}: operator {self.name!r} has the {held[0]} {name!r} already; "
                "each handler needs a name of its own"
            )
