"""`op.on`: the decorators of edge handlers and hooks."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Unpack, overload

from msgspec import UNSET

from levelog.calls.limits import CallKeywords
from levelog.edges import Reason, pointer_of
from levelog.handlers.callregistry import CallRegistry
from levelog.handlers.forobjects import RecordHandler, options_of
from levelog.handlers.hooks import Hooks
from levelog.handlers.injection import Lender
from levelog.handlers.readers import function_or_class
from levelog.handlers.signatures import needs, one_place
from levelog.handlers.viewhandlers import Writes
from levelog.resources import ResourceBase
from levelog.selectors import alike
from levelog_base.errors import OperatorError

_FIELD: Final = re.compile(r"[^./\[\]][^.\[\]]*(\.[^.\[\]]+)*|(/[^/]+)+")
"""A field by its keys between dots, or as a JSON pointer."""

_OF_EDGES: Final = ("since", "writes")
_INSTEAD: Final = {
    "validate": "levelog serves no webhooks: write the rule into the definition, docs/custom-resources.md",
    "mutate": "levelog serves no webhooks: write defaults into the definition, docs/custom-resources.md",
    "webhook": "levelog serves no webhooks: write the rule into the definition, docs/custom-resources.md",
    "login": "levelog logs in by itself, with KUBECONFIG or as the service account of its pod",
    "probe": "levelog answers probes by itself: --listen, docs/monitoring.md",
    **{
        name: f"write @op.{name}"
        for name in ("timer", "daemon", "index", "view", "reconcile", "children", "effect", "source")
    },
}
"""What is no decorator of `op.on`, and what to write instead."""

HandlerF = TypeVar("HandlerF", bound=Callable[..., Any])


class EdgeKeywords(CallKeywords, total=False):
    """Those of edge handlers, which may write."""

    writes: Writes | None


class On(Hooks):
    """Registers edge handlers and hooks of an operator.

    An edge handler takes an object of a class derived from Resource, or a `Mapping[str, Any]` if the decorator names
    the class: `@op.on.create(Web)`. By name it may also take `old`, `new`, `diff: Diff`, `reason: str`, `retry: int`,
    `started: datetime` (when the call was decided), `idempotency_key: str`, a logger and the settings.

    It may yield intents for the classes in `writes`. levelog writes them once the handler has returned, and calls it
    again only after that. You may stack these decorators on a function; give the options in one of them.
    """

    def __init__(self, lender: Lender, indices: Mapping[str, object], calls: CallRegistry) -> None:
        super().__init__(lender, indices)
        self._calls = calls

    if not TYPE_CHECKING:  # whose readers are to go on knowing which names there are

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"op.on has no {name!r}")
            raise OperatorError(f"op.on.{name}: {_INSTEAD.get(name) or _known(name)}")

    @overload
    def create(
        self, of: type[ResourceBase] | None = None, *, since: datetime | None = None, **options: Unpack[EdgeKeywords]
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def create(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.create", "@op.on.create(Web)")
    def create(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function once for each object: for new ones, and for existing ones that it has not handled yet.

        It is called at least once, until it returns. If it raises, or takes longer than `timeout`, it is called again:
        up to `retries` times or for ever, after `backoff` or by the schedule of writes. `GiveUp` ends that, and so does
        `give_up_after`, counted from when the call was decided; at least one attempt is made. An object that the
        filters exclude is not handled until they include it. At most `max_concurrency` calls of the function run at a
        time in one process; None: no limit of its own.

        Set `since` to the time, with its zone, when you first deployed the handler. Objects created before that are for
        `resume`, if the function has it; otherwise levelog only notes them, to handle their changes and their deletion.
        """
        return self._decorator("create", of, options)

    @needs("resume", "since", "datetime(2026, 11, 1, tzinfo=UTC)")
    def resume(
        self, of: type[ResourceBase] | None = None, *, since: datetime, **options: Unpack[EdgeKeywords]
    ) -> Callable[[HandlerF], HandlerF]:
        """Call the function once for each object that was created before `since`, when the handler did not exist yet.

        A restart calls nothing again. The options are those of `create`.
        """
        return self._decorator("resume", of, {"since": since, **options})  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @overload
    def update(
        self, of: type[ResourceBase] | None = None, *, since: datetime | None = None, **options: Unpack[EdgeKeywords]
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def update(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.update", "@op.on.update(Web)")
    def update(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function when an object differs from the state that the function last handled or first saw.

        A change that is undone before the call causes none; several changes cause one call. If a call fails and the
        object changes meanwhile, the next attempt gets the newer state. The options are those of `create`.
        """
        return self._decorator("update", of, options)

    @overload
    def delete(
        self,
        of: type[ResourceBase] | None = None,
        *,
        since: datetime | None = None,
        finalizer: bool = False,
        **options: Unpack[EdgeKeywords],
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def delete(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.delete", "@op.on.delete(Web)")
    def delete(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function after an object is gone, with its last state; this needs no finalizer.

        It is called for an object that went while nothing ran, too. It is called only for objects that levelog knew:
        the same function handled them in `create` or `update`, or levelog noted them when it first saw them; and only
        if the filters took the object as it was last. The options are those of `create`.

        With `finalizer=True` it is called before that: the object is being deleted, and stays until the function has
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
        since: datetime | None = None,
        **options: Unpack[EdgeKeywords],
    ) -> Callable[[HandlerF], HandlerF]:
        """Call the function when an object is new or one of its fields changes: `spec.image`, or `/spec/image`.

        Its parameters `old` and `new` are the values of the field, None if it is absent. `value`, `old` and `new`
        filter them by a literal, `PRESENT`, `ABSENT` or a function. An object whose value does not pass `value` is left
        alone until it does; a change that does not pass `old` or `new` counts as handled.
        """
        if not isinstance(field, str) or not _FIELD.fullmatch(field):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperatorError(
                f"on.field: {field!r} is no field: write it as 'spec.image', or '/spec/image'; a list is one value"
            )

        said = {"of": of, "field": pointer_of(field), "value": value, "old": old, "new": new, "since": since, **options}

        def register(function: HandlerF) -> HandlerF:
            known = options_of("on.field", said, *_OF_EDGES, "field", "value", "old", "new")
            self._calls.register(function, "create", known)
            self._calls.register(function, "update", None)
            return function

        return register

    @overload
    def event(
        self, of: type[ResourceBase] | None = None, **options: Unpack[CallKeywords]
    ) -> Callable[[HandlerF], HandlerF]: ...

    @overload
    def event(self, function: HandlerF, /) -> HandlerF: ...

    @one_place("on.event", "@op.on.event(Web)")
    def event(
        self, of: HandlerF | type[ResourceBase] | None = None, **options: Any
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        """Call the function for each record of an object in the log, at least once, in order for each object.

        It runs in the processor that owns the object's partition, reads from its own position in SQL, and handles
        several objects concurrently. By name it may take `is_deleted: bool`, `origin: str` (`list` or `watch`),
        `recorded_at: datetime`, `sequence: int`, `retry: int`, `idempotency_key: str`, a logger and the settings.

        If it raises, the later records of that object wait. It is called again, up to `retries` times or for ever,
        after `backoff`, or after a second, doubled up to a minute. After the last retry, after `GiveUp`, or
        `give_up_after` the record was made, the record is skipped. A new handler begins with the records that come
        after it; with an empty database, at the beginning of the log.
        """
        function, said = function_or_class("on.event", of, options)
        known = options_of("on.event", said)

        def register(function: HandlerF) -> HandlerF:
            self._calls.take(RecordHandler(function, known, self._lender))
            return function

        return register if function is None else register(function)

    def _decorator(
        self, reason: Reason, of: HandlerF | type[ResourceBase] | None, options: Mapping[str, Any]
    ) -> HandlerF | Callable[[HandlerF], HandlerF]:
        function, said = function_or_class(f"on.{reason}", of, options)
        if fields := said.keys() & {"field", "value", "old", "new"}:
            raise OperatorError(
                f'on.{reason}: takes no option {min(fields)!r}: {min(fields)}= is for @op.on.field("spec.image")'
            )
        more = (*_OF_EDGES, "finalizer") if reason == "delete" else _OF_EDGES
        known = options_of(f"on.{reason}", said, *more) if said else None

        def register(function: HandlerF) -> HandlerF:
            self._calls.register(function, reason, known)
            return function

        return register if function is None else register(function)


def _known(name: str) -> str:
    """The decorators that there are, or the one whose name is alike."""
    names = [each for each in dir(On) if not each.startswith("_")]
    meant = alike(name, names)
    return f"did you mean @op.on.{meant}?" if meant else f"there is no such decorator; there are {', '.join(names)}"
