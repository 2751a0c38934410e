"""The Operator: where a user's functions are registered. Decorators return the function unchanged."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack, overload

from levelog.calls.limits import CallKeywords, CallLimits, LimitKeywords
from levelog.conditions import conditions_writer, inspect_conditions
from levelog.effects import EffectHandler
from levelog.handlers.callregistry import CallRegistry
from levelog.handlers.children import KEEP as KEPT
from levelog.handlers.children import ChildrenView, inspect_children, reconciler_of, refuse_shared
from levelog.handlers.finalizing import PREFIX
from levelog.handlers.forobjects import CalledHandler, CallOptions, RecordHandler, options_of, require_limits
from levelog.handlers.indexers import (
    MAX_ENTRIES,
    ImplicitIndex,
    IndexHandler,
    OnError,
)
from levelog.handlers.injection import Lender
from levelog.handlers.on import HandlerF, On
from levelog.handlers.readers import function_or_class, require_resource
from levelog.handlers.runs import GRACE, DaemonHandler
from levelog.handlers.signatures import (
    ChildrenF,
    EffectF,
    IndexF,
    ReconcileF,
    ViewF,
    needs,
    one_place,
    require_flag,
    require_function,
)
from levelog.handlers.timers import TimerHandler
from levelog.handlers.viewhandlers import RECONCILE_TIME, VIEW_TIME, ReconcileHandler, ViewHandler, Writes
from levelog.levels import Level
from levelog.resources import External, Manifest, ResourceBase, ResourceType, is_external
from levelog.selectors import FilterKeywords, Selector, taken_from
from levelog.sources import SOURCE_TIME, PolledF, SourceHandler, WatchingF
from levelog_base.errors import OperatorError

if TYPE_CHECKING:
    import logging

    from levelog.handlers.adapters import Adapter, Trigger
    from levelog.kinds import OpenSelector

loaded_into: Final[ContextVar[dict[str, Any] | None]] = ContextVar("loaded_into", default=None)
"""The names of the operator file that is being loaded, for what makes the operator of a file by itself."""
MOST_OPERATOR_BYTES: Final = 120
"""What a field manager has room for beside `levelog-`. Origin: validation of apimachinery, 128 bytes."""
OPERATOR: Final = "__levelog_operator__"
"""Name that such an operator has there, and in modules of the file whose handlers are in it."""


class Operator:
    """A named set of indices, views, reconcile functions, handlers and effects.

    Names are unique in an operator; indices and views share a namespace with the SQL views made of them. Every function
    that has a parameter annotated with the class of `settings` gets them. They count as part of the code: a function
    with other settings is another version of it.

    `retries`, `backoff` and `give_up_after` apply to all handlers, timers and effects that do not set them. Daemons
    take the first two.

    With `configures_clients`, a process configures the client libraries `kubernetes` and `kubernetes_asyncio` for its
    cluster before it calls any function, if your files import them.
    """

    KEEP: ClassVar[Manifest] = KEPT
    """What a function of `op.children` returns to leave the children of a parent as they are."""

    def __init__(
        self,
        name: str,
        *,
        settings: object | None = None,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        configures_clients: bool = False,
    ) -> None:
        is_text = isinstance(name, str) and name.isprintable() and "/" not in name  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_text or not 0 < len(name.encode()) <= MOST_OPERATOR_BYTES:
            raise OperatorError(
                f"operator {name!r}: its name is a text of 1 to {MOST_OPERATOR_BYTES} bytes without /, since the API "
                "has it in the names of those who write"
            )
        limits = CallLimits(retries=retries, backoff=backoff, give_up_after=give_up_after)
        require_limits(f"operator {name!r}", limits)
        require_flag(f"operator {name!r}", "configures_clients", configures_clients)
        self.name = name
        self.settings = settings
        self.configures_clients = configures_clients
        self._lender = Lender(name, settings, limits)
        self._named: dict[str, tuple[str, Callable[..., Any]]] = {}
        """Kind and function of what has a name."""
        self.indices: dict[str, IndexHandler] = {}
        """Indices by name; those that levelog keeps by itself begin with `@`."""
        self.views: dict[str, ViewHandler] = {}
        self.reconcilers: dict[str, ReconcileHandler] = {}
        """Reconcile functions by the name of the view."""
        self.with_conditions: set[type[ResourceBase]] = set()
        """Classes whose objects have conditions that sum up their levels."""
        self._watched: set[str] = set()
        """Views without a reconcile function that count there."""
        self.effects: dict[str, EffectHandler] = {}
        """Effects by name; each has an index of that name too."""
        self.sources: dict[str, SourceHandler] = {}
        """Sources by the resource of their records, `branches.external`."""
        self.record_handlers: dict[str, RecordHandler] = {}
        """Handlers that are called for each record, by name."""
        self.timers: dict[str, TimerHandler] = {}
        """Timers whose calls leave no records, by name."""
        self.calls = CallRegistry(self, self._lender, self._claim)
        self.on = On(self._lender, self.indices, self.calls)
        """Edge handlers, `@op.on.create` and the like, and the hooks `@op.on.startup` and `@op.on.cleanup`."""
        self.open_selectors: list[OpenSelector] = []
        """Handlers of kinds that only a cluster can tell."""
        self._views_by_function: dict[Callable[..., Any], ViewHandler] = {}
        self._adapters: dict[str, Adapter] = {}

    @overload
    def index(self, function: IndexF) -> IndexF: ...

    @overload
    def index(
        self,
        *,
        of: type[ResourceBase] | None = None,
        errors: OnError = "hold",
        expires: timedelta | None = None,
        max_entries: int = MAX_ENTRIES,
        **filters: Unpack[FilterKeywords],
    ) -> Callable[[IndexF], IndexF]: ...

    def index(self, function: IndexF | None = None, **options: Any) -> IndexF | Callable[[IndexF], IndexF]:
        """Register `(object) -> yields (key, value)`, or a function that returns a mapping.

        Keys are JSON scalars or tuples of them. Objects that the filters exclude have no entries; `when` gets the
        object as the function takes it. With `of=Pod` the function takes pods as plain `Mapping[str, Any]`.

        If the function raises for an object, the object keeps its old entries, and levels that read their keys are
        blocked. If it has none, an index by Owner blocks the levels of the object's owners. Of any other key levelog
        cannot tell: all views of the index go on, say so in the reason of their levels, and delete nothing. With
        `errors="block"` they are all blocked, with `errors="ignore"` none is.

        With `expires`, an object's entries are removed once the object has not changed for that long, by the time of
        the records; its next change restores them.

        An object may have `max_entries` entries, at most 32,767. If it has more, levelog stores none of them, as if the
        function raised.
        """

        def register(function: IndexF) -> IndexF:
            require_function(function, "index")
            selector, said = taken_from("index", options, ("of", "errors", "expires", "max_entries"))
            handler = IndexHandler.inspect(function, selector, self._lender, **said)
            self._claim("index", handler.name, function)
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
        deleting: bool = False,
        timeout: timedelta = VIEW_TIME,
        reads: Iterable[type[ResourceBase]] = (),
        levels_of: Iterable[type[ResourceBase] | str] = (),
        **filters: Unpack[FilterKeywords],
    ) -> Callable[[ViewF], ViewF]: ...

    def view(self, function: ViewF | None = None, **options: Any) -> ViewF | Callable[[ViewF], ViewF]:
        """Register a pure function of one parent, and of indices and other objects; it returns a Level.

        Define indices before the views that read them. `reads` are the Resource classes that the view looks up through
        a parameter `objects: Objects`; levelog watches their resources. With `of=Web` the function takes Webs as plain
        `Mapping[str, Any]`, and wakes on changes of the fields that it read. A parent that the filters exclude has no
        level; `when` gets the parent as the view does. `deleting=True` also evaluates parents that have a
        deletionTimestamp.

        A view that computes for longer than `timeout` is ended, and its level fails. A parameter `levels: Levels` gives
        the other levels of the parent. `levels_of` says which levels of other parents the view looks up with
        `levels.of(Web, name)`: a class stands for the operator's own views of it, a name (`"shops/conditions"`) for
        that view, of whatever operator of the application.
        """

        def register(function: ViewF) -> ViewF:
            require_function(function, "view")
            selector, said = taken_from("view", options, ("of", "deleting", "timeout", "reads", "levels_of"))
            handler = ViewHandler(function, self.indices, selector, self._lender, **said)
            self._take_view(handler, function)
            return function

        return register if function is None else register(function)

    def conditions(
        self,
        cls: type[ResourceBase],
        *,
        also: Iterable[Callable[..., Level[Any]]] = (),
        name: str = "conditions",
        events: bool = True,
    ) -> None:
        """Keep `Ready`, `Reconciling` and `Stalled` in `status.conditions` of each object of a class.

        They sum up the object's levels whose views have reconcile functions: in sync, under way, failed. `also` are
        views without one that count too, for what no write can close: `0 of 1 pods ready`. The CRD needs the field and
        the status subresource; conditions of other types stay as they are. levelog writes the status when a condition
        changes, and not for a level that settles within a second. `name` is the name of the view that this makes.

        A level that fails with a new error also posts a Kubernetes Event about the object (`Failed`, a warning), unless
        `events=False`. This operator's functions get the objects without these conditions, whose changes would wake
        them; indices, and functions that take plain objects, see them.
        """
        if not isinstance(name, str) or not name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError(f"conditions: {name=} is no name of a function: write web_conditions, for example")
        watched = sorted(self._view_of(view, "conditions", "also=[{}]").name for view in also)
        inspect_view = partial(
            ViewHandler, known=self.indices, selector=Selector(), lender=self._lender, deleting=True, of=cls
        )
        handler = inspect_conditions(cls, name, self._counted, inspect_view, watched=watched)
        self._claim("view", name, self.conditions)
        self.with_conditions.add(cls)
        self._watched.update(watched)
        self.views[name] = handler
        self.reconcilers[name] = conditions_writer(cls, self._counted, handler, self._lender, events=events)

    def _counted(self) -> dict[str, bool]:
        return dict.fromkeys(self._watched, False) | {name: each.is_lasting for name, each in self.reconcilers.items()}

    def _view_of(self, view: Callable[..., Any], asking: str, form: str) -> ViewHandler:
        if not callable(view):  # pyright: ignore[reportUnnecessaryComparison]
            raise OperatorError(f"{asking} takes the function of a view, not {view!r}: {form.format(view)}")
        handler = self._views_by_function.get(view)
        if handler is None:
            called = getattr(view, "__name__", repr(view))
            raise OperatorError(
                f"{called} is not a view of the operator {self.name!r}: decorate it with @op.view first"
            )
        return handler

    def reconcile(
        self,
        view: Callable[..., Level[Any]],
        *,
        writes: Writes | None = None,
        timeout: timedelta = RECONCILE_TIME,
    ) -> Callable[[ReconcileF], ReconcileF]:
        """Register the function that yields intents for a view; called once per round while the level drifts.

        An async function or generator runs in the event loop and is cancelled after `timeout`. A plain one runs in a
        thread, which cannot be ended: after `timeout` the level fails, and the function is not called for that object
        again until the thread has returned.

        `writes={Pod: ["apply", "delete"]}` declares the intents that it may yield, by target class; any other intent is
        refused and fails the level. `levelog rbac` derives roles from it, and it declares kinds that no handler of the
        operator reads.
        """
        handler = self._view_of(view, "reconcile", "@op.reconcile({})")
        name = handler.name

        def register(function: ReconcileF) -> ReconcileF:
            require_function(function, "reconcile function")
            if name in self.reconcilers:
                raise OperatorError(
                    f"{function.__name__}: the view {name!r} is reconciled by {self.reconcilers[name].name!r} already"
                )
            made = ReconcileHandler(function, handler, writes, self._lender, timeout=timeout)
            self._claim("reconcile function", made.name, function)
            self.reconcilers[name] = made
            return function

        return register

    @overload
    def effect(self, function: EffectF) -> EffectF: ...

    @overload
    def effect(self, **limits: Unpack[LimitKeywords]) -> Callable[[EffectF], EffectF]: ...

    def effect(
        self, function: EffectF | None = None, **limits: Unpack[LimitKeywords]
    ) -> EffectF | Callable[[EffectF], EffectF]:
        """Register a function with side effects outside the cluster: `(request) -> result`, both with a JSON form.

        A reconcile function asks for it with `call(function, request)`. The actuator calls it at least once, each time
        with the same `idempotency_key: str`, if it takes one; it may take a logger and the settings too. A plain
        function runs in a thread, an async one in the event loop, where it is cancelled after `timeout`. If it raises,
        it is called again; raise `Retry` if nothing was done, and `GiveUp` if another attempt cannot succeed. All
        limits are those of `op.on.create`.

        Views read the finished calls from an index with the effect's name, by the uid of the parent: `page: Index[str,
        Call[Page, Ticket]]`.
        """

        def register(function: EffectF) -> EffectF:
            require_function(function, "effect")
            own = CallLimits(**limits)
            require_limits(f"effect {function.__name__}", own)
            handler = EffectHandler(function, self._lender, own.within(self._lender.limits))
            self._claim("effect", handler.name, function)
            self.effects[handler.name] = handler
            self.indices[handler.name] = handler.index
            return function

        return register if function is None else register(function)

    def children(
        self,
        parent: type[ResourceBase],
        *,
        of: type[ResourceBase] | Sequence[type[ResourceBase]],
        reads: Iterable[type[ResourceBase]] = (),
        timeout: timedelta = VIEW_TIME,
        force: bool = True,
        max_deletions: int | None = None,
        **filters: Unpack[FilterKeywords],
    ) -> Callable[[ChildrenF], ChildrenF]:
        """Register a pure function of a parent, and of what a view may take, that returns manifests of its children.

        It may also take `chance: random.Random`: the same numbers at each call for one object, seeded from the
        redaction key, the object's uid and the function's name.

        It returns or yields any number of manifests, or op.KEEP to leave the children as they are. They also stay if it
        raises. It may return None, for none, if its annotation says so. levelog makes a view with the function's name,
        and writes the children. It applies a child that is missing or differs in a field of its manifest, kind by kind
        in the order of `of`. Once all of these match, it deletes children that are no longer returned, in the reverse
        order of kinds. All of the parent's children of these kinds belong to this function.

        If more than `max_deletions` children would be deleted at once, the level fails, and they stay until an
        annotation on the parent confirms it; the level's reason names it. None: no limit.

        With `force=False`, a field that another manager has taken is a conflict that names the manager, and is not
        taken back. Filters, `reads` and `timeout` are those of views; a parent that the filters exclude keeps its
        children as they are.
        """

        def register(function: ChildrenF) -> ChildrenF:
            require_function(function, "children")
            selector, _ = taken_from("children", filters, ("of", "reads", "timeout", "force", "max_deletions"))
            inspect_view = partial(
                ChildrenView,
                known=self.indices,
                selector=selector,
                lender=self._lender,
                reads=reads,
                timeout=timeout,
            )
            handler = inspect_children(function, parent, of, inspect_view, force=force, max_deletions=max_deletions)
            refuse_shared(handler, self.views.values())
            self._take_view(handler, function)
            for own in handler.own_indices():
                self.indices.setdefault(own.name, own)
            self.reconcilers[handler.name] = reconciler_of(handler, self._lender)
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
        """Register the function that lists the records of a class in an external system.

        It runs in ingest, in one process at a time, and may take `logger` and `settings`. With `every`, it returns
        or yields the whole set at each call, plain (in a thread) or async; a record that is not in the set is gone.
        Without `every`, it is an async generator that waits for changes by itself. It yields whole sets, the first as a
        list, or single changes: a record, or `Branch.gone("main")`.

        levelog records only differences. If the function raises, or takes longer than `timeout`, levelog calls it again
        with backoff; until then the records stay as they are, and indices of them are stale.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            require_function(function, "source")
            handler = SourceHandler(function, record, self._lender, every=every, timeout=timeout)
            self._claim("source", handler.name, function)
            resource = str(handler.resource.group_resource)
            if resource in self.sources:
                raise OperatorError(
                    f"source {handler.name}: the records of {record.__name__} are given by "
                    f"{self.sources[resource].name!r} already; a class has one source"
                )
            self.sources[resource] = handler
            return function

        return register

    @needs("timer", "every", "timedelta(hours=1)")
    def timer(
        self,
        of: type[ResourceBase] | None = None,
        *,
        every: timedelta,
        initial_delay: timedelta = timedelta(0),
        idle: timedelta | None = None,
        sharp: bool = False,
        recorded: bool = True,
        **options: Unpack[CallKeywords],
    ) -> Callable[[HandlerF], HandlerF]:
        """Call a function for each object: first `initial_delay` after its creation, then `every` after each call.

        The time of the last call is in the log and in SQL: a restart does not start over, and calls that were missed
        become one. With `sharp`, calls are due at whole multiples of `every` after the first. With `idle`, a call waits
        until nothing that the function reads of the object has changed for that long.

        The function and the other options are those of `op.on.create`, except that it yields nothing. It is not called
        while an object is being deleted.

        With `recorded=False` a call leaves no decision and no record, and costs a tenth. The processor of the object's
        partition makes it, at multiples of `every` after the first, if the filters match the object then. A failed call
        is retried, `retries` times or until the next one is due. `sharp` and `idle` are refused.
        """

        def register(function: HandlerF) -> HandlerF:
            known = options_of("timer", {"of": of, **options})
            handler = TimerHandler(
                function, every, initial_delay, known, self._lender, idle=idle, sharp=sharp, recorded=recorded
            )
            self.calls.take(handler)
            return function

        return register

    @overload
    def daemon(
        self,
        of: type[ResourceBase] | None = None,
        *,
        grace: timedelta = GRACE,
        retries: int | None = None,
        backoff: timedelta | None = None,
        **filters: Unpack[FilterKeywords],
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def daemon(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("daemon", "@op.daemon(Web)")
    def daemon(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Run an async function for each object: in one process at a time, until it returns or the object is gone.

        It takes the object, and by name `daemon: Daemon[Web, State]`, live indices, and what `op.on.create` gives. It
        has to end when its object is being deleted, when the filters exclude the object, and when the process ends. The
        Daemon tells it, and levelog cancels it after `grace`. A run that ended with its process continues elsewhere,
        with the state that it saved. If the function raises, levelog runs it again; `retries`, `backoff`, Retry and
        GiveUp work as for `op.on.create`.
        """
        function, said = function_or_class("daemon", of, options)

        def register(function: HandlerF) -> HandlerF:
            selector, rest = taken_from("daemon", said, ("of", "grace", "retries", "backoff"))
            grace = rest.pop("grace", GRACE)
            known = CallOptions(selector=selector, **rest)
            self.calls.take(DaemonHandler(function, grace, known, self._lender, self.indices, self._views_by_function))
            return function

        return register if function is None else register(function)

    def remove_finalizer(self, cls: type[ResourceBase]) -> None:
        """Remove this operator's finalizer from all objects of a class whose finalizer handlers you removed.

        You need it if no edge handler of the class is left; any other edge handler of the class does the same. Keep it
        as long as `levelog levels` lists objects under the view that it makes: `webs_finalizer` for Webs.
        """
        require_resource("op.remove_finalizer: ", cls)
        if is_external(cls.resource_type.group_resource):
            raise OperatorError(
                f"op.remove_finalizer: {cls.__name__} is external: no object of the Kubernetes API has a finalizer"
            )
        self.calls.remove_finalizer(cls, self.remove_finalizer)

    def adopt(self, name: str, adapter: "Adapter", trigger: "Trigger", **limits: Unpack[LimitKeywords]) -> None:
        """Have the function of a layer's user called, as the layer's adapter does it: see `levelog.layers`.

        Adopted again, an adapter is taken as it is by then. Raises OperatorError for a name that another function has.
        """
        from levelog.handlers.adapters import options_for  # noqa: PLC0415 - whose caller has loaded it

        handler = trigger.handler(name, adapter, options_for(adapter, limits), self._lender)
        if isinstance(handler, CalledHandler):
            self.calls.take(handler)
            return
        if self._adapters.get(name) is not adapter:
            self._claim("index", name, adapter.function)
            self._adapters[name] = adapter
        self.indices[name] = handler

    def logger(self, function: str) -> "logging.Logger":
        """The logger of a function: each line names the object that the function is called for."""
        return self._lender.logger(function)

    @property
    def finalizer(self) -> str:
        """The finalizer that is put on objects for handlers that need it."""
        return f"{PREFIX}{self.name}"

    def _take_view(self, handler: ViewHandler, function: Callable[..., Any]) -> None:
        """Hold a view, and the indices of the objects that it reads, which views share.

        Raises OperatorError for a name that another function has, and for a class that has the name of another.
        """
        self._claim("view", handler.name, function)
        for cls, index in handler.objects.items():
            known = self.indices.setdefault(index.name, index)
            if isinstance(known, ImplicitIndex) and known.cls is not cls:
                raise OperatorError(
                    f"operator {self.name!r} reads objects of two classes named {cls.__name__}, of "
                    f"{known.resource.group_resource} and of {index.resource.group_resource}: rename one"
                )
        self.views[handler.name] = self._views_by_function[function] = handler

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
        unrecorded = (*self.record_handlers.values(), *self.timers.values())
        reads |= {handler.reader.resource for handler in unrecorded}
        return sorted(reads, key=lambda r: (r.group, r.plural, r.version))

    def _claim(self, kind: str, name: str, function: Callable[..., Any]) -> None:
        """Refuse a second handler of one name; one function may reconcile several views."""
        claimed = (kind, function)
        found = self._named.setdefault(name, claimed)
        if found is not claimed and (found != claimed or kind != "reconcile function"):
            raise OperatorError(
                f"{function.__qualname__}: operator {self.name!r} has the {found[0]} {name!r} already; "
                "each handler needs a name of its own"
            )
