"""`op.on`: the decorators of edge handlers, beside those of hooks."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, overload

from msgspec import UNSET

from levelog.edges import Reason, pointer_of
from levelog.effects import EFFECT_TIME
from levelog.errors import OperatorError
from levelog.handlers.edgehandlers import EdgeOptions
from levelog.handlers.hooks import Hooks
from levelog.handlers.injection import Lender
from levelog.handlers.listeners import RecordHandler, RecordOptions
from levelog.handlers.readers import function_or_class
from levelog.handlers.signatures import needs, one_place
from levelog.handlers.views import Writes
from levelog.resources import ResourceBase
from levelog.selectors import Selector, Value, taken_from

_FIELD: Final = re.compile(r"[^./\[\]][^.\[\]]*(\.[^.\[\]]+)*|(/[^/]+)+")
"""A field by its keys between dots, or as a JSON pointer."""

NO_WEBHOOKS: Final = {
    "validate": "levelog serves no webhooks: write the rule into the definition, docs/custom-resources.md",
    "mutate": "levelog serves no webhooks: write defaults into the definition, docs/custom-resources.md",
}
"""Decorators that Kopf has for webhooks, and what to do instead."""
_INSTEAD: Final = {
    **NO_WEBHOOKS,
    "webhook": NO_WEBHOOKS["validate"],
    "login": "levelog logs in by itself, with KUBECONFIG or as the service account of its pod",
    "probe": "levelog answers probes by itself: --listen, docs/monitoring.md",
    **{
        name: f"write @op.{name}"
        for name in ("timer", "daemon", "index", "view", "reconcile", "children", "effect", "source")
    },
}
"""What is no decorator of `op.on`, and what to write instead."""

HandlerF = TypeVar("HandlerF", bound=Callable[..., Any])
RegisterRecords: TypeAlias = Callable[[RecordHandler], None]
Register: TypeAlias = Callable[[Callable[..., Any], Reason, EdgeOptions | None], None]


class On(Hooks):
    """Registers edge handlers and hooks of one operator.

    An edge handler takes an object of a class derived from Resource, or a `Mapping[str, Any]` where a decorator
    names the class, `@op.on.create(Web)`; by name also `old`, `new`, `diff: Diff`, `reason: str`, `retry: int`,
    `started: datetime` (when the call was decided) and `idempotency_key: str`, and a logger and the settings. It may
    yield intents, for the classes in `writes`: they are written once it has returned, and it is called again only
    then. It may stand under several of these decorators; one of them may have the options.
    """

    def __init__(
        self, lender: Lender, indices: Mapping[str, object], register: Register, register_records: RegisterRecords
    ) -> None:
        super().__init__(lender, indices)
        self._register = register
        self._register_records = register_records

    if not TYPE_CHECKING:  # whose readers are to go on knowing which names there are

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"op.on has no {name!r}")
            raise OperatorError(f"op.on.{name}: {_INSTEAD.get(name) or _known(name)}")

    @overload
    def create(
        self,
        of: type[ResourceBase] | None = None,
        *,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        since: datetime | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
        writes: Writes | None = None,
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def create(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.create", "@op.on.create(Web)")
    def create(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function for each object, once: for new ones, and for those that it did not know yet.

        It is called at least once, until it returns: what it raises, or that it takes longer than `timeout`, is tried
        again, `retries` times or for ever, after `backoff` or by the schedule of writes. `GiveUp` ends that, and so
        does `give_up_after`, counted from when the call was decided; one attempt is made at least. An object that the
        filters leave out is not handled, until it fits. At most `max_concurrency` calls of the function run at
        a time in one process; None: as many as the process has room for.

        With `since`, a time with its zone, an object that was created before is none of `create`'s: it is for `resume`,
        if the function has it, and else only noted, so that its changes and its end are handled. Say when the handler
        was first deployed.
        """
        return self._decorator("create", of, options)

    @needs("since", "datetime(2026, 11, 1, tzinfo=UTC)")
    def resume(
        self,
        of: type[ResourceBase] | None = None,
        *,
        since: datetime,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
        writes: Writes | None = None,
    ) -> Callable[[HandlerF], HandlerF]:
        """Call the function, once, for each object that was created before `since`, when the handler was not there.

        A restart calls nothing again. The options are those of `create`.
        """
        filters = {"labels": labels, "annotations": annotations, "when": when}
        limits = {"timeout": timeout, "retries": retries, "backoff": backoff, "give_up_after": give_up_after}
        given = {"since": since, "max_concurrency": max_concurrency, "writes": writes, **limits}
        return self._decorator("resume", of, {**filters, **given})  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @overload
    def update(
        self,
        of: type[ResourceBase] | None = None,
        *,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        since: datetime | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
        writes: Writes | None = None,
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def update(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.update", "@op.on.update(Web)")
    def update(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function when an object differs from what the function handled, or saw of it first.

        Changes that come and go before it is called are none; several are one. While it is tried again, a newer state
        takes the place of the one that it failed for. The options are those of `create`.
        """
        return self._decorator("update", of, options)

    @overload
    def delete(
        self,
        of: type[ResourceBase] | None = None,
        *,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        since: datetime | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
        writes: Writes | None = None,
        finalizer: bool = False,
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def delete(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.delete", "@op.on.delete(Web)")
    def delete(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function once an object is gone, with its last state; no finalizer is needed for that.

        Also for an object that went while nothing ran. It is called for objects that it has seen before: `create` and
        `update` of the same function, or a note that levelog takes when it sees the object first. The filters say
        which these are; at its end an object is handled whatever it was last. The options are those of `create`.

        With `finalizer=True` it is called before: once the object is being deleted, which stays until the function has
        returned or given up. All edge handlers of the class wait until the finalizer is on the object.
        """
        return self._decorator("delete", of, options)

    @one_place("on.field", '@op.on.field("spec.image", of=Web)')
    def field(
        self,
        field: str,
        *,
        value: Any = UNSET,
        old: Any = UNSET,
        new: Any = UNSET,
        of: type[ResourceBase] | None = None,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        since: datetime | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
        give_up_after: timedelta | None = None,
        max_concurrency: int | None = None,
        writes: Writes | None = None,
    ) -> Callable[[HandlerF], HandlerF]:
        """Call the function when an object is new, or one field of it is another: `spec.image`, or `/spec/image`.

        Its parameters `old` and `new` are the values of the field, None where there is none. `value`, `old` and `new`
        filter on them, by a literal, `PRESENT`, `ABSENT` or a function: where `value` does not hold, the object is
        left alone until it does; an edge for which `old` or `new` do not hold counts as handled.
        """
        if not isinstance(field, str) or not _FIELD.fullmatch(field):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError(
                f"on.field: {field!r} is no field: write it as 'spec.image', or '/spec/image'; a list is one value"
            )

        def register(function: HandlerF) -> HandlerF:
            selector = Selector(labels=dict(labels or {}), annotations=dict(annotations or {}), when=when)
            options = EdgeOptions(
                of=of,
                selector=selector,
                field=pointer_of(field),
                value=value,
                old=old,
                new=new,
                since=since,
                timeout=timeout,
                retries=retries,
                backoff=backoff,
                give_up_after=give_up_after,
                max_concurrency=max_concurrency,
                writes=writes,
            )
            self._register(function, "create", options)
            self._register(function, "update", None)
            return function

        return register

    @overload
    def event(
        self,
        of: type[ResourceBase] | None = None,
        *,
        labels: Mapping[str, Value] | None = None,
        annotations: Mapping[str, Value] | None = None,
        when: Callable[[Any], object] | None = None,
        timeout: timedelta = EFFECT_TIME,
        retries: int | None = None,
        backoff: timedelta | None = None,
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def event(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.event", "@op.on.event(Web)")
    def event(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function for each record of an object in the log, at least once, in order for each object.

        It runs in the processor that owns the object's partition, from a position of its own in SQL, and beside the
        calls for other objects. By name it takes `is_deleted: bool`, `origin: str` (`list` or `watch`), `recorded_at:
        datetime`, `sequence: int`, `retry: int` and `idempotency_key: str`, and a logger and the settings. What it
        raises holds up the later records of that object alone: it is called again, `retries` times or for ever, after
        `backoff` or a second, doubled up to a minute; then, and after `GiveUp`, the record is passed by. A handler that
        is new begins with what is recorded from then on; with an empty database, where the log begins.
        """
        function, said = function_or_class("on.event", of, options)
        selector, rest = taken_from(said)
        if unknown := rest.keys() - {"of", "timeout", "retries", "backoff"}:
            raise OperatorError(f"on.event: takes no option {min(unknown)!r}")

        def register(function: HandlerF) -> HandlerF:
            made = RecordHandler(function, RecordOptions(selector=selector, **rest), self._lender)
            self._register_records(made)
            return function

        return register if function is None else register(function)

    def _decorator(
        self, reason: Reason, of: HandlerF | type[ResourceBase] | None, options: Mapping[str, Any]
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        function, said = function_or_class(f"on.{reason}", of, options)
        selector, rest = taken_from(said)
        names = {"of", "since", "timeout", "retries", "backoff", "give_up_after", "max_concurrency", "writes"}
        names |= {"finalizer"} if reason == "delete" else set()
        if unknown := rest.keys() - names:
            fields = unknown & {"field", "value", "old", "new"}
            told = f': {min(fields)}= is for @op.on.field("spec.image")' if fields else ""
            raise OperatorError(f"on.{reason}: takes no option {min(unknown)!r}{told}")
        known = EdgeOptions(selector=selector, **rest) if said else None

        def register(function: HandlerF) -> HandlerF:
            self._register(function, reason, known)
            return function

        return register if function is None else register(function)


def _known(name: str) -> str:
    """The decorators that there are, or the one whose name is alike."""
    from difflib import get_close_matches  # noqa: PLC0415 - loaded by nobody who writes what there is

    names = [each for each in dir(On) if not each.startswith("_")]
    alike = get_close_matches(name, names, n=1)
    return f"did you mean @op.on.{alike[0]}?" if alike else f"there is no such decorator; there are {', '.join(names)}"
