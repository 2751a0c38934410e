"""Spans of decisions, writes and calls, where an operator file or an agent has set up OpenTelemetry.

levelog does not depend on OpenTelemetry and never imports it: it uses the API that is loaded already, if that has a
provider. Else there are no hooks, and nothing is paid.
"""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen, ReceiptNoted, is_traceparent

if TYPE_CHECKING:
    from levelog_actuator.actuator import Actuator
    from levelog_actuator.results import Result
    from levelog_processors.decide.tally import EvaluationBatch
    from levelog_processors.processor import Processor
    from levelog_store.actuate.claims import ClaimedIntent
    from levelog_store.decide.decisions import Decided

API: Final = "opentelemetry.trace"
MOST_REMEMBERED: Final = 10_000
"""Records, and decided intents, that later spans may refer to; of more, the oldest are forgotten."""
# As OpenTelemetry's semantic conventions name them: https://opentelemetry.io/docs/specs/semconv/registry/attributes/k8s/
_KINDS: Final = {
    "pods": "pod",
    "nodes": "node",
    "namespaces": "namespace",
    "resourcequotas": "resourcequota",
    "replicationcontrollers": "replicationcontroller",
    "deployments.apps": "deployment",
    "replicasets.apps": "replicaset",
    "statefulsets.apps": "statefulset",
    "daemonsets.apps": "daemonset",
    "jobs.batch": "job",
    "cronjobs.batch": "cronjob",
    "horizontalpodautoscalers.autoscaling": "hpa",
}


class TracedPlace(Struct, frozen=True, kw_only=True):
    """The attributes of a process."""

    cluster: str
    """uid of kube-system, as the conventions have it too."""
    application: str
    stream: str
    database: str
    """`postgresql` or `sqlite`."""


class _Origin(NamedTuple):
    """The attributes of a link to a record."""

    traceparent: str
    record_id: str
    object: str


