"""What `/metrics` says: counters and histograms that the rooms' hooks feed, and states that are read for a scrape.

Names and labels of `controller_runtime_…`, `workqueue_…` and `rest_client_…` are those of controller-runtime and
client-go, so that boards and alerts fit. No label names an object.
"""

import asyncio
import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from levelog.calls.executor import CallOutcome
from levelog_base.wire.objects import effect_of
from levelog_base.wire.records import Outcome, ReceiptNoted
from levelog_cli.monitoring.listening import WebPage
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.rows import STATUSES

if TYPE_CHECKING:
    from levelog_actuator.actuator import Actuator
    from levelog_actuator.results import Later
    from levelog_ingest.status import ResourceStatus
    from levelog_kube.client import KubeClient
    from levelog_processors.decide.tally import EvaluationBatch
    from levelog_processors.fold.batches import Folded
    from levelog_processors.processor import Processor
    from levelog_store.connect.database import Database
    from levelog_store.decide.decisions import Decided
    from levelog_store.look.overview import Workload
    from levelog_store.rows import ViewParent

COUNT_EVERY_SECONDS: Final = 5.0
"""Levels and wakeups are counted at most so often, however many scrape."""
READ_SECONDS: Final = 2.0
"""What the event loop or the database does not say in this time is left out of a scrape."""
MOST_WOKEN: Final = 100_000
"""Wakeups whose time of waiting is measured; of more, those that are there are forgotten."""
# The same as in controller-runtime's pkg/internal/controller/metrics, and in its pkg/metrics/workqueue.go.
_RECONCILE: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
_QUEUE: Final = tuple(10.0**power for power in range(-8, 4))
_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
_COUNTERS: Final = {
    "controller_runtime_reconcile_total": ("controller result", "Decisions on levels, by view"),
    "controller_runtime_reconcile_errors_total": ("controller", "Decisions that found a level failed, by view"),
    "controller_runtime_terminal_reconcile_errors_total": (
        *("controller", "Decisions that found a level failed, and planned no other try, by view"),
    ),
    "workqueue_adds_total": ("name controller", "Wakeups that a fold asked for, or whose time came"),
    "workqueue_retries_total": ("name controller", "Decisions after which a level is looked at again at a time"),
    "rest_client_requests_total": ("code method host", "Requests to the API server"),
    "levelog_decisions_total": ("view", "Decisions that were kept, by view"),
    "levelog_undone_total": ("view", "Rounds that write again what was written, and undone since, by view"),
    "levelog_writes_total": ("outcome", "Attempts to write to the API, by what came of them"),
    "levelog_calls_total": ("function outcome", "Calls, by function and what came of them"),
    "levelog_records_expired_total": ("handler", "Times that records had expired before a call for them"),
}
_HISTOGRAMS: Final = {
    "workqueue_work_duration_seconds": (
        *("name controller", "From reading the wakeup to the commit of the decision, by view", _QUEUE),
    ),
    "controller_runtime_reconcile_time_seconds": (
        *("controller", "From reading the wakeup to the commit of the decision, by view", _RECONCILE),
    ),
    "workqueue_queue_duration_seconds": (
        *("name controller", "How long a wakeup waited, from the fold that asked for it or from its time", _QUEUE),
    ),
    "levelog_fold_seconds": ("", "Folding a batch of records, commits included", Histogram.DEFAULT_BUCKETS),
    "levelog_commit_seconds": ("", "Commits of transactions that write", Histogram.DEFAULT_BUCKETS),
}
_GAUGES: Final = {
    "levelog_watch_last_contact_seconds": ("resource", "Time since a watch heard anything"),
    "levelog_log_lag_seconds": ("", "Age of the oldest record that has arrived and is not folded"),
    "levelog_index_failures": ("index", "Objects that an index function fails for"),
    "levelog_levels": ("view status", "Levels, by view and status"),
    "workqueue_depth": ("name controller priority", "Wakeups that are due"),
    "controller_runtime_active_workers": ("controller", "Reconcile functions that have not returned"),
    "controller_runtime_max_concurrent_reconciles": ("controller", "Reconcile functions that may run at one time"),
    "workqueue_unfinished_work_seconds": (
        *("name controller", "Time since the reconcile functions that have not returned were called, added up"),
    ),
    "workqueue_longest_running_processor_seconds": (
        *("name controller", "Time since the first of the reconcile functions was called that have not returned"),
    ),
}
"""Labels and text by name; of histograms also the buckets. A controller, and a name of a workqueue, is a view."""
_OF_VIEW: Final = {"controller": 1, "view": 1, "name controller": 2}
"""Labels that all have the view as their value, and how many they are."""


