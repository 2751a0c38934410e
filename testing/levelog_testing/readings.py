"""What a test can read of a simulation."""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec import Struct

from levelog.handlers.signatures import shown
from levelog.levels import Drift, drift_between
from levelog_store.rows import LevelRow


class NotSeen(KeyError):
    """There is no such view, or no level of it; the message says what there is."""

    def __str__(self) -> str:
        return str(self.args[0])  # as it was written: KeyError itself shows it quoted, with escapes


class SeenLevel(Struct, frozen=True, kw_only=True):
    """A level; desired and actual have the type in the view's annotation."""

    status: str
    """in_sync, drifting, settling, failed, blocked or deleting."""
    reason: str
    """Why it is not in sync; empty if it is."""
    desired: Any
    actual: Any
    round: int
    """The number of calls of its reconcile function that returned."""

    @property
    def drift(self) -> Drift:
        """How actual differs from desired."""
        return drift_between(self.desired, self.actual)


class SeenIntent(Struct, frozen=True, kw_only=True):
    """An intent and what happened to it."""

    verb: str
    target: str
    """`pods/default/shop-0`"""
    idempotency_key: str
    state: str
    """pending, claimed, written, settled, satisfied, failed or superseded."""
    body: Any
    """The manifest or patch that is sent; None for a delete."""
    attempts: int
    """The number of times that it was sent."""
    error: str
    """The last answer of the cluster, if it was an error."""


class SeenEvent(Struct, frozen=True, kw_only=True):
    """A Kubernetes Event, as users see it."""

    type: str
    """Normal or Warning."""
    reason: str
    action: str
    note: str
    kind: str
    """Kind of the object that the Event is about."""
    namespace: str
    name: str
    count: int
    """The number of times that it happened."""


def seen_event(event: Mapping[str, Any]) -> SeenEvent:
    """Decode an Event of events.k8s.io/v1."""
    about = event.get("regarding") or {}
    return SeenEvent(
        **{name: event.get(name, "") for name in ("type", "reason", "action", "note")},
        **{name: about.get(name, "") for name in ("kind", "namespace", "name")},
        count=(event.get("series") or {}).get("count", 1),
    )


def seen_level(row: LevelRow, returns: Any) -> SeenLevel:
    """Decode a row with the type that the view is annotated to return, `Level[T]`."""
    arguments = get_args(returns)
    value_type = arguments[0] if arguments else Any

    def decoded(side: str, value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return msgspec.json.decode(value, type=value_type)
        except msgspec.ValidationError as error:
            asked = f"{row.view} is annotated to return {shown(returns)}"
            raise TypeError(f"{asked}, and {side} for {row.parent} is {value.decode()}: {error}") from error

    return SeenLevel(
        status=row.status,
        reason=row.reason,
        desired=decoded("desired", row.desired),
        actual=decoded("actual", row.actual),
        round=row.round,
    )
