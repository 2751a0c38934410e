"""The operator of a Kopf file: made for the first decorator in it, and found there by `levelog run`."""

import inspect
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from levelog.compat.kopf.attempts import Attempts, TryLimits
from levelog.compat.kopf.changing import ChangeHandler, identifier
from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.keywords import Memo
from levelog.compat.kopf.pacing import PacedHandler
from levelog.compat.kopf.patches import marks_effect, patches_view, patches_writer
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.edges import Reason
from levelog.effects import EffectHandler
from levelog.errors import OperatorError
from levelog.handlers.edgehandlers import called
from levelog.handlers.hooks import When
from levelog.handlers.injection import Lender
from levelog.handlers.timers import ticked, timer_effect, timer_view, timer_writer
from levelog.handlers.views import ViewHandler
from levelog.operator import Operator
from levelog.resources import ResourceBase
from levelog.selectors import Selector

OPERATOR: Final = "__levelog_operator__"
"""Name that the operator has in the module of the file."""


class KopfFile:
    """Handlers of one file, and the operator that they are in."""

    def __init__(self, name: str) -> None:
        self.operator = Operator(name)
        self._lender = Lender(name)
        self.settings = OperatorSettings(self._lender.logger("settings"))
        self.memo = Memo()
        """What start-up handlers put down for all others."""
        self._changing: dict[str, ChangeHandler] = {}
        self._marks: dict[type[ResourceBase], EffectHandler] = {}
        self._indices: dict[type[ResourceBase], dict[str, tuple[str, Any]]] = {}

    def change(
        self,
        function: Callable[..., Any],
        cls: type[ResourceBase],
        reasons: Sequence[Reason],
        handler_id: str,
        limits: TryLimits,
        filters: Filters,
        *,
        field: str,
        needs_change: bool,
        finalizer: bool,
        backoff: timedelta | None,
        param: Any,
    ) -> None:
        """Have a function called for changes of some kinds; with the same options elsewhere it is one handler."""
        for name in self._names(handler_id, cls, reasons[0]):
            before = self._changing.get(name)
            if before is None or _is_same(before, function, cls, limits, filters, field, param):
                break
        else:
            raise OperatorError(
                f"handler {handler_id}: {cls.resource_type.plural} have two handlers of this id for {reasons[0]}, with "
                "different options: give one of them another id="
            )
        known = before.reasons if before is not None else frozenset[Reason]()
        attempts = self._attempts(handler_id, name, function, limits, param)
        handler = ChangeHandler(
            name,
            cls,
            frozenset((*reasons, *known)),
            attempts,
            filters,
            field=field,
            needs_change=needs_change or (before is not None and before.needs_change),
            finalizer=finalizer or (before is not None and before.options.finalizer),
            backoff=backoff,
            marks=self._marks_of(cls).name,
            before=before,
        )
        self._changing[name] = handler
        self.operator.edges.put(handler)
        self.keep_patches(cls, name, handler.handled_name, called(handler))

    def pace(
        self,
        function: Callable[..., Any],
        cls: type[ResourceBase],
        handler_id: str,
        limits: TryLimits,
        filters: Filters,
        *,
        interval: timedelta,
        initial_delay: timedelta,
        sharp: bool,
        backoff: timedelta | None,
        param: Any,
    ) -> None:
        """Have a function called for each object now and then."""
        operator, taken = self.operator, {*self.operator.views, *self.operator.effects}
        names = self._names(handler_id, cls, "timer")
        name = next((each for each in names if each not in taken), "")
        if not name:
            raise OperatorError(
                f"timer {handler_id}: {cls.resource_type.plural} have one of this id: give it another id="
            )
        attempts = self._attempts(handler_id, name, function, limits, param)
        self._marks_of(cls)
        handler = PacedHandler(
            name,
            cls,
            attempts,
            filters,
            interval=interval,
            initial_delay=initial_delay,
            sharp=sharp,
            backoff=backoff,
        )
        effect = timer_effect(handler, self._lender)
        operator.effects[effect.name] = effect
        operator.indices[effect.name] = effect.index

        def inspect_view(view: Callable[..., Any]) -> ViewHandler:
            selector = handler.options.selector
            known = operator.indices
            return ViewHandler.inspect(view, known, selector, self._lender, deleting=False, objects={}, of=cls)

        view = timer_view(handler, inspect_view)
        operator.views[view.name] = view
        operator.reconcilers[view.name] = timer_writer(handler, view, effect, self._lender)
        self.keep_patches(cls, name, handler.calls_name, ticked(handler))

    def hook(self, when: When, function: Callable[..., Any], param: Any) -> None:
        """Have a function called when a process of the operator begins, or ends."""
        logger = self._lender.logger(getattr(function, "__name__", when))

        def arguments() -> dict[str, Any]:
            began = datetime.now(UTC)
            told = {"retry": 0, "started": began, "runtime": timedelta(0), "param": param, "memo": self.memo}
            return {**told, "settings": self.settings, "logger": logger}

        async def call_async() -> None:
            await function(**arguments())

        def call_plain() -> None:
            function(**arguments())

        hook = call_async if inspect.iscoroutinefunction(function) else call_plain
        hook.__name__ = getattr(function, "__name__", when)
        if when == "startup":
            self.operator.on.startup(hook)
        else:
            self.operator.on.cleanup(hook)

    def _attempts(
        self, handler_id: str, name: str, function: Callable[..., Any], limits: TryLimits, param: Any
    ) -> Attempts:
        return Attempts(handler_id, function, limits, self._lender.logger(name), param, self.settings, self.memo)

    def keep_patches(self, cls: type[ResourceBase], name: str, index: str, hint: Any) -> None:
        """Have the patches written that the calls of a handler give: those in an index of its calls."""
        operator, marks = self.operator, self._marks_of(cls)
        indices = self._indices.setdefault(cls, {})
        indices[name] = index, hint

        def inspect_view(view: Callable[..., Any]) -> ViewHandler:
            known = operator.indices
            return ViewHandler.inspect(view, known, Selector(), self._lender, deleting=False, objects={}, of=cls)

        view = patches_view(f"{marks.name.removesuffix('_patched')}_patches", marks.name, indices, inspect_view)
        operator.views[view.name] = view
        logger = self._lender.logger(view.name)
        operator.reconcilers[view.name] = patches_writer(cls, view, marks, self._lender, logger)

    def _marks_of(self, cls: type[ResourceBase]) -> EffectHandler:
        if cls not in self._marks:
            name = identifier(cls.resource_type.plural)
            if any(each.resource_type.plural == cls.resource_type.plural for each in self._marks):
                name = identifier(str(cls.resource_type.group_resource))
            marks = marks_effect(f"{name}_patched", self._lender)
            self._marks[cls] = marks
            self.operator.effects[marks.name] = marks
            self.operator.indices[marks.name] = marks.index
        return self._marks[cls]

    def _names(self, handler_id: str, cls: type[ResourceBase], reason: str) -> list[str]:
        """Names that a handler of an id may have, the shortest first."""
        name, plural = identifier(handler_id), identifier(cls.resource_type.plural)
        return [name, f"{name}_{plural}", f"{name}_{reason}", f"{name}_{plural}_{reason}"]


def file_of(function: Any) -> KopfFile:
    """The file that a function is defined in. Raises OperatorError for what is no function of a file."""
    inner = getattr(function, "__func__", function)
    module = getattr(inner, "__globals__", None)
    if module is None or not hasattr(function, "__name__"):
        raise OperatorError(f"{function!r} is no function of a file: write one with def, and call it from there")
    made = module.get(_FILE)
    if made is None:
        stem = Path(str(module.get("__file__") or module.get("__name__") or "kopf")).stem
        made = KopfFile(re.sub(r"[^-A-Za-z0-9]+", "-", stem).strip("-") or "kopf")
        module[_FILE] = made
        module[OPERATOR] = made.operator
    found: KopfFile = made
    return found


_FILE: Final = "__levelog_kopf_file__"


def _is_same(
    before: ChangeHandler,
    function: Callable[..., Any],
    cls: type[ResourceBase],
    limits: TryLimits,
    filters: Filters,
    field: str,
    param: Any,
) -> bool:
    attempts = before.attempts
    return (
        before.origin is function
        and before.reader.cls is cls
        and (attempts.limits, before.filters, before.options.field, attempts.param) == (limits, filters, field, param)
    )
