"""The decorators of a Kopf file: `kopf.on`, `kopf.timer`, `kopf.daemon`, `kopf.index`, and sub-handlers."""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

from msgspec import UNSET

from levelog.compat.kopf.files import KopfFile, Register
from levelog.compat.kopf.kopftargets import choice
from levelog.compat.kopf.modules import declare
from levelog.compat.kopf.options import (
    COMMON,
    FILTERS,
    LIMITS,
    SELECTORS,
    Declaration,
    backoff_of,
    declared_as,
    delay_of,
    filters_of,
    limits_of,
    pointer,
    require_known,
    seconds_of,
)
from levelog.compat.kopf.subhandlers import InnerHandler, at_work
from levelog.edges import Reason, value_or_none
from levelog.layers import Lifetimes, Times, When
from levelog.selectors import holds
from levelog_base.errors import OperatorError

NO_WEBHOOKS: Final = "levelog serves no webhooks: write rules into the definition, docs/custom-resources.md"
NO_MUTATION: Final = "levelog serves no webhooks: write defaults into the definition, docs/custom-resources.md"

DecoratedF = TypeVar("DecoratedF", bound=Callable[..., Any])


def _declaring(
    where: str,
    selectors: tuple[Any, ...],
    options: Mapping[str, Any],
    register: Register,
    *others: str,
    is_of_field: bool = True,
) -> Callable[[DecoratedF], DecoratedF]:
    """The decorator that has a file `register` what it declares; `others` are options of its own."""

    def decorate(function: DecoratedF) -> DecoratedF:
        declared = declared_as(where, function, selectors, options, others, is_of_field=is_of_field)
        declare(function, lambda file: file.add(declared, register))
        return function

    return decorate


def _changing(
    decorator: str,
    reasons: Sequence[Reason],
    selectors: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    finalizer: bool = False,
) -> Callable[[DecoratedF], DecoratedF]:
    where, given = f"kopf.on.{decorator}", options.get("field")
    field, needs_change = pointer(where, given), decorator in ("field", "update")
    suffix = given if isinstance(given, str) else ".".join(given or ())

    def change(file: KopfFile, each: Declaration) -> None:
        file.change(each, reasons, suffix, field=field, needs_change=needs_change, finalizer=finalizer)

    return _declaring(where, selectors, options, change, is_of_field=False)


