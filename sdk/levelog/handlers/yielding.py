"""Intents of edge handlers: stored as the result of the call, then written through a view of unwritten ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from levelog.edges import Edge
from levelog.effects import Call, EffectHandler, GiveUp
from levelog.handlers.fingerprints import value_fingerprint
from levelog.handlers.injection import Lender
from levelog.handlers.signatures import declared
from levelog.handlers.viewhandlers import ReconcileHandler, ViewHandler, Writes, WrittenClass
from levelog.indices import Index
from levelog.intents import Intent, IntentOptions, Verb, call
from levelog.levels import Level
from levelog.resources import ResourceBase, ResourceType
from levelog.selectors import Selector
from levelog_base.wire.canonical import digest

if TYPE_CHECKING:
    from levelog_base.secrets.redaction import Redactor

_CODE: Final = "yielding 1"
"""Stands for this module in fingerprints: raised when the same calls lead to other writes."""


class YieldedIntent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An intent as the result of a call keeps it."""

    verb: Verb
    resource: str = ""
    """As `pods` or `webs.example.com`; empty: it is a call."""
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str
    body: Any = None
    options: IntentOptions = IntentOptions()


Yielded: TypeAlias = tuple[YieldedIntent, ...] | None
"""What a call yielded; None: the function was not called for that edge."""


class Yields:
    """What one handler may yield: intents for some classes, and calls of the operator's effects."""

    def __init__(
        self,
        handler: str,
        parent: type[ResourceBase],
        writes: Sequence[WrittenClass],
        effects: Mapping[str, EffectHandler],
    ) -> None:
        """`effects` are those of the operator, those that are defined below the handler too."""
        self._handler = handler
        self._parent = parent
        self.writes = writes
        self._classes = {str(each.resource.group_resource): each.cls for each in writes}
        self._effects = effects

    def kept(self, yielded: Sequence[Any], *, is_end: bool) -> tuple[YieldedIntent, ...]:
        """Intents as the result of a call has them. Raises GiveUp for what is none, or not declared.

        The owner that has ended owns nothing: a child of it would be collected at once.
        """
        return tuple(self._kept(each, is_end=is_end) for each in yielded)

    def refuse_secrets(self, kept: Yielded, redactor: "Redactor") -> None:
        """Raises GiveUp for intents with values that are not recorded: what a call yields goes into the log."""
        for each in kept or ():
            if each.verb == "call":
                continue
            resource = self._classes[each.resource].resource_type
            content = redactor.redact_content(resource.key(each.namespace, each.name), each.body)
            if content.content is not each.body:
                raise GiveUp(
                    f"it took place, but yielded {each.verb} of {resource.kind} {each.name} with secret values, which "
                    "would be recorded: have it written by a view and a reconcile function"
                )

    def _kept(self, intent: Any, *, is_end: bool) -> YieldedIntent:
        if not isinstance(intent, Intent):
            raise GiveUp(
                f"it took place, but yielded {type(intent).__name__}, which is not an intent: apply(…), patch(…), "
                "delete(…) and call(…) make one"
            )
        has_owner = intent.options.owned and not (is_end and intent.verb in ("apply", "create"))
        options = msgspec.structs.replace(intent.options, owned=has_owner)
        values = {name: getattr(intent, name) for name in ("verb", "api_version", "kind", "namespace", "name", "body")}
        if intent.verb == "call":
            self._effect(intent)
            return YieldedIntent(**values, options=options)
        resource = self._resource(intent)
        return YieldedIntent(**values, resource=str(resource.group_resource), options=options)

    def _effect(self, intent: Intent) -> None:
        known = self._effects.get(intent.name)
        if known is None or known.function is not intent.effect:
            raise GiveUp(f"it took place, but yielded a call of {intent.name}, which is no effect of the operator")

    def _resource(self, intent: Intent) -> ResourceType:
        if intent.resource is not None:
            wanted: ResourceType | None = intent.resource.resource_type
        elif intent.verb == "event":
            wanted = self._parent.resource_type
        else:
            named = (each.resource for each in self.writes)
            wanted = next((r for r in named if (r.api_version, r.kind) == (intent.api_version, intent.kind)), None)
        kind = wanted.kind if wanted is not None else intent.kind
        for each in self.writes:
            if each.resource == wanted and intent.verb in each.verbs:
                return each.resource
        raise GiveUp(
            f"it took place, but yielded {intent.verb} of {kind} {intent.name}, which its writes= do not name: declare "
            f'it, writes={{{kind}: ["{intent.verb}"]}}, and grant what `levelog rbac` prints'
        )

    def intents(self, kept: Sequence[YieldedIntent]) -> list[Intent]:
        """The intents again."""
        return [self._intent(each) for each in kept]

    def _intent(self, kept: YieldedIntent) -> Intent:
        effect = self._effects[kept.name].function if kept.verb == "call" else None
        is_manifest = kept.verb in ("apply", "create", "call")
        return Intent(
            verb=kept.verb,
            resource=None if is_manifest else self._classes[kept.resource],
            api_version=kept.api_version,
            kind=kept.kind,
            namespace=kept.namespace,
            name=kept.name,
            body=kept.body,
            options=kept.options,
            effect=effect,
        )


