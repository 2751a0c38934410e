"""The handlers, timers and daemons of one operator, and the views, effects and reconcile functions made from them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from levelog.edges import Edge, Reason
from levelog.effects import EffectHandler
from levelog.handlers.edgehandlers import (
    END,
    EdgeHandler,
    edge_effect,
    edge_view,
    edge_writer,
    end_view,
)
from levelog.handlers.finalizing import (
    VIEW,
    FinalizingIndex,
    finalizer_of,
    finalizer_view,
    finalizer_writer,
    finalizing_name,
)
from levelog.handlers.forobjects import CalledHandler, CallOptions, InspectView, calls_of
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Lender
from levelog.handlers.readers import takes_plain
from levelog.handlers.runs import DaemonHandler, daemon_effect, daemon_view, daemon_writer, wanted_index
from levelog.handlers.timers import TimerHandler, timer_effect, timer_view, timer_writer
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler
from levelog.handlers.yielding import Yields, writes_view, writes_writer, written_effect
from levelog.resources import ResourceBase
from levelog.selectors import Selector
from levelog_base.errors import OperatorError
from levelog_base.wire.objects import GroupResource


class CallRegistry:
    """Takes in handlers, timers and daemons; what it makes of them it puts into the operator's own mappings."""

    def __init__(
        self,
        operator: str,
        lender: Lender,
        claim: Callable[[str, Callable[..., Any]], None],
        *,
        indices: dict[str, IndexHandler],
        effects: dict[str, EffectHandler],
        views: dict[str, ViewHandler],
        reconcilers: dict[str, ReconcileHandler],
    ) -> None:
        """`claim` raises OperatorError for a name that another function of the operator has."""
        self._operator = operator
        self._lender = lender
        self._claim = claim
        self._indices, self._effects, self._views, self._reconcilers = indices, effects, views, reconcilers
        self._handlers: dict[object, EdgeHandler] = {}
        """By the function or the adapter of each."""
        self._staying: dict[str, DaemonHandler] = {}
        """Daemons that keep their objects, by name."""
        self._released: dict[GroupResource, type[ResourceBase]] = {}
        """Classes whose objects lose the finalizer of handlers that were removed."""
        self._waiting: dict[Callable[..., Any], frozenset[Reason]] = {}
        """Functions of plain objects whose class a decorator above says, which is called later, with their reasons."""
        self._names: dict[GroupResource, str] = {}
        """Names of the views of finalizers."""

    def register(self, function: Callable[..., Any], reason: Reason, options: CallOptions | None) -> None:
        """Have a function called for edges of one kind more; `options`: None where the decorator has none."""
        before = self._handlers.get(function)
        if before is not None and options is not None:
            options = _together(function, before.options, options)
        held = before.reasons if before is not None else self._waiting.pop(function, frozenset())
        reasons: frozenset[Reason] = frozenset({reason, *held})
        if before is None and options is None and takes_plain(function, "handler"):
            self._waiting[function] = reasons
            return
        known = before.options if before is not None else CallOptions()
        handler = EdgeHandler(function, reasons, options or known, self._lender)
        handler.require_field()
        self.put(handler)

    def time(self, handler: TimerHandler) -> None:
        """Take in a timer, in place of the one of its name."""
        effect = self._add(timer_effect(handler, self._lender))
        named = {} if handler.adapter is None else handler.adapter.beside
        beside = {own: self._indices[name] for own, name in named.items()}
        view = self._views[handler.name] = timer_view(handler, self._inspecting(handler, beside), beside)
        self._reconcilers[view.name] = timer_writer(handler, view, effect, self._lender)

    def run(self, handler: DaemonHandler) -> None:
        """Take in a daemon, in place of the one of its name; that of an adapter keeps its objects until it ended."""
        effect, wanted = self._add(daemon_effect(handler, self._lender)), wanted_index(handler)
        self._indices[wanted.name], finalizing = wanted, self._stay(handler) if handler.adapter is not None else None
        beside = {"wanted": wanted} | ({"finalizing": finalizing} if finalizing is not None else {})
        view = daemon_view(handler, self._inspecting(handler, beside), finalizing)
        self._views[view.name] = view
        self._reconcilers[view.name] = daemon_writer(handler, view, effect, self._lender)

    def put(self, handler: EdgeHandler) -> None:
        """Take in an edge handler, in place of the one that its function or its adapter had before."""
        key, function = handler.adapter or handler.function, handler.origin
        before = self._handlers.get(key)
        if handler.options.finalizer:
            finalizer_of(self._operator)  # refused before anything is claimed
        if before is None:
            self._claim(handler.name, function)
            self._claim(handler.calls_name, function)
            if handler.is_yielding:
                self._claim(handler.writes_name, function)
                self._claim(handler.written_name, function)
        yielding = None
        if handler.is_yielding:
            yielding = Yields(handler.name, handler.reader.cls, handler.written, self._effects)
            self._add(written_effect(handler.written_name, self._lender))
        self._add(edge_effect(handler, self._lender, yielding))
        self._handlers[key] = handler
        if yielding is not None:
            self._write(handler, yielding, None)
            if "delete" in handler.reasons:
                self._write(handler, yielding, END)
        self._arrange(handler.reader.cls, function)

    def _add(self, effect: EffectHandler) -> EffectHandler:
        self._effects[effect.name], self._indices[effect.name] = effect, effect.index
        return effect

    def _stay(self, daemon: DaemonHandler) -> FinalizingIndex:
        """Keep a daemon's objects until its run has ended; the index tells which wait for the finalizer."""
        self._staying[daemon.name] = daemon
        self._arrange(daemon.reader.cls, daemon.origin)
        found = self._indices[finalizing_name(daemon.reader.resource.group_resource)]
        if not isinstance(found, FinalizingIndex):
            raise TypeError(f"{found.name} is no index of finalizers")
        return found

    def remove_finalizer(self, cls: type[ResourceBase], function: Callable[..., Any]) -> None:
        """Take the finalizer of handlers that were removed off a class's objects; `function` has the view's name."""
        finalizer_of(self._operator)
        self._released[cls.resource_type.group_resource] = cls
        self._arrange(cls, function)

    def require_whole(self) -> None:
        """Refuse what only all handlers together show: any decorator may have the options. Raises OperatorError."""
        for resource, cls in self._released.items():
            holding, staying = self._holding(resource)
            names = [*(each.name for each in holding), *(each.name for each in staying)]
            if names:
                raise OperatorError(
                    f"op.remove_finalizer({cls.__name__}): {names[0]} needs the finalizer on these objects; "
                    "remove one of the two"
                )
        for function, reasons in self._waiting.items():
            EdgeHandler(function, reasons, CallOptions(), self._lender)  # raises
        for each in self._handlers.values():
            if each.is_yielding and each.options.writes is None:
                raise OperatorError(
                    f"handler {each.name}: yields intents; say in one of its decorators what they write, "
                    'writes={Pod: ["apply"]}; {} if they are calls of effects alone'
                )

    def _write(self, handler: EdgeHandler, yielding: Yields, end: str | None) -> None:
        """The view of what the handler yielded, and its reconcile function; `end`: of what it yielded for the end."""
        name = handler.writes_name if end is None else f"{handler.writes_name}_{end}"
        calls = handler.calls_name, calls_of(handler, Edge)
        inspect_view = self._inspected_end(handler)  # what was yielded is written, whatever the filters say by then
        view = writes_view(name, calls, handler.written_name, end, inspect_view)
        writes = handler.options.writes or {}
        note = self._effects[handler.written_name]
        self._views[name] = view
        self._reconcilers[name] = writes_writer(view, yielding, note, end, writes, self._lender)

    def _handling(self, resource: GroupResource) -> list[EdgeHandler]:
        return [each for each in self._handlers.values() if each.reader.resource.group_resource == resource]

    def _holding(self, resource: GroupResource) -> tuple[list[EdgeHandler], list[DaemonHandler]]:
        """Handlers that hold up the end of a resource's objects, and daemons that do."""
        staying = [each for each in self._staying.values() if each.reader.resource.group_resource == resource]
        return [each for each in self._handling(resource) if each.options.finalizer], staying

    def _arrange(self, cls: type[ResourceBase], function: Callable[..., Any]) -> None:
        """Make the views of a class's handlers anew: all of them wait for the finalizer that one of them wants."""
        resource = cls.resource_type.group_resource
        holding, staying = self._holding(resource)
        keeping: list[CalledHandler] = [*holding, *staying]
        index = None
        if keeping:
            index = FinalizingIndex(keeping[0].reader.cls, finalizer_of(self._operator), keeping)
            self._indices[index.name] = index
        for handler in self._handling(resource):
            beside = None if index is None else {"finalizing": index}
            views = [edge_view(handler, self._inspecting(handler, beside), index)]
            if "delete" in handler.reasons:
                views.append(end_view(handler, self._inspected_end(handler)))
            for view in views:
                self._views[view.name] = view
                effect = self._effects[handler.calls_name]
                self._reconcilers[view.name] = edge_writer(handler, view, effect, self._lender)
        self._finalize(resource, cls, holding, staying, function)

    def _finalize(
        self,
        resource: GroupResource,
        cls: type[ResourceBase],
        holding: list[EdgeHandler],
        staying: list[DaemonHandler],
        function: Callable[..., Any],
    ) -> None:
        """Keep the finalizer of the handlers, or take off what is left of earlier ones."""
        try:
            finalizer = finalizer_of(self._operator)
        except OperatorError:  # no handler can ever have put one on
            return
        if resource not in self._names:
            name = f"{resource.resource.replace('-', '_')}{VIEW}"
            if name in self._names.values():
                full = f"{resource.resource}.{resource.group or 'core'}"
                name = f"{full.replace('-', '_').replace('.', '_')}{VIEW}"
            self._claim(name, function)
            self._names[resource] = name

        inspect_view = partial(ViewHandler, known=self._indices, lender=self._lender, deleting=True, of=cls)
        view = finalizer_view(self._names[resource], finalizer, holding, staying, inspect_view)
        self._views[view.name] = view
        writer = self._reconcilers[view.name] = finalizer_writer(cls, finalizer, view, self._lender)
        writer.is_removing = not holding and not staying and resource not in self._released

    def _inspecting(self, handler: CalledHandler, beside: Mapping[str, IndexHandler] | None) -> InspectView:
        options, known = handler.options, {**self._indices, **(beside or {})}
        selector, lender, deleting = options.selector, self._lender, handler.deleting
        return partial(ViewHandler, known=known, selector=selector, lender=lender, deleting=deleting, of=options.of)

    def _inspected_end(self, handler: EdgeHandler) -> InspectView:
        cls, known = handler.reader.cls, self._indices
        return partial(ViewHandler, known=known, selector=Selector(), lender=self._lender, deleting=True, of=cls)


def _together(function: Callable[..., Any], before: CallOptions, options: CallOptions) -> CallOptions:
    """Options of two decorators of a function: both may name the class. Raises OperatorError."""
    classes = {each.of for each in (before, options)} - {None}
    if len(classes) > 1:
        raise OperatorError(f"handler {function.__name__}: its decorators name two classes: write a handler for each")
    said = [each for each in (before, options) if each != CallOptions(of=each.of)]
    if len(said) > 1:
        raise OperatorError(
            f"handler {function.__name__}: has options in two of its decorators: give all of them to one"
        )
    return replace(said[0] if said else options, of=before.of or options.of)