def timer(*selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
    """Call the function for each object every `interval` seconds."""
    where = "kopf.timer"
    idle = seconds_of(where, "idle", options.get("idle") or None)
    interval = seconds_of(where, "interval", options.get("interval"))
    if interval is None:
        raise OperatorError(f"{where}: needs an interval: give interval=60, in seconds")
    if interval < Times.least:
        raise OperatorError(f"{where}: interval={options['interval']!r} is less than a second; each call is recorded")
    if idle is not None and idle < Times.least:
        raise OperatorError(f"{where}: idle={options['idle']!r} is less than a second; each change is recorded")
    initial_delay, sharp = delay_of(where, options.get("initial_delay")), bool(options.get("sharp"))

    times = Times(every=interval, initial_delay=initial_delay, idle=idle, sharp=sharp)

    def pace(file: KopfFile, each: Declaration) -> None:
        file.pace(each, times)

    return _declaring(where, selectors, options, pace, "interval", "initial_delay", "sharp", "idle")


def daemon(*selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
    """Run the function for each object, until it returns or the object is gone."""
    where, ending = "kopf.daemon", ("cancellation_backoff", "cancellation_timeout")
    initial_delay = delay_of(where, options.get("initial_delay"))
    backoff, timeout = (seconds_of(where, name, options.get(name) or None) for name in ending)

    def last(file: KopfFile, each: Declaration) -> None:
        grace = backoff or timedelta.resolution  # at once
        if timeout is not None and not inspect.iscoroutinefunction(each.function):  # an async one is cancelled before
            grace += timeout
        file.last(each, Lifetimes() if backoff is None and timeout is None else Lifetimes(grace=grace), initial_delay)

    return _declaring(where, selectors, options, last, "initial_delay", "cancellation_polling", *ending)


def index(*selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
    """Keep what the function returns for each object, for handlers to look up by the name of the function."""
    decorate = _declaring("kopf.index", selectors, options, KopfFile.index)

    def one(function: DecoratedF) -> DecoratedF:
        several = choice("kopf.index", selectors, {name: options.get(name) for name in SELECTORS})
        if several is not None:
            name = options.get("id") or function.__name__
            raise OperatorError(f"kopf.index: {name} is for {several.shown}; an index is of one resource")
        return decorate(function)

    return one


def register(fn: Callable[..., Any], *, id: str | None = None, **options: Any) -> Callable[..., Any]:  # noqa: A002
    """Call a function as a part of the handler that runs now, until it has succeeded or given up."""
    where = "kopf.register"
    require_known(where, options, (*LIMITS, *COMMON, "labels", "annotations", "when", "value", "old", "new"))
    calls = at_work(where)
    field = pointer(where, options.get("field"))
    filters = filters_of(where, options)

    def is_taken(told: Mapping[str, Any]) -> bool:
        if not field:
            return True
        old, new = (value_or_none(told[name], field) for name in ("old", "new"))
        if not filters.take_change(old, new, told):
            return False
        if filters.value is not UNSET:
            return holds(filters.value, new, **told) or holds(filters.value, old, **told)
        return bool(old != new)

    calls.add(
        InnerHandler(
            id=f"{calls.prefix}{id or getattr(fn, '__name__', 'handler')}",
            function=fn,
            limits=limits_of(where, options),
            backoff=backoff_of(where, options),
            param=options.get("param"),
            filters=filters,
            is_taken=is_taken,
        )
    )
    return fn


def subhandler(**options: Any) -> Callable[[DecoratedF], DecoratedF]:
    """Call the function as a part of the handler that it is defined in."""

    def registered(function: DecoratedF) -> DecoratedF:
        register(function, **options)
        return function

    at_work("kopf.subhandler")
    return registered


def _hook(when: When, options: Mapping[str, Any]) -> Callable[[DecoratedF], DecoratedF]:
    where = f"kopf.on.{when}"
    require_known(where, options, (*LIMITS, "id", "param", "backoff"))
    limits = limits_of(where, options)
    backoff = backoff_of(where, options)

    def register(function: DecoratedF) -> DecoratedF:
        declare(function, lambda file: file.hook(when, function, options.get("param"), limits, backoff))
        return function

    return register


def _unused(decorator: str, why: str) -> Callable[[DecoratedF], DecoratedF]:
    def register(function: DecoratedF) -> DecoratedF:
        name = getattr(function, "__name__", decorator)
        logging.getLogger("levelog.compat.kopf").warning("@kopf.on.%s: %s is never called: %s", decorator, name, why)
        return function

    return register


class KopfOn:
    """The decorators that Kopf has in `kopf.on`."""

    timer = staticmethod(timer)
    daemon = staticmethod(daemon)
    index = staticmethod(index)
    register = staticmethod(register)
    subhandler = staticmethod(subhandler)

    def create(self, *selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function for each object that it does not know."""
        return _changing("create", ("create",), selectors, options)

    def update(self, *selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when the essence of an object changes, or the field in `field=`."""
        return _changing("update", ("update",), selectors, options)

    def delete(
        self, *selectors: Any, optional: bool | None = None, **options: Any
    ) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when an object is deleted, which stays until then, unless `optional`."""
        return _changing("delete", ("delete",), selectors, options, finalizer=not optional)

    def field(self, *selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when the field in `field=` is set or changed."""
        if not options.get("field"):
            raise OperatorError("kopf.on.field: names no field: give field='spec.replicas'")
        return _changing("field", ("create", "update"), selectors, options)

    def resume(
        self, *selectors: Any, deleted: bool | None = None, **options: Any
    ) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function for each object that is there when the operator is started."""
        return _declaring(
            "kopf.on.resume", selectors, options, lambda file, each: file.resume(each, deleting=bool(deleted))
        )

    def event(self, *selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function for each record of an object; what it raises is logged and ignored."""
        require_known("kopf.on.event", options, (*SELECTORS, *FILTERS, "id", "param", "field"))
        return _declaring("kopf.on.event", selectors, options, KopfFile.watch)

    def startup(self, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when a process of the operator begins, before anything is handled."""
        return _hook("startup", options)

    def cleanup(self, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when a process of the operator ends."""
        return _hook("cleanup", options)

    def login(self, **_: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Leave the function alone: levelog logs in with a kubeconfig, or as the service account of its pod."""
        return _unused(
            "login",
            "levelog logs in with KUBECONFIG, or as the service account of its pod, and configures kubernetes and "
            "kubernetes_asyncio in the same way; do in a start-up handler what else it does",
        )

    def probe(self, **_: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Leave the function alone: levelog has probes of its own."""
        return _unused("probe", "levelog answers probes by itself, --listen: docs/monitoring.md")

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("validate", "mutate"):
            raise OperatorError(f"kopf.on.{name}: {NO_MUTATION if name == 'mutate' else NO_WEBHOOKS}")
        raise AttributeError(f"kopf.on has no {name!r}")


on: Final = KopfOn()
