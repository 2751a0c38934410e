"""`kopf.on`: the decorators of a Kopf file."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, TypeVar

from msgspec import UNSET

from levelog.compat.kopf.attempts import ErrorsMode, TryLimits
from levelog.compat.kopf.files import file_of
from levelog.compat.kopf.filters import Filters
from levelog.compat.kopf.targets import target
from levelog.edges import Reason, pointer_of
from levelog.errors import OperatorError
from levelog.handlers.hooks import When
from levelog.handlers.timers import LEAST
from levelog.resources import ResourceBase

DecoratedF = TypeVar("DecoratedF", bound=Callable[..., Any])

BACKOFF: Final = 60.0
"""Seconds after an error that is not TemporaryError. Origin: Kopf's documentation."""
_SELECTORS: Final = ("group", "version", "kind", "plural", "singular", "shortcut", "category")
_FILTERS: Final = ("labels", "annotations", "when", "value", "old", "new")
_LIMITS: Final = ("errors", "timeout", "retries")
_OTHERS: Final = ("id", "param", "backoff", "field")
REFUSED: Final[Mapping[str, str]] = {
    "resume": "a restart is no event to levelog, which remembers what was handled: leave @kopf.on.resume out; a new "
    "handler is called by on.create for the objects that are there",
    "event": "each record of an object is in `levelog history`; what is written for every one is nearly always a "
    "level: docs/from-kopf.md",
    "validate": "levelog serves no webhooks: write the rule into the definition, docs/custom-resources.md",
    "mutate": "levelog serves no webhooks: write defaults into the definition, docs/custom-resources.md",
    "subhandler": "handlers inside of handlers are not supported: register each function by itself",
}
"""Decorators of Kopf that mean nothing here, and what to do instead."""


