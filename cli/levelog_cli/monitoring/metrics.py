"""What `/metrics` says: counters and histograms that the rooms' hooks feed, and states that are read for a scrape.

Names and labels of `controller_runtime_…`, `workqueue_…` and `rest_client_…` are those of controller-runtime and
client-go, so that boards and alerts fit: a controller is a view. No label names an object.
"""

import asyncio
import time
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, get_args
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
_DURATION: Final = Histogram.DEFAULT_BUCKETS
_QUEUE: Final = tuple(10.0**power for power in range(-8, 4))
_RESULTS: Final = ("success", "error", "requeue", "requeue_after")


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

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: Sequence[float] = _DURATION) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        self._reconciles = counter(
            "controller_runtime_reconcile_total", "Decisions on levels, by view", "controller", "result"
        )
        self._errors = counter(
            "controller_runtime_reconcile_errors_total", "Decisions that found a level failed, by view", "controller"
        )
        self._terminal = counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Decisions that found a level failed, and planned no other try, by view",
            "controller",
        )
        self._adds = counter(
            "workqueue_adds_total", "Wakeups that a fold asked for, or whose time came", "name", "controller"
        )
        self._retries = counter(
            "workqueue_retries_total",
            "Decisions after which a level is looked at again at a time",
            "name",
            "controller",
        )
        self._work_time = histogram(
            "workqueue_work_duration_seconds",
            "From reading the wakeup to the commit of the decision, by view",
            *("name", "controller"),
            buckets=_QUEUE,
        )
        self._reconcile_time = histogram(
            "controller_runtime_reconcile_time_seconds",
            "From reading the wakeup to the commit of the decision, by view",
            "controller",
            buckets=_RECONCILE,
        )
        self._queue_time = histogram(
            "workqueue_queue_duration_seconds",
            "How long a wakeup waited, from the fold that asked for it or from its time",
            *("name", "controller"),
            buckets=_QUEUE,
        )
        self._requests = counter("rest_client_requests_total", "Requests to the API server", "code", "method", "host")
        self._decisions = counter("levelog_decisions_total", "Decisions that were kept, by view", "view")
        self._undone = counter(
            "levelog_undone_total", "Rounds that write again what was written, and undone since, by view", "view"
        )
        self._writes = counter("levelog_writes_total", "Attempts to write to the API, by what came of them", "outcome")
        self._calls = counter("levelog_calls_total", "Calls, by function and what came of them", "function", "outcome")
        self._expired_records = counter(
            "levelog_records_expired_total", "Times that records had expired before a call for them", "handler"
        )
        self._folds = histogram("levelog_fold_seconds", "Folding a batch of records, commits included")
        self._commits = histogram("levelog_commit_seconds", "Commits of transactions that write")
        ProcessCollector(registry=registry)
        registry.register(self)

    def page(self, accepts: str) -> WebPage:
        """The answer to a scrape, in the form that it asks for."""
        encode, content_type = choose_encoder(accepts)
        return WebPage(encode(self._registry), content_type)

    def database(self, database: "Database") -> None:
        """Time its commits."""
        database.on_commit = self._commits.observe

    def client(self, client: "KubeClient") -> None:
        """Count its requests."""
        host = urlsplit(client.server).netloc
        client.on_answer = lambda method, code: self._requests.labels(code, method, host).inc()

    def ingest(self, statuses: "Callable[[], Sequence[ResourceStatus]]") -> None:
        """Tell when each watch heard something."""
        self._statuses = statuses

    def actuator(self, actuator: "Actuator") -> None:
        """Count what it writes and calls."""
        for outcome in (*get_args(Outcome), "postponed"):
            self._writes.labels(outcome)
        actuator.observers.on_taken = self._take

    def processor(self, processor: "Processor") -> None:
        """Count and time what it does; what may be counted is there from the beginning, as 0."""
        self._processor = processor
        processor.health.on_fold, processor.health.on_batch = self._fold, self._batch
        processor.count_by(
            lambda handler, outcome: self._calls.labels(handler, outcome).inc(),
            lambda handler: self._expired_records.labels(handler).inc(),
        )
        for handler in processor.program.record_handlers:
            self._expired_records.labels(handler)
        for handler in processor.program.unrecorded:
            for ended in get_args(CallOutcome):
                self._calls.labels(handler, ended)
        for view in processor.program.views:
            for result in _RESULTS:
                self._reconciles.labels(view, result)
            for each in (self._errors, self._terminal, self._reconcile_time, self._decisions, self._undone):
                each.labels(view)
            for each in (self._adds, self._retries, self._queue_time, self._work_time):
                each.labels(view, view)

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
        contact = GaugeMetricFamily(
            "levelog_watch_last_contact_seconds", "Time since a watch heard anything", labels=["resource"]
        )
        for status in self._statuses():
            if status.last_contact is not None:
                age = max(0.0, (now - status.last_contact).total_seconds())
                contact.add_metric([str(status.watched.resource)], age)
        if self._processor is None:
            return [contact]
        lag = GaugeMetricFamily(
            "levelog_log_lag_seconds",
            "Age of the oldest record that has arrived and is not folded",
            self._processor.health.lag_seconds(now),
        )
        suppressed = CounterMetricFamily(
            "levelog_suppressed", "Wakeups for which no function was called", self._processor.calls.suppressed
        )
        failures = GaugeMetricFamily(
            "levelog_index_failures", "Objects that an index function fails for", labels=["index"]
        )
        failed = self._processor.index_failures
        for index in self._processor.program.indices:
            failures.add_metric([index], failed.get(index, 0))
        return [
            contact,
            lag,
            suppressed,
            failures,
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
        shown = GaugeMetricFamily("levelog_levels", "Levels, by view and status", labels=["view", "status"])
        for place, count in levels.items():
            shown.add_metric(place, count)
        queue = GaugeMetricFamily("workqueue_depth", "Wakeups that are due", labels=["name", "controller", "priority"])
        for view, count in depth.items():
            queue.add_metric([view, view, ""], count)
        return [shown, queue]

    def _fold(self, folded: "Folded", seconds: float) -> None:
        self._folds.observe(seconds)
        if len(self._woken) + len(folded.wakes) > MOST_WOKEN:
            self._woken.clear()
        now = self._clock()
        for name in folded.wakes:
            self._woken.setdefault(name, now)
            self._adds.labels(name[0], name[0]).inc()

    def _batch(self, batch: "EvaluationBatch", seconds: float) -> None:
        from levelog_processors.decide.settling import is_undone

        of_view: defaultdict[str, list[Decided]] = defaultdict(list)
        for decided in batch.decided:
            of_view[decided.wake.view].append(decided)
        began = self._clock() - seconds
        for view, decisions in of_view.items():
            results = Counts(map(_result, decisions))
            for result, count in results.items():
                self._reconciles.labels(view, result).inc(count)
            self._errors.labels(view).inc(results["error"])
            self._decisions.labels(view).inc(sum(each.is_kept for each in decisions))
            self._undone.labels(view).inc(sum(map(is_undone, decisions)))
            self._terminal.labels(view).inc(sum(_is_terminal(each) for each in decisions))
            self._adds.labels(view, view).inc(sum(each.wake.due_at is not None for each in decisions))
            self._retries.labels(view, view).inc(sum(each.due_at is not None for each in decisions))
            took, waited = self._reconcile_time.labels(view), self._queue_time.labels(view, view)
            worked = self._work_time.labels(view, view)
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
                self._calls.labels(effect_of(receipt.view, receipt.target), outcome).inc()
                for patch in receipt.patches:
                    self._writes.labels(patch.outcome).inc()
            else:
                self._writes.labels(receipt.outcome).inc()
        for later in postponed:
            if later.intent.verb != "call":
                self._writes.labels("postponed").inc()
            elif later.is_counted:
                self._calls.labels(later.intent.effect, "failed").inc()


def _running(processor: "Processor") -> Iterable[Metric]:
    """The reconcile functions that are on their way."""
    ages: defaultdict[str, list[float]] = defaultdict(list)
    for view, seconds in processor.under_way:
        ages[view].append(seconds)
    active = GaugeMetricFamily(
        "controller_runtime_active_workers", "Reconcile functions that have not returned", labels=["controller"]
    )
    most = GaugeMetricFamily(
        "controller_runtime_max_concurrent_reconciles",
        "Reconcile functions that may run at one time",
        labels=["controller"],
    )
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds",
        "Time since the reconcile functions that have not returned were called, added up",
        labels=["name", "controller"],
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds",
        "Time since the first of the reconcile functions was called that have not returned",
        labels=["name", "controller"],
    )
    for view in processor.program.views:
        active.add_metric([view], len(ages[view]))
        unfinished.add_metric([view, view], sum(ages[view]))
        longest.add_metric([view, view], max(ages[view], default=0.0))
    for view, number in processor.most_at_once.items():
        most.add_metric([view], number)
    return active, most, unfinished, longest


def _is_terminal(decided: "Decided") -> bool:
    return decided.level.status == "failed" and decided.due_at is None


def _result(decided: "Decided") -> str:
    if decided.level.status == "failed":
        return "error"
    return "success" if decided.due_at is None else "requeue_after"
