"""The target of an intent, found once: the object that it names, or one that levelog chooses for calls and Events."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from levelog.effects import GROUP, EffectHandler
from levelog.handlers.callnames import call_target
from levelog.intents import Intent, addressed_event
from levelog.resources import EVENTS, ResourceType
from levelog_base.errors import OperatorError
from levelog_base.wire.objects import ObjectKey
from levelog_processors.bound import BoundView
from levelog_store.rows import StoredObject

EFFECTS_VERSION: Final = f"{GROUP}/v1"


class Aimed(Struct, frozen=True, kw_only=True):
    """An intent with its target: the object that it names, or one that levelog chooses."""

    intent: Intent
    target: ObjectKey
    api_version: str
    kind: str
    resource: ResourceType | None = None
    """Of the object that it writes to; None: the target is levelog's own choice."""
    body: bytes = b""
    """Content of a call or an Event."""

    @property
    def verb(self) -> str:
        """Verb of the intent."""
        return self.intent.verb


def aimed(view: BoundView, parent: StoredObject, intent: Intent) -> Aimed:
    """The intent with its target; without a namespace of its own, that is in the parent's.

    Raises OperatorError if the target needs a namespace, and neither has one, if the operator declares no such
    resource, and for a function that is no effect of the operator.
    """
    if intent.verb == "call":
        handler = _effect(view, intent)
        target, body = _called(view, parent, intent, handler), handler.encoded(intent.body)
        return Aimed(intent=intent, target=target, api_version=EFFECTS_VERSION, kind=handler.name, body=body)
    if intent.verb == "event":
        target, body = _event(view, parent, intent)
        return Aimed(intent=intent, target=target, api_version=EVENTS.api_version, kind=EVENTS.kind, body=body)
    resource = _target_type(view, intent)
    namespace = intent.namespace or parent.namespace
    if not namespace and resource.scope == "Namespaced":
        field = "metadata.namespace" if intent.verb in ("apply", "create") else "namespace=…"
        raise OperatorError(
            f"{intent.verb} of {resource.kind} {intent.name}: give {field}: the parent {parent.object} has none"
        )
    key, kind = resource.key(namespace, intent.name), resource.kind
    return Aimed(intent=intent, target=key, api_version=resource.api_version, kind=kind, resource=resource)


def refuse_stray(view: BoundView, parent: StoredObject, each: Aimed) -> None:
    """Raises OperatorError for an intent that its function does not say it yields.

    A parent with a namespace writes there alone, unless the function says otherwise.
    """
    if view.reconcile is None or each.verb == "call":
        return
    resource = each.resource or _target_type(view, each.intent)
    view.reconcile.refuse_undeclared(each.intent, resource)
    if parent.namespace and each.resource is not None and each.target.namespace != parent.namespace:
        view.reconcile.refuse_elsewhere(each.intent, resource, parent.object, str(each.target))


def _called(view: BoundView, parent: StoredObject, intent: Intent, handler: EffectHandler) -> ObjectKey:
    """The target of a call: calls of one effect, parent and name are in order.

    A deleted object keeps its name there, so that the call for its deletion follows the calls for its changes.
    """
    of = parent.name.removesuffix(f":{parent.uid}") if view.handler.is_of_deleted else parent.name
    target, own = call_target(view.operator, handler.name, parent.namespace, of), intent.options.name
    return replace(target, name=f"{target.name}:{own}") if own and own not in handler.in_line else target


def place_of_call(target: str, name: str) -> str:
    """Effect, parent and name: of each, the last call is kept. `target` may have the name already."""
    return target if not name or target.endswith(f":{name}") else f"{target}:{name}"


def _effect(view: BoundView, intent: Intent) -> EffectHandler:
    for handler in view.effects:
        if handler.function is intent.effect:
            return handler
    known = ", ".join(sorted(handler.name for handler in view.effects)) or "none"
    raise OperatorError(
        f"call of {intent.name}: it is no effect of the operator {view.operator!r}: decorate it with @op.effect; "
        f"known are: {known}"
    )


def _event(view: BoundView, parent: StoredObject, intent: Intent) -> tuple[ObjectKey, bytes]:
    resource = intent.resource.resource_type if intent.resource else view.handler.resource
    named: dict[str, str] = intent.body.get("regarding") or {
        "name": parent.name,
        "namespace": parent.namespace,
        "uid": parent.uid,
    }
    return addressed_event(intent, resource, named, view.operator)


def _target_type(view: BoundView, intent: Intent) -> ResourceType:
    """Resource that an intent writes to, or that an Event is about.

    Raises OperatorError if the operator declares no such resource.
    """
    if intent.resource is not None:
        return intent.resource.resource_type
    if intent.verb == "event":  # about the parent
        return view.handler.resource
    found = view.writes.get((intent.api_version, intent.kind))
    if found is None:
        served = ", ".join(f"{version} {kind}" for version, kind in sorted(view.writes))
        known = f"; there are: {served}" if served else ""
        raise OperatorError(
            f"{intent.verb} of {intent.kind} {intent.name}: no Resource class says where {intent.api_version} "
            f"{intent.kind} is served; define one and name it: "
            f'@op.reconcile({view.handler.name}, writes={{{intent.kind}: ["{intent.verb}"]}}){known}'
        )
    return found