class Metrics(Collector):
    """The metrics of one process; made on the thread of its event loop, scraped on any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._processor: Processor | None = None
        self._statuses: Callable[[], Sequence[ResourceStatus]] = list
        self._woken: dict[ViewParent, float] = {}
        self._counting: asyncio.Task[Sequence[Workload]] | None = None
        self._counted_at = 0.0

        self._counters = {
            name: Counter(name, text, labels.split(), registry=registry) for name, (labels, text) in _COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(name, text, labels.split(), registry=registry, buckets=buckets)
            for name, (labels, text, buckets) in _HISTOGRAMS.items()
        }
        ProcessCollector(registry=registry)
        registry.register(self)

    def page(self, accepts: str) -> WebPage:
        """The answer to a scrape, in the form that it asks for."""
        encode, content_type = choose_encoder(accepts)
        return WebPage(encode(self._registry), content_type)

    def database(self, database: "Database") -> None:
        """Time its commits."""
        database.on_commit = self._histograms["levelog_commit_seconds"].observe

    def client(self, client: "KubeClient") -> None:
        """Count its requests."""
        host = urlsplit(client.server).netloc
        client.on_answer = lambda method, code: self._count("rest_client_requests_total", code, method, host)

    def ingest(self, statuses: "Callable[[], Sequence[ResourceStatus]]") -> None:
        """Tell when each watch heard something."""
        self._statuses = statuses

    def actuator(self, actuator: "Actuator") -> None:
        """Count what it writes and calls."""
        for outcome in (*get_args(Outcome), "postponed"):
            self._count("levelog_writes_total", outcome, by=0)
        actuator.observers.on_taken = self._take

    def processor(self, processor: "Processor") -> None:
        """Count and time what it does; what may be counted is there from the beginning, as 0."""
        self._processor = processor
        processor.health.on_fold, processor.health.on_batch = self._fold, self._batch
        processor.count_by(
            lambda handler, outcome: self._count("levelog_calls_total", handler, outcome),
            lambda handler: self._count("levelog_records_expired_total", handler),
        )
        for handler in processor.program.record_handlers:
            self._count("levelog_records_expired_total", handler, by=0)
        for handler in processor.program.unrecorded:
            for ended in get_args(CallOutcome):
                self._count("levelog_calls_total", handler, ended, by=0)
        for view in processor.program.views:
            for result in _RESULTS:
                self._count("controller_runtime_reconcile_total", view, result, by=0)
            for name, (labels, *_) in {**_COUNTERS, **_HISTOGRAMS}.items():
                if labels in _OF_VIEW:
                    (self._counters.get(name) or self._histograms[name]).labels(*[view] * _OF_VIEW[labels])

    def _count(self, name: str, *labels: str, by: int = 1) -> None:
        self._counters[name].labels(*labels).inc(by)

    def _count_view(self, name: str, view: str, by: int) -> None:
        self._count(name, *[view] * _OF_VIEW[_COUNTERS[name][0]], by=by)

    def collect(self) -> Iterable[Metric]:
        """States, as the event loop has them now; none of them while it is blocked."""
        reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
        try:
            return reading.result(2 * READ_SECONDS)
        except (TimeoutError, CancelledError):
            reading.cancel()
            return []

    def describe(self) -> Iterable[Metric]:
        """Nothing is read at the registration."""
        return []

    async def _read(self) -> list[Metric]:
        now = datetime.now(UTC)
        contacts = {str(each.watched.resource): each.last_contact for each in self._statuses()}
        ages = {name: max(0.0, (now - at).total_seconds()) for name, at in contacts.items() if at is not None}
        contact = _gauge("levelog_watch_last_contact_seconds", ages)
        if self._processor is None:
            return [contact]
        failed = self._processor.index_failures
        return [
            contact,
            _gauge("levelog_log_lag_seconds", {"": self._processor.health.lag_seconds(now)}),
            CounterMetricFamily(
                *("levelog_suppressed", "Wakeups for which no function was called", self._processor.calls.suppressed)
            ),
            _gauge("levelog_index_failures", {name: failed.get(name, 0) for name in self._processor.program.indices}),
            *_running(self._processor),
            *await self._work(self._processor),
        ]

    async def _work(self, processor: "Processor") -> list[Metric]:
        """Levels and wakeups of the partitions that the processor holds."""
        if self._counting is None or (
            self._counting.done() and self._clock() - self._counted_at >= COUNT_EVERY_SECONDS
        ):
            self._counting, self._counted_at = asyncio.create_task(processor.workload()), self._clock()
        await asyncio.wait([self._counting], timeout=READ_SECONDS)
        if not self._counting.done() or self._counting.exception() is not None:
            return []
        program = processor.program
        shown_as_levels = *program.views, *program.unrecorded
        levels = dict.fromkeys(((name, status) for name in shown_as_levels for status in STATUSES), 0)
        depth = dict.fromkeys(program.views, 0)
        for work in self._counting.result():
            if work.status:
                levels[work.view, work.status] = work.count
            else:
                depth[work.view] = work.count
        queue = {(view, view, ""): count for view, count in depth.items()}
        return [_gauge("levelog_levels", levels), _gauge("workqueue_depth", queue)]

    def _fold(self, folded: "Folded", seconds: float) -> None:
        self._histograms["levelog_fold_seconds"].observe(seconds)
        if len(self._woken) + len(folded.wakes) > MOST_WOKEN:
            self._woken.clear()
        now = self._clock()
        for name in folded.wakes:
            self._woken.setdefault(name, now)
            self._count_view("workqueue_adds_total", name[0], 1)

    def _batch(self, batch: "EvaluationBatch", seconds: float) -> None:
        from levelog_processors.decide.settling import is_undone

        of_view: defaultdict[str, list[Decided]] = defaultdict(list)
        for decided in batch.decided:
            of_view[decided.wake.view].append(decided)
        began = self._clock() - seconds
        for view, decisions in of_view.items():
            results = Counts(map(_result, decisions))
            for result, count in results.items():
                self._count("controller_runtime_reconcile_total", view, result, by=count)
            for name, count in {
                "controller_runtime_reconcile_errors_total": results["error"],
                "controller_runtime_terminal_reconcile_errors_total": sum(map(_is_terminal, decisions)),
                "levelog_decisions_total": sum(each.is_recorded for each in decisions),
                "levelog_undone_total": sum(map(is_undone, decisions)),
                "workqueue_adds_total": sum(each.wake.due_at is not None for each in decisions),
                "workqueue_retries_total": sum(each.due_at is not None for each in decisions),
            }.items():
                self._count_view(name, view, count)
            took = self._histograms["controller_runtime_reconcile_time_seconds"].labels(view)
            waited = self._histograms["workqueue_queue_duration_seconds"].labels(view, view)
            worked = self._histograms["workqueue_work_duration_seconds"].labels(view, view)
            for each in decisions:
                took.observe(seconds)
                worked.observe(seconds)
                woken, due_at = self._woken.pop(each.name, None), each.wake.due_at
                if woken is not None:
                    waited.observe(max(0.0, began - woken))
                elif due_at is not None and due_at != ASKED_FOR:
                    waited.observe(max(0.0, (batch.at - due_at).total_seconds()))

    def _take(self, receipts: Sequence[ReceiptNoted], postponed: "Sequence[Later]") -> None:
        for receipt in receipts:
            if receipt.verb == "call":
                outcome = "returned" if receipt.outcome == "written" else "given_up"
                self._count("levelog_calls_total", effect_of(receipt.view, receipt.target), outcome)
                for patch in receipt.patches:
                    self._count("levelog_writes_total", patch.outcome)
            else:
                self._count("levelog_writes_total", receipt.outcome)
        for later in postponed:
            if later.intent.verb != "call":
                self._count("levelog_writes_total", "postponed")
            elif later.is_counted:
                self._count("levelog_calls_total", later.intent.effect, "failed")


def _gauge(name: str, values: Mapping[Any, float]) -> Metric:
    """A gauge by its labels' values: texts, or tuples of several."""
    labels, text = _GAUGES[name]
    gauge = GaugeMetricFamily(name, text, labels=labels.split())
    for place, value in values.items():
        gauge.add_metric(place if isinstance(place, tuple) else [place] if labels else [], value)
    return gauge


def _running(processor: "Processor") -> Iterable[Metric]:
    """The reconcile functions that are on their way."""
    ages: dict[str, list[float]] = {view: [] for view in processor.program.views}
    for view, seconds in processor.under_way:
        ages.setdefault(view, []).append(seconds)
    yield _gauge("controller_runtime_active_workers", {view: len(each) for view, each in ages.items()})
    yield _gauge("controller_runtime_max_concurrent_reconciles", processor.most_at_once)
    yield _gauge("workqueue_unfinished_work_seconds", {(view, view): sum(each) for view, each in ages.items()})
    longest = {(view, view): max(each, default=0.0) for view, each in ages.items()}
    yield _gauge("workqueue_longest_running_processor_seconds", longest)


def _is_terminal(decided: "Decided") -> bool:
    return decided.level.status == "failed" and decided.due_at is None


def _result(decided: "Decided") -> str:
    if decided.level.status == "failed":
        return "error"
    return "success" if decided.due_at is None else "requeue_after"
