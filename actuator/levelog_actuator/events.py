"""Writes Kubernetes Events: a repeated one raises the count of the existing Event. No level waits for one."""

import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from levelog_actuator.judgedwrites import try_later
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import MERGE_PATCH, Order, Request, ask, patch_request
from levelog_actuator.results import Ended, Result
from levelog_base.wire.objects import parse_version
from levelog_base.wire.records import Outcome
from levelog_kube.client import KubeClient
from levelog_store.actuate.claims import ClaimedIntent

LAST_INTENT: Final = "levelog/last-intent"
"""Annotation: what wrote the Event last, so that it is not counted twice.

An intent's idempotency key, or, where several intents may tell of the same, the name in their options.
"""
_INSTANCE: Final = socket.gethostname()[:128]
_MICROSECONDS: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_TRANSIENT: Final = frozenset({0, 401, 404, 408, 409, 429})
"""Statuses after which an Event is tried again: no answer, no namespace yet, another actuator was first."""


class _Series(Struct):
    count: int = 1


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = "0"
    annotations: dict[str, str] = {}


class _Event(Struct):
    metadata: _Metadata
    series: _Series | None = None


_event: Final = msgspec.json.Decoder(_Event)


async def write_event(order: Order, client: KubeClient, settings: ActuatorSettings) -> Result:
    """Write the Event of an intent once, or raise the count of the one of its name.

    Events are best effort: one that the API refuses has failed, which the process logs; no level waits for it.
    """
    reply = await ask(client, _creation(order), settings.request)
    if reply.status == 409:
        reply = await ask(client, Request(method="GET", path=order.path), settings.request)
        if reply.status == 200:
            found = _event.decode(reply.body)
            if found.metadata.annotations.get(LAST_INTENT) == _occurrence(order):
                return _ended(order.intent, found, is_new=False)
            reply = await ask(client, _addition(order, found), settings.request)
    if 200 <= reply.status < 300:
        return _ended(order.intent, _event.decode(reply.body), is_new=True)
    text = f"event {order.intent.target}: {reply.status or 'no answer'} {reply.reason}: {reply.message}"
    if reply.status not in _TRANSIENT and reply.status < 500:
        return Ended(intent=order.intent, outcome="failed", error=text)
    return try_later(settings, order.intent, text, is_doubtful=False, reply=reply)  # it finds what it wrote


def _creation(order: Order) -> Request:
    body: dict[str, Any] = {
        **order.body,
        "apiVersion": order.intent.api_version,
        "kind": "Event",
        "metadata": {"name": order.target.name, "namespace": order.target.namespace} | _noted(order),
        "eventTime": _now(),
        "reportingInstance": _INSTANCE,
    }
    path = order.path.rpartition("/")[0]
    return Request(method="POST", path=path, query=_query(order), body=msgspec.json.encode(body))


def _addition(order: Order, found: _Event) -> Request:
    """One more of it; nothing else of an Event may be changed."""
    count = (found.series.count if found.series else 1) + 1
    patch = {
        "metadata": {"resourceVersion": found.metadata.resource_version} | _noted(order),
        "series": {"count": count, "lastObservedTime": _now()},
    }
    return patch_request(order.path, _query(order), patch, MERGE_PATCH)


def _now() -> str:
    return datetime.now(UTC).strftime(_MICROSECONDS)


def _noted(order: Order) -> dict[str, Any]:
    return {"annotations": {LAST_INTENT: _occurrence(order)}}


def _occurrence(order: Order) -> str:
    return order.options.name or order.intent.key


def _query(order: Order) -> Mapping[str, str]:
    return {"fieldManager": order.field_manager}


def _ended(intent: ClaimedIntent, found: _Event, *, is_new: bool) -> Ended:
    version = parse_version(found.metadata.resource_version)
    outcome: Outcome = "written" if is_new else "unchanged"
    return Ended(intent=intent, outcome=outcome, uid=found.metadata.uid, version=version)
