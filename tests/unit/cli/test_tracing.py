"""Spans as an SDK gets them, of decisions and attempts that the test makes up."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from levelog_actuator.results import Ended, Later
from levelog_base.wire.objects import ObjectKey, Partition, Sequence, Uid, Version
from levelog_base.wire.records import LoggedRecord, ObjectSeen
from levelog_cli.monitoring.tracing import MOST_REMEMBERED, TracedPlace, Tracing
from levelog_store.actuate.claims import ClaimedIntent
from levelog_store.decide.decisions import Basis, Decided, IntentRow, PendingWake
from levelog_store.rows import LevelRow
from rigs.intents import claimed_intent, intent

sdk: Any = pytest.importorskip(
    "opentelemetry.sdk.trace", reason="the Python package opentelemetry-sdk is not installed"
)
export: Any = pytest.importorskip("opentelemetry.sdk.trace.export")
memory: Any = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

SHOP = "webs.example.com/default/shop"
PLACE = TracedPlace(cluster="c-1", application="webs", stream="levelog-c-1", database="postgresql")
ROW = intent("pods/default/shop-0", verb="apply")
PARENT = f"00-{7:032x}-{8:016x}-01"


class Traced:
    """Tracing with an exporter that keeps what it gets; its provider is nobody else's."""

    def __init__(self) -> None:
        self.exporter = memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("levelog")
        self.tracing = Tracing(self.tracer, PLACE)

    @property
    def spans(self) -> tuple[Any, ...]:
        return tuple(self.exporter.get_finished_spans())


def decided(status: Any, *rows: IntentRow, causes: str = "", is_recorded: bool = True) -> Decided:
    level = LevelRow(view="webs/pods", parent=SHOP, partition=1, parent_uid="u", status=status, reason="it raised")
    wake = PendingWake(view="webs/pods", parent=SHOP, partition=1, cause=0, causes=causes, generation=1, due_at=None)
    return Decided(wake=wake, level=level, basis=Basis(status="in_sync"), is_recorded=is_recorded, intents=[*rows])


def claimed(**columns: Any) -> ClaimedIntent:
    return claimed_intent(ROW, **columns)


def seen(sequence: int, traceparent: str = "") -> LoggedRecord:
    record = ObjectSeen(
        key=ObjectKey.parse(SHOP),
        uid=Uid("u"),
        version=Version(sequence),
        origin="watch",
        time=datetime(2026, 1, 1, tzinfo=UTC),
        traceparent=traceparent,
        body=b"{}",
    )
    return LoggedRecord(sequence=Sequence(sequence), partition=Partition(1), record_id=f"id-{sequence}", record=record)


def test_a_decision_links_to_each_record_that_asked_for_it_known_or_not() -> None:
    traced = Traced()
    traced.tracing.read([seen(1), seen(2, PARENT), seen(3, "garbled")])
    traced.tracing.decided([decided("settling", causes="1,2,3,4"), decided("in_sync", is_recorded=False)], 2.0)
    [span] = traced.spans
    links = [(link.context.trace_id, link.context.span_id, dict(link.attributes)) for link in span.links]
    told = {"levelog.object": SHOP}
    assert links == [
        (0, 0, {"levelog.sequence": 1, "messaging.message.id": "id-1", **told}),
        (7, 8, {"levelog.sequence": 2, "messaging.message.id": "id-2", **told}),
        (0, 0, {"levelog.sequence": 3, "messaging.message.id": "id-3", **told}),
        (0, 0, {"levelog.sequence": 4}),
    ]
    assert span.name == "decide webs/pods"
    assert span.parent is None
    assert span.end_time - span.start_time == 2_000_000_000
    assert span.status.is_unset


def test_what_is_not_referred_to_for_long_is_forgotten() -> None:
    traced = Traced()
    traced.tracing.read([seen(1, PARENT), *map(seen, range(2, MOST_REMEMBERED + 2))])
    traced.tracing.decided([decided("settling", causes="1,2")], 0.0)
    [span] = traced.spans
    assert [dict(link.attributes).keys() for link in span.links] == [
        {"levelog.sequence"},
        {"levelog.sequence", "messaging.message.id", "levelog.object"},
    ]


def test_failures_are_errors_with_their_reasons() -> None:
    traced = Traced()
    traced.tracing.decided([decided("failed")], 0.0)
    for result in (
        Later(intent=claimed(), delay=timedelta(seconds=1), error="429 slow down", is_doubtful=False),
        Ended(intent=claimed(), outcome="failed", error="403 forbidden", answer=403),
        Ended(intent=claimed(), outcome="conflict", error="409 changed", answer=409),
    ):
        with traced.tracing.attempting(claimed()) as told:
            told(result)
    assert [(span.status.status_code.name, span.status.description) for span in traced.spans] == [
        ("ERROR", "it raised"),
        ("ERROR", "429 slow down"),
        ("ERROR", "403 forbidden"),
        ("UNSET", None),
    ]
    assert [span.attributes.get("levelog.outcome") for span in traced.spans[1:]] == ["postponed", "failed", "conflict"]
    assert [span.attributes.get("http.response.status_code") for span in traced.spans[1:]] == [None, 403, 409]
