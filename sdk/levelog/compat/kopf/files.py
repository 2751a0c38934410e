"""The operator of a Kopf file, with a method for what each kind of decorator declares."""

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from levelog.compat.kopf.attempts import Attempts, stand_for
from levelog.compat.kopf.failures import TryLimits
from levelog.compat.kopf.given.lookups import asked_for
from levelog.compat.kopf.given.memos import Memo
from levelog.compat.kopf.given.words import served_resource
from levelog.compat.kopf.kinds.attempted import LONGEST
from levelog.compat.kopf.kinds.beginning import HookAttempt, hook_attempts
from levelog.compat.kopf.kinds.changing import ChangeHandler, identifier
from levelog.compat.kopf.kinds.entries import kopf_index
from levelog.compat.kopf.kinds.lasting import LastingHandler
from levelog.compat.kopf.kinds.pacing import PacedHandler
from levelog.compat.kopf.kinds.resuming import ResumeHandler, resumed_view, starts_index, starts_of, starts_source
from levelog.compat.kopf.kinds.watching import WatchingHandler
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.patches import patch_of
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.edges import Reason
from levelog.errors import OperatorError
from levelog.handlers.hooks import When
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Lender
from levelog.handlers.runs import daemon_view, daemon_writer, wanted_index
from levelog.handlers.signatures import declared as declared_function
from levelog.handlers.timers import timer_effect, timer_view, timer_writer
from levelog.handlers.views import ViewHandler
from levelog.indices import Index
from levelog.operator import Operator
from levelog.resources import ResourceBase