def tracer_in_use() -> Any:
    """The tracer of the provider that this process has; None if it has none."""
    api = sys.modules.get(API)
    if api is None or isinstance(provider := api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    return provider.get_tracer("levelog")


class Tracing:
    """Makes the spans of one process. `tracer` is OpenTelemetry's, whose API has to be loaded."""

    def __init__(self, tracer: Any, place: TracedPlace) -> None:
        self._api: Any = sys.modules[API]
        self._tracer = tracer
        self._place = place
        self._origins: OrderedDict[int, _Origin] = OrderedDict()
        self._decisions: OrderedDict[str, Any] = OrderedDict()
        """Contexts of the spans that intents were decided in, by idempotency key."""

    def processor(self, processor: "Processor") -> None:
        """Make a span for each of its decisions, beside what hears of them already."""
        health, others = processor.health, processor.health.on_batch

        def on_batch(batch: "EvaluationBatch", seconds: float) -> None:
            others(batch, seconds)
            self.decided(batch.decided, seconds)

        health.on_turn, health.on_batch = self.read, on_batch

    def actuator(self, actuator: "Actuator") -> None:
        """Make a span for each of its writes and calls."""
        actuator.observers.attempting = self.attempting

    def read(self, records: Sequence[LoggedRecord]) -> None:
        """Remember what decisions may link to."""
        for logged in records:
            record = logged.record
            match record:
                case ObjectSeen() | ObjectDeleted():
                    _remember(
                        self._origins, logged.sequence, _Origin(record.traceparent, logged.record_id, str(record.key))
                    )
                case ReceiptNoted():
                    _remember(self._origins, logged.sequence, _Origin("", logged.record_id, str(record.target)))
                case _:
                    pass

    def decided(self, decided: "Sequence[Decided]", seconds: float) -> None:
        """A batch of so many seconds has just committed."""
        end = time.time_ns()
        kept = [each for each in decided if each.is_recorded]
        for each in kept:
            span = self._tracer.start_span(
                f"decide {each.level.view}",
                context=_nothing(),
                kind=self._api.SpanKind.CONSUMER,
                attributes=self._of_decision(each, len(kept)),
                links=self._links(each.wake.causes),
                start_time=end - int(seconds * 1e9),
            )
            if each.level.status == "failed":
                self._fail(span, each.level.reason)
            for row in each.intents:
                _remember(self._decisions, row.key, span.get_span_context())
            span.end(end)

    @contextmanager
    def attempting(self, intent: "ClaimedIntent") -> "Generator[Callable[[Result], None]]":
        """A span around an attempt, in which whatever it calls makes its own."""
        decided = self._decisions.get(intent.key)
        parent = _nothing()
        if decided is not None:
            parent = self._api.set_span_in_context(self._api.NonRecordingSpan(decided), parent)
        key = ObjectKey.parse(intent.target)
        is_call = intent.verb == "call"
        with self._tracer.start_as_current_span(
            f"call {key.resource}" if is_call else f"{intent.verb} {key.group_resource}",
            context=parent,
            kind=self._api.SpanKind.INTERNAL if is_call else self._api.SpanKind.CLIENT,
            attributes=self._of_intent(intent, key),
        ) as span:
            yield lambda result: self._end(span, result)

    def _end(self, span: Any, result: "Result") -> None:
        outcome = getattr(result, "outcome", "postponed")
        span.set_attribute("levelog.outcome", outcome)
        if answer := getattr(result, "answer", 0):
            span.set_attribute("http.response.status_code", answer)
        if outcome in ("failed", "postponed"):
            self._fail(span, result.error)

    def _fail(self, span: Any, reason: str) -> None:
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, reason))

    def _links(self, causes: str) -> list[Any]:
        """To the records that asked for a decision; those without a trace are told by their attributes."""
        links: list[Any] = []
        for sequence in map(int, filter(None, causes.split(","))):
            origin = self._origins.get(sequence, _Origin("", "", ""))
            attributes = {
                "levelog.sequence": sequence,
                "messaging.message.id": origin.record_id,
                "levelog.object": origin.object,
            }
            known = {name: value for name, value in attributes.items() if value != ""}
            links.append(self._api.Link(self._context(origin.traceparent), known))
        return links

    def _context(self, traceparent: str) -> Any:
        if not is_traceparent(traceparent):
            return self._api.INVALID_SPAN_CONTEXT
        _, trace, span, flags = traceparent.split("-")
        return self._api.SpanContext(
            int(trace, 16), int(span, 16), is_remote=True, trace_flags=self._api.TraceFlags(int(flags, 16))
        )

    def _of_decision(self, decided: "Decided", commits: int) -> dict[str, Any]:
        level = decided.level
        parent = ObjectKey.parse(level.parent)
        return {
            **self._of_object(parent, level.parent_uid),
            "messaging.system": "nats",
            "messaging.operation.type": "process",
            "messaging.operation.name": "decide",
            "messaging.destination.name": self._place.stream,
            "db.system.name": self._place.database,
            "db.operation.batch.size": commits,
            "levelog.application": self._place.application,
            "levelog.view": level.view,
            "levelog.parent": level.parent,
            "levelog.round": level.round,
            "levelog.status": level.status,
            "levelog.status.before": decided.basis.status,
            "levelog.intents": [row.key for row in decided.intents],
        }

    def _of_intent(self, intent: "ClaimedIntent", key: ObjectKey) -> dict[str, Any]:
        # What an effect is called for is its parent.
        about = ObjectKey.parse(intent.parent) if intent.verb == "call" else key
        uid = intent.parent_uid if intent.verb == "call" else intent.target_uid
        return {
            **self._of_object(about, uid),
            "levelog.application": self._place.application,
            "levelog.view": intent.view,
            "levelog.parent": intent.parent,
            "levelog.round": intent.round,
            "levelog.verb": intent.verb,
            "levelog.target": intent.target,
            "levelog.intent": intent.key,
            "levelog.attempt": intent.attempts,
        }

    def _of_object(self, key: ObjectKey, uid: str) -> Mapping[str, str]:
        found = {"k8s.cluster.uid": self._place.cluster}
        if key.namespace:
            found["k8s.namespace.name"] = key.namespace
        if kind := _KINDS.get(str(key.group_resource)):
            found[f"k8s.{kind}.name"] = key.name
            if uid:
                found[f"k8s.{kind}.uid"] = uid
        return found


def _nothing() -> Any:
    """An empty context: what levelog does belongs to no span that happened to be open when its tasks began."""
    return sys.modules["opentelemetry.context"].Context()


def _remember(known: "OrderedDict[Any, Any]", name: object, value: object) -> None:
    known[name] = value
    if len(known) > MOST_REMEMBERED:
        known.popitem(last=False)
