"""The handlers, timers and daemons of one operator, and the views, effects and reconcile functions made from them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from levelog.edges import Reason
from levelog.effects import EffectHandler
from levelog.handlers.edgehandlers import END, EdgeHandler
from levelog.handlers.finalizing import (
    VIEW,
    FinalizingIndex,
    finalizer_of,
    finalizer_view,
    finalizer_writer,
)
from levelog.handlers.forobjects import FINALIZING, CalledHandler, CallOptions, DecidedHandler, RecordHandler
from levelog.handlers.injection import Lender
from levelog.handlers.runs import WANTED, DaemonHandler
from levelog.handlers.timers import TimerHandler
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler
from levelog.handlers.yielding import Yields, writes_view, writes_writer, written_effect
from levelog.resources import ResourceBase
from levelog_base.errors import OperatorError
from levelog_base.wire.objects import GroupResource

if TYPE_CHECKING:
    from levelog.operator import Operator


class CallRegistry:
    """Takes in handlers, timers and daemons; what it makes of them it puts into the operator's own mappings."""

    def __init__(
        self, operator: "Operator", lender: Lender, claim: Callable[[str, str, Callable[..., Any]], None]
    ) -> None:
        """`claim` takes kind, name and function; it raises OperatorError for a name that another function has."""
        self._operator, self._lender, self._claim = operator, lender, claim
        self._handlers: dict[object, CalledHandler] = {}
        """By the function or the adapter of each."""
        self._released: dict[GroupResource, type[ResourceBase]] = {}
        """Classes whose objects lose the finalizer of handlers that were removed."""
        self._names: dict[GroupResource, str] = {}
        """Names of the views of finalizers."""

    def register(self, function: Callable[..., Any], reason: Reason, options: CallOptions | None) -> None:
        """Have a function called for edges of one kind more; `options`: None where the decorator has none."""
        found = self._handlers.get(function)
        before = found if isinstance(found, EdgeHandler) else None
        if before is not None and options is not None:
            options = _together(function, before.options, options)
        reasons: frozenset[Reason] = frozenset({reason, *(before.reasons if before is not None else ())})
        known = before.options if before is not None else CallOptions()
        handler = EdgeHandler(function, reasons, options or known, self._lender)
        handler.require_field()
        self.take(handler)

    def take(self, handler: CalledHandler) -> None:
        """Take in a handler, a timer or a daemon in place of the one that its function or its adapter had before.

        Raises OperatorError for a name that another function has.
        """
        key, is_stacked = handler.adapter or handler.function, isinstance(handler, EdgeHandler)
        before = self._handlers.get(key)
        if handler.holds_object:
            finalizer_of(self._operator.name)  # refused before anything is claimed
        is_again = isinstance(before, type(handler)) and before.name == handler.name
        is_added_to = is_again and (handler.adapter is not None or is_stacked)
        claimed = before.names if before is not None and is_added_to else ()
        for name in handler.names:
            if name not in claimed:
                self._claim(handler.kind, name, handler.origin)
        self._handlers[key] = handler
        if isinstance(handler, RecordHandler):
            self._operator.record_handlers[handler.name] = handler
        elif isinstance(handler, TimerHandler) and not handler.recorded:
            self._operator.timers[handler.name] = handler
        elif isinstance(handler, DecidedHandler):
            self._decide(handler)

    def _decide(self, handler: DecidedHandler) -> None:
        """Make what decides on the calls of a handler, and makes them."""
        if isinstance(handler, EdgeHandler) and handler.is_yielding:
            handler.yielding = Yields(handler.name, handler.reader.cls, handler.written, self._operator.effects)
            self._add(written_effect(handler.written_name, self._lender))
        if isinstance(handler, TimerHandler) and handler.adapter is not None:
            handler.beside = {own: self._operator.indices[name] for own, name in handler.adapter.beside.items()}
        if isinstance(handler, DaemonHandler):
            wanted = self._operator.indices[handler.wanted_name] = handler.wanted_index()
            handler.beside = {WANTED: wanted}
        self._add(handler.effect())
        if isinstance(handler, EdgeHandler) and handler.yielding is not None:
            for end in (None, END) if "delete" in handler.reasons else (None,):
                self._write(handler, handler.yielding, end)
        if handler.waits_for_finalizer:
            self._arrange(handler.reader.cls, handler.origin)
        else:
            self._look(handler, handler.view(self._operator.indices))

    def _add(self, effect: EffectHandler) -> None:
        self._operator.effects[effect.name], self._operator.indices[effect.name] = effect, effect.index

    def _look(self, handler: DecidedHandler, view: ViewHandler) -> None:
        """Have a handler called as a view of its calls says."""
        self._put(view, handler.writer(view, self._operator.effects[handler.calls_name]))

    def remove_finalizer(self, cls: type[ResourceBase], function: Callable[..., Any]) -> None:
        """Take the finalizer of handlers that were removed off a class's objects; `function` has the view's name."""
        finalizer_of(self._operator.name)
        self._released[cls.resource_type.group_resource] = cls
        self._arrange(cls, function)

    def require_whole(self) -> None:
        """Refuse what only all handlers together show: any decorator may have the options. Raises OperatorError."""
        for resource, cls in self._released.items():
            if holding := [each for each in self._waiting_of(resource) if each.holds_object]:
                raise OperatorError(
                    f"op.remove_finalizer({cls.__name__}): {holding[0].name} needs the finalizer on these objects; "
                    "remove one of the two"
                )
        for each in self._handlers.values():
            if isinstance(each, EdgeHandler) and each.is_yielding and each.options.writes is None:
                raise OperatorError(
                    f"handler {each.name}: yields intents; say in one of its decorators what they write, "
                    'writes={Pod: ["apply"]}; {} if they are calls of effects alone'
                )

    def _write(self, handler: EdgeHandler, yielding: Yields, end: str | None) -> None:
        """The view of what the handler yielded, and its reconcile function; `end`: of what it yielded for the end."""
        name = handler.writes_name if end is None else f"{handler.writes_name}_{end}"
        calls, cls = (handler.calls_name, handler.calls_type), handler.reader.cls
        view = writes_view(name, calls, handler.written_name, end, self._inspect_view(cls))
        writes = handler.options.writes or {}
        note = self._operator.effects[handler.written_name]
        self._put(view, writes_writer(view, yielding, note, end, writes, self._lender))

    def _waiting_of(self, resource: GroupResource) -> list[DecidedHandler]:
        """Handlers of a resource's objects that wait for the finalizer, if one of them holds up the end of these."""
        decided = (each for each in self._handlers.values() if isinstance(each, DecidedHandler))
        of_resource = (each for each in decided if each.reader.resource.group_resource == resource)
        return [each for each in of_resource if each.waits_for_finalizer]

    def _arrange(self, cls: type[ResourceBase], function: Callable[..., Any]) -> None:
        """Make the views of a class's handlers anew: all of them wait for the finalizer that one of them wants."""
        resource = cls.resource_type.group_resource
        waiting = self._waiting_of(resource)
        holding = [each for each in waiting if each.holds_object]
        if holding:
            index = FinalizingIndex(holding[0].reader.cls, finalizer_of(self._operator.name), holding)
            self._operator.indices[index.name] = index
            for handler in waiting:
                handler.beside = {**handler.beside, FINALIZING: index}
        for handler in waiting:
            self._look(handler, handler.view(self._operator.indices))
            if isinstance(handler, EdgeHandler) and "delete" in handler.reasons:
                self._look(handler, handler.end_view(self._operator.indices))
        self._finalize(resource, cls, holding, function)

    def _finalize(
        self,
        resource: GroupResource,
        cls: type[ResourceBase],
        holding: Sequence[DecidedHandler],
        function: Callable[..., Any],
    ) -> None:
        """Keep the finalizer of the handlers, or take off what is left of earlier ones."""
        try:
            finalizer = finalizer_of(self._operator.name)
        except OperatorError:  # no handler can ever have put one on
            return
        if resource not in self._names:
            name = f"{resource.resource.replace('-', '_')}{VIEW}"
            if name in self._names.values():
                full = f"{resource.resource}.{resource.group or 'core'}"
                name = f"{full.replace('-', '_').replace('.', '_')}{VIEW}"
            self._claim("function", name, function)
            self._names[resource] = name
        view = finalizer_view(self._names[resource], finalizer, holding, self._inspect_view(cls))
        writer = finalizer_writer(cls, finalizer, view, self._lender)
        writer.is_removing = not holding and resource not in self._released
        self._put(view, writer)

    def _inspect_view(self, cls: type[ResourceBase]) -> Callable[..., ViewHandler]:
        """What makes a view of a class's objects, those that are being deleted too."""
        return partial(ViewHandler, known=self._operator.indices, lender=self._lender, deleting=True, of=cls)

    def _put(self, view: ViewHandler, writer: ReconcileHandler) -> None:
        self._operator.views[view.name], self._operator.reconcilers[view.name] = view, writer


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
