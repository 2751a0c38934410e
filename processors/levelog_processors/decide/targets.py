"""The target of an intent: the object that it names, or one that levelog chooses for calls and Events."""

from typing import Final

from msgspec import Struct

from levelog.effects import GROUP, EffectHandler
from levelog.intents import Intent, addressed_event
from levelog.resources import EVENTS, ResourceType
from levelog_base.errors import OperatorError
from levelog_base.wire.objects import ObjectKey
from levelog_processors.bound import BoundView
from levelog_store.rows import StoredObject

EFFECTS_VERSION: Final = f"{GROUP}/v1"


class Outward(Struct, frozen=True, kw_only=True):
    """The target of an intent, and the content to send."""

    target: ObjectKey
    api_version: str
    kind: str
    body: bytes


def is_outward(intent: Intent) -> bool:
    """Tell whether the target of an intent is levelog's own choice."""
    return intent.verb in ("call", "event")


def addressed(view: BoundView, parent: StoredObject, intent: Intent) -> Outward:
    """Target and body of a call or an Event. Raises OperatorError for a function that is no effect of the operator."""
    return _call(view, parent, intent) if intent.verb == "call" else _event(view, parent, intent)


def _call(view: BoundView, parent: StoredObject, intent: Intent) -> Outward:
    handler = _effect(view, intent)
    target, body = _called(view, parent, intent, handler), handler.encoded(intent.body)
    return Outward(target=target, api_version=EFFECTS_VERSION, kind=handler.name, body=body)


def _called(view: BoundView, parent: StoredObject, intent: Intent, handler: EffectHandler) -> ObjectKey:
    """The target of a call, `page.effects/default/shop`: calls of one effect, parent and name are in order.

    A deleted object keeps its name there, so that the call for its deletion follows the calls for its changes.
    """
    of = parent.name.removesuffix(f":{parent.uid}") if view.handler.is_of_deleted else parent.name
    own = "" if intent.options.name in handler.in_line else intent.options.name
    name = f"{of}:{own}" if own else of
    return ObjectKey(group=GROUP, resource=handler.name, namespace=parent.namespace, name=name)


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


def _event(view: BoundView, parent: StoredObject, intent: Intent) -> Outward:
    resource = intent.resource.resource_type if intent.resource else view.handler.resource
    named: dict[str, str] = intent.body.get("regarding") or {
        "name": parent.name,
        "namespace": parent.namespace,
        "uid": parent.uid,
    }
    target, body = addressed_event(intent, resource, named, view.operator)
    return Outward(target=target, api_version=EVENTS.api_version, kind=EVENTS.kind, body=body)


def target_type(view: BoundView, intent: Intent) -> ResourceType:
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


def require_target(view: BoundView, parent: StoredObject, intent: Intent) -> None:
    """Raises OperatorError for an intent without a place to go, or one that its function does not say it yields.

    A parent with a namespace writes there alone, unless the function says otherwise.
    """
    target = addressed(view, parent, intent).target if is_outward(intent) else target_key(view, parent, intent)
    if view.reconcile is None or intent.verb == "call":
        return
    resource = target_type(view, intent)
    view.reconcile.refuse_undeclared(intent, resource)
    if parent.namespace and not is_outward(intent) and target.namespace != parent.namespace:
        view.reconcile.refuse_elsewhere(intent, resource, parent.object, str(target))


def target_key(view: BoundView, parent: StoredObject, intent: Intent) -> ObjectKey:
    """Object that an intent writes to; without a namespace of its own it is in the parent's.

    Raises OperatorError if it needs a namespace, and neither has one.
    """
    if intent.verb == "call":  # whose request may be large
        return _called(view, parent, intent, _effect(view, intent))
    if intent.verb == "event":
        return _event(view, parent, intent).target
    resource = target_type(view, intent)
    namespace = intent.namespace or parent.namespace
    if not namespace and resource.scope == "Namespaced":
        field = "metadata.namespace" if intent.verb in ("apply", "create") else "namespace=…"
        raise OperatorError(
            f"{intent.verb} of {resource.kind} {intent.name}: give {field}: the parent {parent.object} has none"
        )
    return resource.key(namespace, intent.name)