class KopfOn:
    """The decorators that Kopf has in `kopf.on`."""

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
            raise OperatorError("kopf.on.field: says no field: field='spec.replicas'")
        return _changing("field", ("create", "update"), selectors, options)

    def startup(self, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when a process of the operator begins, before anything is handled."""
        return _hook("startup", options)

    def cleanup(self, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Call the function when a process of the operator ends."""
        return _hook("cleanup", options)

    def login(self, **_: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Leave the function alone: levelog logs in with a kubeconfig, or as the service account of its pod."""
        return _unused("login", "levelog logs in with KUBECONFIG, or as the service account of its pod")

    def probe(self, **_: Any) -> Callable[[DecoratedF], DecoratedF]:
        """Leave the function alone: levelog has probes of its own."""
        return _unused("probe", "levelog answers probes by itself, --listen: docs/monitoring.md")

    def __getattr__(self, name: str) -> NoReturn:
        if name in REFUSED:
            raise OperatorError(f"kopf.on.{name}: {REFUSED[name]}")
        raise AttributeError(f"kopf.on has no {name!r}")


on: Final = KopfOn()


def _changing(
    decorator: str,
    reasons: Sequence[Reason],
    selectors: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    finalizer: bool = False,
) -> Callable[[DecoratedF], DecoratedF]:
    where = f"kopf.on.{decorator}"
    cls = resource_of(where, selectors, options, _OTHERS)
    field = _pointer(where, options.get("field"))
    filters = filters_of(where, options, has_field=bool(field))

    def register(function: DecoratedF) -> DecoratedF:
        name = str(options.get("id") or getattr(function, "__name__", "handler"))
        given = options.get("field")
        suffix = given if isinstance(given, str) else ".".join(given or ())
        file_of(function).change(
            function,
            cls,
            reasons,
            f"{name}/{suffix}" if suffix else name,
            limits_of(where, options),
            filters,
            field=field,
            needs_change=decorator in ("field", "update"),
            finalizer=finalizer,
            backoff=seconds_of(where, "backoff", options.get("backoff", BACKOFF)),
            param=options.get("param"),
        )
        return function

    return register


def timer(*selectors: Any, **options: Any) -> Callable[[DecoratedF], DecoratedF]:
    """Call the function for each object every `interval` seconds."""
    where = "kopf.timer"
    if options.get("idle") is not None:
        raise OperatorError(f"{where}: idle= is not known here: look at the object in the function, and return at once")
    cls = resource_of(where, selectors, options, ("id", "param", "backoff", "interval", "initial_delay", "sharp"))
    filters = filters_of(where, options, has_field=False)
    interval = seconds_of(where, "interval", options.get("interval"))
    if interval is None:
        raise OperatorError(f"{where}: says no interval: interval=60, in seconds")
    if interval < LEAST:
        raise OperatorError(f"{where}: interval={options['interval']!r} is less than a second; each call is recorded")
    delay = options.get("initial_delay") or None

    def register(function: DecoratedF) -> DecoratedF:
        file_of(function).pace(
            function,
            cls,
            str(options.get("id") or getattr(function, "__name__", "timer")),
            limits_of(where, options),
            filters,
            interval=interval,
            initial_delay=seconds_of(where, "initial_delay", delay) or timedelta(0),
            sharp=bool(options.get("sharp")),
            backoff=seconds_of(where, "backoff", options.get("backoff", BACKOFF)),
            param=options.get("param"),
        )
        return function

    return register


def _hook(when: When, options: Mapping[str, Any]) -> Callable[[DecoratedF], DecoratedF]:
    if unknown := options.keys() - {*_LIMITS, "id", "param", "backoff"}:
        raise OperatorError(f"kopf.on.{when}: takes no option {min(unknown)!r}")

    def register(function: DecoratedF) -> DecoratedF:
        file_of(function).hook(when, function, options.get("param"))
        return function

    return register


def _unused(decorator: str, why: str) -> Callable[[DecoratedF], DecoratedF]:
    def register(function: DecoratedF) -> DecoratedF:
        name = getattr(function, "__name__", decorator)
        logging.getLogger("levelog.compat.kopf").warning("@kopf.on.%s: %s is never called: %s", decorator, name, why)
        return function

    return register


def resource_of(
    where: str, selectors: tuple[Any, ...], options: Mapping[str, Any], others: Sequence[str]
) -> type[ResourceBase]:
    """Class of the resource that a decorator is for. Raises OperatorError for options that it does not have."""
    if unknown := options.keys() - {*_SELECTORS, *_FILTERS, *_LIMITS, *others}:
        raise OperatorError(f"{where}: takes no option {min(unknown)!r}")
    return target(where, selectors, {name: options.get(name) for name in _SELECTORS})


def filters_of(where: str, options: Mapping[str, Any], *, has_field: bool) -> Filters:
    """The filters of a decorator. Raises OperatorError for values of a field where none is named."""
    given = {name: options[name] for name in _FILTERS if options.get(name) is not None}
    if not has_field and (odd := {"value", "old", "new"} & given.keys()):
        raise OperatorError(f"{where}: {min(odd)}= filters on the value of a field: say which, field='spec.replicas'")
    return Filters(**{name: value for name, value in given.items() if value is not UNSET})


def limits_of(where: str, options: Mapping[str, Any]) -> TryLimits:
    """Errors mode, time limit and retries of a decorator. Raises OperatorError for those that are none."""
    errors = options.get("errors") or ErrorsMode.TEMPORARY
    if not isinstance(errors, ErrorsMode):
        raise OperatorError(f"{where}: errors={errors!r} is not one of kopf.ErrorsMode")
    retries = options.get("retries")
    if retries is not None and (not isinstance(retries, int) or retries < 1):
        raise OperatorError(f"{where}: retries={retries!r} is not a number of calls, 1 or more")
    return TryLimits(errors=errors, timeout=seconds_of(where, "timeout", options.get("timeout")), retries=retries)


def seconds_of(where: str, option: str, given: Any) -> timedelta | None:
    """A time that is given in seconds. Raises OperatorError for what is none."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given <= 0:
        raise OperatorError(f"{where}: {option}={given!r} is not a number of seconds above 0")
    return timedelta(seconds=given)


def _pointer(where: str, field: Any) -> str:
    if field is None:
        return ""
    if isinstance(field, str):
        return pointer_of(field)
    if isinstance(field, Sequence) and all(isinstance(each, str) for each in field):  # pyright: ignore[reportUnknownVariableType]
        keys: Sequence[str] = field
        return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)
    raise OperatorError(f"{where}: field={field!r} is neither 'spec.replicas' nor ('spec', 'replicas')")
