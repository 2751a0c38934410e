"""What an actuator may do: the verbs of the API that each verb of an intent needs, and what the code declares."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from levelog.handlers.viewhandlers import ReconcileHandler, WrittenClass, writes_of
from levelog.intents import Verb
from levelog_actuator.requests import Order
from levelog_base.wire.objects import ObjectKey


class Right(Struct, frozen=True):
    """A verb of the API on a resource, or on a subresource of it."""

    verb: str
    subresource: str = ""


_LOOK: Final = Right("get")
"""Asked for a target that the decision did not see, and after a request whose effect is not known."""

RIGHTS: Final[Mapping[Verb, tuple[Right, ...]]] = {
    "apply": (_LOOK, Right("patch"), Right("create")),  # a server-side apply of what is not there needs both
    "create": (_LOOK, Right("create")),
    "patch": (_LOOK, Right("patch")),
    "patch_status": (_LOOK, Right("patch", "status")),
    "delete": (_LOOK, Right("delete")),
    "event": (_LOOK, Right("patch"), Right("create")),  # of Events, not of what they are about
}
"""Verbs of the API by the verb of the intent."""


def undeclared(function: ReconcileHandler | None, order: Order, parent: ObjectKey) -> str:
    """Why the function that is loaded yields no such write, whatever the tables say; empty: it may.

    Processors hold each intent against the same before: other code decided this one, or other hands wrote it.
    """
    if function is None:
        return "the code of this process has no reconcile function for its view"
    writes = function.writes or ()
    is_event = order.verb == "event"
    declared = _about(writes, order.body) if is_event else writes_of(writes, order.target.group_resource)
    if function.writes is not None and not any(order.verb in each.verbs for each in declared):
        return f"writes= of {function.name} does not name it in the code of this process"
    is_elsewhere = not is_event and parent.namespace not in ("", order.target.namespace)
    if is_elsewhere and not any(each.is_anywhere for each in declared):
        return f"it is not in the namespace of {parent}, where {function.name} writes alone"
    return ""


def _about(writes: Sequence[WrittenClass], event: Any) -> list[WrittenClass]:
    """What is declared of the kind that an Event is about, in any version of its group."""
    match event:
        case {"regarding": {"apiVersion": str(version), "kind": str(kind)}}:
            named = (version.rpartition("/")[0], kind)
            return [each for each in writes if (each.resource.group, each.resource.kind) == named]
        case _:
            return []
