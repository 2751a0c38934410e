"""The operator of a Kopf file, with a method for what each kind of decorator declares."""

import asyncio
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from levelog.compat.kopf.attempts import Attempts, stand_for
from levelog.compat.kopf.failures import TryLimits, pause_of_hook
from levelog.compat.kopf.given.lookups import asked_for
from levelog.compat.kopf.given.memos import Memo
from levelog.compat.kopf.kinds.changing import ChangeHandler, identifier
from levelog.compat.kopf.kinds.declaring import LONGEST, AttemptedHandler
from levelog.compat.kopf.kinds.entries import kopf_index
from levelog.compat.kopf.kinds.lasting import LastingHandler
from levelog.compat.kopf.kinds.pacing import PacedHandler
from levelog.compat.kopf.kinds.resuming import ResumeHandler, resumed_view, starts_index, starts_of, starts_source
from levelog.compat.kopf.kinds.watching import WatchingHandler
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.patches import patch_of
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.edges import Reason
from levelog.handlers.hooks import When
from levelog.handlers.indexers import IndexHandler
from levelog.handlers.injection import Lender
from levelog.kinds import OpenSelector
from levelog.operator import Operator
from levelog_base.errors import OperatorError

Register: TypeAlias = Callable[["KopfFile", Declaration], None]


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
        self._others: list[AttemptedHandler] = []
        self._starts: IndexHandler | None = None
        """The last start of the operator; None: no handler asks for it."""
        self._looked_up: dict[str, IndexHandler] = {}
        """Indices of the file, by the name that handlers ask for."""

    def add(self, declared: Declaration, register: Register) -> None:
        """Make the handlers that a decorator declares: of one kind now, of several once a cluster has told them."""
        if declared.choice is None:
            register(self, declared)
            return
        selector = OpenSelector(
            shown=f"{declared.id} is for {declared.choice.shown}",
            takes=declared.choice.takes,
            register=lambda kind: register(self, declared.of(kind)),
        )
        self.operator.open_selectors.append(selector)

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
        for name in self._names(handler_id, declared, reasons[0]):
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
            frozenset((*reasons, *known)),
            self._attempts(declared, handler_id, name),
            field=field,
            needs_change=needs_change or (before is not None and before.needs_change),
            finalizer=finalizer or (before is not None and before.options.finalizer),
            follows=frozenset(each.attempts.id for each in above if each.reader.cls is declared.cls),
            before=before,
        )
        self._changing[name] = handler
        self._put(handler)
        for each in self._others:
            if isinstance(each, ResumeHandler) and handler in self._siblings(each):
                self._put(each)

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
        handler = PacedHandler(name, attempts, interval=interval, initial_delay=initial_delay, idle=idle, sharp=sharp)
        self._others.append(handler)
        self._put(handler)

    def resume(self, declared: Declaration, *, deleting: bool) -> None:
        """Have a function called for each object that is there when the operator is started."""
        if self._starts is None:
            cls = starts_of(self.operator.name)
            self.operator.source(cls)(starts_source(cls))
            self._starts = starts_index(self.operator.name, cls)
            self.operator.indices[self._starts.name] = self._starts
        name = self._free_name("resume", declared, f"{declared.id}_resume")
        handler = ResumeHandler(name, self._attempts(declared, declared.id, name), deleting=deleting)
        self._others.append(handler)
        self._put(handler)

    def last(self, declared: Declaration, *, initial_delay: timedelta, grace: timedelta) -> None:
        """Have a function run for each object."""
        name = self._free_name("daemon", declared, declared.id)
        handler = LastingHandler(
            name,
            self._attempts(declared, declared.id, name),
            operator=self.operator.name,
            initial_delay=initial_delay,
            grace=grace,
        )
        self._others.append(handler)
        self._put(handler)

    def watch(self, declared: Declaration) -> None:
        """Have a function called for each record of an object."""
        if asked_for(declared.function, ["patch"]):
            raise OperatorError(
                f"event handler {declared.id}: asks for patch, but writes nothing here: write it in a handler of "
                "changes, @kopf.on.create and update, or better in a view: docs/from-kopf.md"
            )
        name = self._free_name("event", declared, declared.id)
        attempts = self._attempts(declared, declared.id, name)
        handler = WatchingHandler(name, attempts, self._lender, is_alone=lambda: not self._changing)
        self._others.append(handler)
        self._look_up(handler)
        self.operator.record_handlers[name] = handler

    def index(self, declared: Declaration) -> None:
        """Keep what a function returns for each object; handlers that ask for it above are given it too."""
        name = declared.id
        if not name.isidentifier() or name in self._looked_up or name in {*self.operator.views, *self.operator.effects}:
            raise OperatorError(
                f"index {name}: handlers ask for it by this name, which no other handler may have: give one another id="
            )
        made = kopf_index(name, self._attempts(declared, name, name))
        self.operator.indices[name] = self._looked_up[name] = made
        for handler in (*self._changing.values(), *self._others):
            if self._look_up(handler):
                self._put(handler)

    def hook(self, when: When, function: Callable[..., Any], param: Any, limits: TryLimits, backoff: timedelta) -> None:
        """Have a function called when a process of the operator begins, or ends, until it succeeds or gives up."""
        name = getattr(function, "__name__", when).replace("<lambda>", when)
        logger = self._lender.logger(name)

        def calls() -> Iterator[dict[str, Any]]:
            began = datetime.now(UTC)
            told = {"param": param, "memo": self.memo, "settings": self.settings, "logger": logger, "started": began}
            for retry in itertools.count():
                yield {**told, "retry": retry, "runtime": datetime.now(UTC) - began}

        async def call_async() -> None:
            for kwargs in calls():
                try:
                    await function(**kwargs)
                except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                    if (pause := pause_of_hook(error, limits, backoff, kwargs)) is not None:
                        await asyncio.sleep(pause.total_seconds())
                        continue
                return

        def call_plain() -> None:
            for kwargs in calls():
                try:
                    function(**kwargs)
                except Exception as error:  # noqa: BLE001 - as above
                    if (pause := pause_of_hook(error, limits, backoff, kwargs)) is not None:
                        time.sleep(pause.total_seconds())
                        continue
                return

        hook = call_async if inspect.iscoroutinefunction(function) else call_plain
        hook.__name__ = name
        stand_for(hook, function)
        if when == "startup":
            self.operator.on.startup(timeout=limits.timeout or LONGEST)(hook)
        else:
            self.operator.on.cleanup(hook)

    def _put(self, handler: AttemptedHandler) -> None:
        """Have a handler called as it is now: with the indices that it looks up, and what its calls ask for written."""
        self._look_up(handler)
        indices, calls = dict.fromkeys(handler.attempts.indices, Any), self.operator.calls
        match handler:
            case ChangeHandler():
                effect = calls.put(handler)
            case ResumeHandler():
                beside = {} if self._starts is None else {"started": self._starts}
                effect = calls.time(handler, partial(resumed_view, self._siblings(handler)), beside=beside)
            case PacedHandler():
                effect = calls.time(handler)
            case LastingHandler():
                effect = calls.run(handler, is_staying=True)
                handler.indices, indices = indices, {}
            case _:
                return
        effect.snapshots = indices
        effect.patches = partial(patch_of, handler.reader.cls)

    def _look_up(self, handler: AttemptedHandler) -> bool:
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

    def _siblings(self, handler: ResumeHandler) -> list[ChangeHandler]:
        """Handlers of changes of the same objects."""
        return [each for each in self._changing.values() if each.reader.cls is handler.reader.cls]

    def _attempts(self, declared: Declaration, handler_id: str, name: str) -> Attempts:
        return Attempts(handler_id, declared, self._lender.logger(name), self.settings, self.memo)

    def _free_name(self, kind: str, declared: Declaration, wanted: str) -> str:
        """A name for a handler that stands for itself. Raises OperatorError where all are taken."""
        operator = self.operator
        taken = {*operator.views, *operator.effects, *operator.record_handlers, *self._looked_up}
        for name in self._names(wanted, declared, kind):
            if name not in taken:
                return name
        raise OperatorError(
            f"{kind} {declared.id}: {declared.cls.resource_type.plural} have one of this id: give it another id="
        )

    def _names(self, handler_id: str, declared: Declaration, reason: str) -> Iterator[str]:
        """Names that a handler of an id may have, the shortest first; one of several kinds is named by its kind."""
        name, plural = identifier(handler_id), identifier(declared.cls.resource_type.plural)
        if declared.served is not None:
            long = f"{name}_{identifier(declared.served.name)}"
            yield from (long, f"{long}_{reason}")
            return
        yield from (name, f"{name}_{plural}", f"{name}_{reason}", f"{name}_{plural}_{reason}")


def _is_same(before: ChangeHandler, declared: Declaration, field: str) -> bool:
    known = before.attempts.declared
    return (
        known.function is declared.function
        and known.cls is declared.cls
        and (known.limits, known.filters, before.options.field, known.param)
        == (declared.limits, declared.filters, field, declared.param)
    )
