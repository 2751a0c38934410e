"""The operator of a Kopf file, with a method for what each kind of decorator declares."""

import asyncio
import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from levelog.compat.kopf.attempts import LONGEST, KopfAdapter
from levelog.compat.kopf.given.lookups import asked_for
from levelog.compat.kopf.given.memos import Memo
from levelog.compat.kopf.handlererrors import TryLimits, pause_of_hook
from levelog.compat.kopf.kinds.changing import ChangeAdapter
from levelog.compat.kopf.kinds.entries import EntriesAdapter
from levelog.compat.kopf.kinds.lasting import LastingAdapter
from levelog.compat.kopf.kinds.pacing import (
    STARTS,
    ResumeAdapter,
    StartsAdapter,
    TimedAdapter,
    starts_of,
    starts_source,
)
from levelog.compat.kopf.kinds.watching import WatchingAdapter
from levelog.compat.kopf.options import Declaration
from levelog.compat.kopf.tuning import OperatorSettings
from levelog.edges import Reason
from levelog.kinds import OpenSelector
from levelog.layers import Edges, Entries, Lifetimes, Times, When
from levelog.operator import Operator
from levelog_base.errors import OperatorError

AdapterT = TypeVar("AdapterT", bound=KopfAdapter)
Register: TypeAlias = Callable[["KopfFile", Declaration], None]