class KopfFile:
    """Handlers of one file and of what it imports, and the operator that they are in."""

    def __init__(self, name: str) -> None:
        self.operator = Operator(name)
        self.operator.configures_clients = True
        self.declared: list[Callable[[KopfFile], None]] = []
        """What decorators declared, to be declared elsewhere."""
        self.read: set[str | None] = set()
        """Files of modules that were looked through for marks of Kopf."""
        self.importers: set[str] = set()
        """Modules that were being imported then."""
        self._lender = Lender(name)
        self.settings = OperatorSettings(self._lender.logger("settings"))
        self.memo = Memo()
        """What start-up handlers put down for all others."""
        self._changing: dict[str, ChangeHandler] = {}
        self._pacing: list[PacedHandler] = []
        self._resuming: list[ResumeHandler] = []
        self._lasting: list[LastingHandler] = []
        self._watching: list[WatchingHandler] = []
        self._starts: IndexHandler | None = None
        """The last start of the operator; None: no handler asks for it."""
        self._looked_up: dict[str, IndexHandler] = {}
        """Indices of the file, by the name that handlers ask for."""

    def change(
        self,
        declared: Declaration,
        reasons: Sequence[Reason],
        suffix: str,
        *,
        field: str,
        needs_change: bool,
        finalizer: bool,
    ) -> None:
        """Have a function called for changes of some kinds; with the same options elsewhere it is one handler.

        `suffix` is added to its id.
        """
        handler_id = f"{declared.id}/{suffix}" if suffix else declared.id
        for name in self._names(handler_id, declared.cls, reasons[0]):
            before = self._changing.get(name)
            if before is None or _is_same(before, declared, field):
                break
        else:
            raise OperatorError(
                f"handler {handler_id}: {declared.cls.resource_type.plural} have two handlers of this id for "
                f"{reasons[0]}, with different options: give one of them another id="
            )
        known = before.reasons if before is not None else frozenset[Reason]()
        above = itertools.takewhile(lambda each: each is not before, self._changing.values())
        handler = ChangeHandler(
            name,
            declared.cls,
            frozenset((*reasons, *known)),
            self._attempts(declared, handler_id, name),
            declared.filters,
            field=field,
            needs_change=needs_change or (before is not None and before.needs_change),
            finalizer=finalizer or (before is not None and before.options.finalizer),
            follows=frozenset(each.attempts.id for each in above if each.reader.cls is declared.cls),
            before=before,
        )
        self._changing[name] = handler
        self._put_change(handler)
        for resuming in self._resuming:
            if handler in self._siblings(resuming):
                self._put_resume(resuming)

    def pace(
        self,
        declared: Declaration,
        *,
        interval: timedelta,
        initial_delay: timedelta,
        idle: timedelta | None,
        sharp: bool,
    ) -> None:
        """Have a function called for each object now and then."""
        name = self._free_name("timer", declared, declared.id)
        attempts = self._attempts(declared, declared.id, name)
        handler = PacedHandler(
            name, declared, attempts, interval=interval, initial_delay=initial_delay, idle=idle, sharp=sharp
        )
        self._pacing.append(handler)
        self._put_paced(handler)

    def resume(self, declared: Declaration, *, deleting: bool) -> None:
        """Have a function called for each object that is there when the operator is started."""
        if self._starts is None:
            cls = starts_of(self.operator.name)
            self.operator.source(cls)(starts_source(cls))
            self._starts = starts_index(self.operator.name, cls)
            self.operator.indices[self._starts.name] = self._starts
        name = self._free_name("resume", declared, f"{declared.id}_resume")
        handler = ResumeHandler(name, declared, self._attempts(declared, declared.id, name), deleting=deleting)
        self._resuming.append(handler)
        self._put_resume(handler)

    def last(self, declared: Declaration, *, initial_delay: timedelta, grace: timedelta) -> None:
        """Have a function run for each object."""
        name = self._free_name("daemon", declared, declared.id)
        handler = LastingHandler(
            name,
            declared,
            self._attempts(declared, declared.id, name),
            operator=self.operator.name,
            initial_delay=initial_delay,
            grace=grace,
        )
        self._lasting.append(handler)
        self._put_daemon(handler)

    def watch(self, declared: Declaration) -> None:
        """Have a function called for each record of an object."""
        if asked_for(declared.function, ["patch"]):
            raise OperatorError(
                f"event handler {declared.id}: asks for patch, but writes nothing here: write it in a handler of "
                "changes, @kopf.on.create and update, or better in a view: docs/from-kopf.md"
            )
        name = self._free_name("event", declared, declared.id)
        attempts = self._attempts(declared, declared.id, name)
        handler = WatchingHandler(name, declared, attempts, self._lender, is_alone=lambda: not self._changing)
        self._watching.append(handler)
        self._look_up(handler)
        self.operator.record_handlers[name] = handler

    def index(self, declared: Declaration) -> None:
        """Keep what a function returns for each object; handlers that ask for it above are given it too."""
        name = declared.id
        if not name.isidentifier() or name in self._looked_up or name in {*self.operator.views, *self.operator.effects}:
            raise OperatorError(
                f"index {name}: handlers ask for it by this name, which no other handler may have: give one another id="
            )
        made = kopf_index(name, declared, self._attempts(declared, name, name))
        self.operator.indices[name] = self._looked_up[name] = made
        for changing in self._changing.values():
            if self._look_up(changing):
                self._put_change(changing)
        for pacing in self._pacing:
            if self._look_up(pacing):
                self._put_paced(pacing)
        for resuming in self._resuming:
            if self._look_up(resuming):
                self._put_resume(resuming)
        for lasting in self._lasting:
            if self._look_up(lasting):
                self._put_daemon(lasting)
        for watching in self._watching:
            self._look_up(watching)

    def hook(self, when: When, function: Callable[..., Any], param: Any, limits: TryLimits, backoff: timedelta) -> None:
        """Have a function called when a process of the operator begins, or ends, until it succeeds or gives up."""
        logger = self._lender.logger(getattr(function, "__name__", when))

        def attempts() -> Iterator[HookAttempt]:
            told = {"param": param, "memo": self.memo, "settings": self.settings, "logger": logger}
            return hook_attempts(limits, backoff, told)

        async def call_async() -> None:
            for attempt in attempts():
                with attempt.trying():
                    await function(**attempt.kwargs)
                    return
                if attempt.is_over:
                    return
                await asyncio.sleep(attempt.wait_seconds)

        def call_plain() -> None:
            for attempt in attempts():
                with attempt.trying():
                    function(**attempt.kwargs)
                    return
                if attempt.is_over:
                    return
                time.sleep(attempt.wait_seconds)

        hook = call_async if inspect.iscoroutinefunction(function) else call_plain
        hook.__name__ = getattr(function, "__name__", when)
        stand_for(hook, function)
        if when == "startup":
            self.operator.on.startup(timeout=limits.timeout or LONGEST)(hook)
        else:
            self.operator.on.cleanup(hook)

    def _put_change(self, handler: ChangeHandler) -> None:
        self._look_up(handler)
        self.operator.edges.put(handler)
        self._give(handler, handler.calls_name)

    def _put_paced(self, handler: PacedHandler) -> None:
        self._put_called(handler, timer_view(handler, self._inspected(handler)))

    def _put_resume(self, handler: ResumeHandler) -> None:
        inspect_view = self._inspected(handler, deleting=handler.deleting)
        self._put_called(handler, resumed_view(handler, self._siblings(handler), inspect_view))

    def _put_called(self, handler: PacedHandler, view: ViewHandler) -> None:
        effect = self.operator.effects[handler.calls_name]
        self.operator.views[view.name] = view
        self.operator.reconcilers[view.name] = timer_writer(handler, view, effect, self._lender)
        self._give(handler, effect.name)

    def _put_daemon(self, handler: LastingHandler) -> None:
        operator, effect, wanted = self.operator, handler.effect(self._lender), wanted_index(handler)
        operator.effects[effect.name] = effect
        operator.indices |= {effect.name: effect.index, wanted.name: wanted}
        finalizing = operator.edges.stay(handler)
        beside = {"wanted": wanted, "finalizing": finalizing}
        view = daemon_view(handler, self._inspected(handler, deleting=True, beside=beside), finalizing)
        operator.views[view.name] = view
        operator.reconcilers[view.name] = daemon_writer(handler, view, effect, self._lender)
        handler.indices = dict.fromkeys(handler.attempts.indices, Any)
        effect.patches = partial(patch_of, handler.reader.cls)

    def _inspected(
        self,
        handler: PacedHandler | LastingHandler,
        *,
        deleting: bool = False,
        beside: Mapping[str, IndexHandler] | None = None,
    ) -> Callable[[Callable[..., Any]], ViewHandler]:
        """How a view of a handler is inspected: one that is decided on once the indices are filled that it looks up."""
        self._look_up(handler)
        if isinstance(handler, PacedHandler) and handler.calls_name not in self.operator.effects:
            effect = timer_effect(handler, self._lender)
            self.operator.effects[effect.name] = effect
            self.operator.indices[effect.name] = effect.index

        def inspect_view(view: Callable[..., Any]) -> ViewHandler:
            filled = dict.fromkeys(handler.attempts.indices, Index[Any, Any])
            annotations = {**view.__annotations__, **filled}
            returns = annotations.pop("return")
            known = dict(self.operator.indices)
            known |= beside or {}
            known |= {"started": self._starts} if self._starts is not None else {}
            return ViewHandler.inspect(
                declared_function(view, view.__name__, annotations, returns),
                known,
                handler.options.selector,
                self._lender,
                deleting=deleting,
                objects={},
                of=handler.reader.cls,
            )

        return inspect_view

    def _look_up(self, handler: ChangeHandler | PacedHandler | LastingHandler | WatchingHandler) -> bool:
        """Have a handler's calls look up the indices that it asks for; tells whether one is new to it."""
        when = handler.filters.when
        if when is not None and (asked := asked_for(when, self._looked_up)):
            raise OperatorError(
                f"handler {handler.attempts.id}: its filter when= asks for the index {asked[0]}, which only handlers "
                "look up: ask for it in the function, and return at once where it says no"
            )
        if isinstance(handler, WatchingHandler) and (asked := asked_for(handler.origin, self._looked_up)):
            raise OperatorError(f"event handler {handler.attempts.id}: looks up no index, not {asked[0]}: use a timer")
        return handler.attempts.take_indices(self._looked_up)

    def _give(self, handler: ChangeHandler | PacedHandler, name: str) -> None:
        """Give the calls of a handler the indices that it looks up, and have what they ask for written."""
        effect = self.operator.effects[name]
        effect.snapshots = dict.fromkeys(handler.attempts.indices, Any)
        effect.patches = partial(patch_of, handler.reader.cls)

    def _siblings(self, handler: ResumeHandler) -> list[ChangeHandler]:
        """Handlers of changes of the same objects."""
        return [each for each in self._changing.values() if each.reader.cls is handler.reader.cls]

    def _attempts(self, declared: Declaration, handler_id: str, name: str) -> Attempts:
        logger = self._lender.logger(name)
        function, limits = declared.function, declared.limits
        return Attempts(
            handler_id,
            function,
            limits,
            logger,
            declared.param,
            self.settings,
            self.memo,
            backoff=declared.backoff,
            resource=served_resource(declared.cls.resource_type),
        )

    def _free_name(self, kind: str, declared: Declaration, wanted: str) -> str:
        """A name for a handler that stands for itself. Raises OperatorError where all are taken."""
        operator = self.operator
        taken = {*operator.views, *operator.effects, *operator.record_handlers, *self._looked_up}
        for name in self._names(wanted, declared.cls, kind):
            if name not in taken:
                return name
        raise OperatorError(
            f"{kind} {declared.id}: {declared.cls.resource_type.plural} have one of this id: give it another id="
        )

    def _names(self, handler_id: str, cls: type[ResourceBase], reason: str) -> Iterator[str]:
        """Names that a handler of an id may have, the shortest first."""
        name, plural = identifier(handler_id), identifier(cls.resource_type.plural)
        yield from (name, f"{name}_{plural}", f"{name}_{reason}", f"{name}_{plural}_{reason}")


def _is_same(before: ChangeHandler, declared: Declaration, field: str) -> bool:
    attempts = before.attempts
    return (
        before.origin is declared.function
        and before.reader.cls is declared.cls
        and (attempts.limits, before.filters, before.options.field, attempts.param)
        == (declared.limits, declared.filters, field, declared.param)
    )