def last_yielding(calls: Sequence[Call[Edge, Yielded]], *, end: str | None = None) -> Call[Edge, Yielded] | None:
    """The last call if it has yielded anything: that of the object's end by its name, or of what it is."""
    return next((each for each in calls if each.name == (end or "") and each.result), None)


def written_effect(name: str, lender: Lender) -> EffectHandler:
    """The effect, and so the index, of the calls whose intents were written: it does nothing and is remembered."""

    async def note(call_key: str) -> None:
        """Nothing is done."""

    note.__name__ = name
    made = EffectHandler(note, lender)
    made.title = f"note {name}"
    made.fingerprint = digest(_CODE, name)
    return made


def writes_view(
    name: str,
    calls: tuple[str, Any],
    written: str,
    end: str | None,
    inspect_view: Callable[..., ViewHandler],
) -> ViewHandler:
    """The view of the last call that yielded intents, against the last one whose intents are written.

    `calls` are the index of calls and its type, `written` is that of the notes. `end`: name of the call for the end of
    an object, whose intents are written once it is gone; None: the view is of objects that are there.
    """
    index, kind = calls

    def view(parent: Mapping[str, Any], **read: Any) -> Level[Any]:
        uid = parent["metadata"]["uid"]
        last = last_yielding(list(read[index][uid]), end=end)
        if last is None:
            return Level(desired=None, actual=None)
        noted = [each.request for each in read[written][uid] if each.name == (end or "")]
        wanted = {"call": last.idempotency_key, "intents": msgspec.to_builtins(last.result)}
        return Level(desired=wanted, actual=wanted if last.idempotency_key in noted else None)

    annotations: dict[str, Any] = {"parent": Mapping[str, Any], index: kind, written: Index[str, Call[str, None]]}
    # what was yielded is written, whatever the filters say by then
    made = inspect_view(declared(view, name, annotations, Level[Any]), selector=Selector())
    made.writes_once = made.is_made = True
    made.is_of_deleted = end is not None
    made.fingerprint = digest(_CODE, name, str(end))
    return made


def writes_writer(
    view: ViewHandler, yielding: Yields, note: EffectHandler, end: str | None, writes: Writes, lender: Lender
) -> ReconcileHandler:
    """The reconcile function of such a view: what was yielded, and then the note that it is written."""

    async def write(  # async, so that it needs no thread
        parent: Mapping[str, Any],  # noqa: ARG001
        level: Level[Any],
        is_written: bool,
    ) -> list[Intent]:
        wanted = level.desired
        if is_written:
            return [call(note.function, wanted["call"], name=end or "")]
        return yielding.intents(msgspec.convert(wanted["intents"], tuple[YieldedIntent, ...]))

    write.__name__ = f"{view.name}.write"
    made = ReconcileHandler(write, view, writes, lender)
    made.fingerprint = digest(_CODE, view.name, value_fingerprint(tuple(map(str, yielding.writes))))
    return made