class KopfFile:
    """Handlers of one file and of what it imports, and the operator that they are in."""

    def __init__(self, name: str) -> None:
        self.operator = Operator(name, configures_clients=True)
        self.declared: list[Callable[[KopfFile], None]] = []
        """What decorators declared, to be declared elsewhere."""
        self.read: set[str | None] = set()
        """Files of modules that were looked through for marks of Kopf."""
        self.importers: set[str] = set()
        """Modules that were being imported then."""
        self.settings = OperatorSettings(self.operator.logger("settings"))
        self.memo = Memo()
        """What start-up handlers put down for all others."""
        self._changing: dict[str, ChangeAdapter] = {}
        self._others: list[KopfAdapter] = []
        self._looked_up: dict[str, EntriesAdapter] = {}
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
            instead="name the resources in a loop: docs/from-kopf.md#everything-and-categories",
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
        handler = before or self._made(ChangeAdapter, declared, handler_id, name)
        above = itertools.takewhile(lambda each: each is not handler, self._changing.values())
        handler.follows = frozenset(each.id for each in above if each.of is declared.cls)
        handler.reasons, handler.finalizer = handler.reasons.union(reasons), handler.finalizer or finalizer
        handler.trigger = Edges(reasons=handler.reasons, finalizer=handler.finalizer)
        handler.field, handler.needs_change = field, handler.needs_change or needs_change
        handler.code = (field, handler.needs_change, handler.said)
        self._changing[name] = handler
        self._adopt(handler)
        for each in self._others:
            if isinstance(each, WatchingAdapter):
                each.is_alone = False
            if isinstance(each, ResumeAdapter) and each.of is handler.of:
                self._adopt(each)

    def pace(self, declared: Declaration, times: Times) -> None:
        """Have a function called for each object now and then."""
        handler = self._free(TimedAdapter, "timer", declared, declared.id)
        handler.trigger = times
        self._adopt(handler)

    def resume(self, declared: Declaration, *, deleting: bool) -> None:
        """Have a function called for each object that is there when the operator is started."""
        if STARTS not in self.operator.indices:
            cls = starts_of(self.operator.name)
            self.operator.source(cls)(starts_source(cls))
            self.operator.adopt(STARTS, StartsAdapter(cls), Entries())
        handler = self._free(ResumeAdapter, "resume", declared, f"{declared.id}_resume")
        handler.trigger = Times(deleting=deleting)
        self._adopt(handler)

    def last(self, declared: Declaration, runs: Lifetimes, initial_delay: timedelta) -> None:
        """Have a function run for each object."""
        handler = self._free(LastingAdapter, "daemon", declared, declared.id)
        handler.trigger, handler.initial_delay = runs, initial_delay
        handler.code = (handler.said, str(initial_delay))
        self._adopt(handler)

    def watch(self, declared: Declaration) -> None:
        """Have a function called for each record of an object."""
        if asked_for(declared.function, ["patch"]):
            raise OperatorError(
                f"event handler {declared.id}: asks for patch, but writes nothing here: write it in a handler of "
                "changes, @kopf.on.create and update, or better in a view: docs/from-kopf.md"
            )
        handler = self._free(WatchingAdapter, "event", declared, declared.id)
        handler.is_alone = not self._changing
        self._adopt(handler)

    def index(self, declared: Declaration) -> None:
        """Keep what a function returns for each object; handlers that ask for it above are given it too."""
        name = declared.id
        if not name.isidentifier() or name in self._looked_up or name in {*self.operator.views, *self.operator.effects}:
            raise OperatorError(
                f"index {name}: handlers ask for it by this name, which no other handler may have: give one another id="
            )
        self._looked_up[name] = self._made(EntriesAdapter, declared, name, name)
        self.operator.adopt(name, self._looked_up[name], Entries())
        for handler in (*self._changing.values(), *self._others):
            if self._look_up(handler):
                self._adopt(handler)

    def hook(self, when: When, function: Callable[..., Any], param: Any, limits: TryLimits, backoff: timedelta) -> None:
        """Have a function called when a process of the operator begins, or ends, until it succeeds or gives up."""
        name = getattr(function, "__name__", when).replace("<lambda>", when)
        logger = self.operator.logger(name)

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

        hook: Any = call_async if inspect.iscoroutinefunction(function) else call_plain
        hook.__name__, hook.__signature__ = name, inspect.signature(hook)
        hook.__wrapped__ = function  # so that errors name the place in it
        if when == "startup":
            self.operator.on.startup(timeout=limits.timeout or LONGEST)(hook)
        else:
            self.operator.on.cleanup(hook)

    def _adopt(self, handler: KopfAdapter) -> None:
        """Have a handler called as it is now: with the indices that it looks up, and what changes its objects have."""
        self._look_up(handler)
        if isinstance(handler, ResumeAdapter):
            handler.take_changing([each for each in self._changing.values() if each.of is handler.of])
        self.operator.adopt(handler.name, handler, handler.trigger, **handler.limits)

    def _look_up(self, handler: KopfAdapter) -> bool:
        """Have a handler's calls look up the indices that it asks for; tells whether one is new to it."""
        when = handler.filters.when
        if when is not None and (asked := asked_for(when, self._looked_up)):
            raise OperatorError(
                f"handler {handler.id}: its filter when= asks for the index {asked[0]}, which only handlers "
                "look up: ask for it in the function, and return at once where it says no"
            )
        if isinstance(handler, WatchingAdapter) and (asked := asked_for(handler.function, self._looked_up)):
            raise OperatorError(f"event handler {handler.id}: looks up no index, not {asked[0]}: use a timer")
        return handler.take_indices(self._looked_up)

    def _made(self, cls: type[AdapterT], declared: Declaration, handler_id: str, name: str) -> AdapterT:
        return cls(handler_id, name, declared, self.operator, self.settings, self.memo)

    def _free(self, cls: type[AdapterT], kind: str, declared: Declaration, wanted: str) -> AdapterT:
        """A handler that stands for itself. Raises OperatorError where all names for it are taken."""
        operator = self.operator
        taken = {*operator.views, *operator.effects, *operator.record_handlers, *self._looked_up}
        for name in self._names(wanted, declared, kind):
            if name not in taken:
                handler = self._made(cls, declared, declared.id, name)
                self._others.append(handler)
                return handler
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


def identifier(text: str) -> str:
    """A name of a view for the id of a handler."""
    return re.sub(r"\W", "_", text).strip("_") or "handler"


def _is_same(before: ChangeAdapter, declared: Declaration, field: str) -> bool:
    known = before.declared
    return (
        known.function is declared.function
        and known.cls is declared.cls
        and (known.limits, known.filters, before.field, known.param)
        == (declared.limits, declared.filters, field, declared.param)
    )
