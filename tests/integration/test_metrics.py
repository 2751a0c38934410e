"""`/metrics` of a stack that runs: what moves when something happens, and what each scrape costs the database."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from levelog_sandbox import Denial, Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, Running, define_webs
from rigs.probing import ANYWHERE, Listener
from rigs.waiting import until

VIEW: Final = "webs/pods"
CALLING: Final = """
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from levelog import Call, GiveUp, Index, Intent, Level, Operator, Resource, call

op = Operator("webs")

class Web(Resource, group="example.com", version="v1", plural="webs"):
    pass

@op.effect
def page(request: str) -> None:
    if request == "never":
        raise GiveUp("no page for it")
    if request == "later" and not Path("ledger").exists():
        raise ConnectionError("the ledger is closed")

@op.on.event
async def audit(web: Web) -> None:
    page(web.metadata.name)

@op.timer(every=timedelta(days=1), recorded=False)
async def check(web: Web) -> None:
    page(web.metadata.name)

@op.view
def paged(web: Web, page: Index[str, Call[str, None]]) -> Level[bool]:
    return Level(desired=True, actual=web.metadata.uid in page)

@op.reconcile(paged)
def tell(web: Web) -> Iterator[Intent]:
    yield call(page, web.metadata.name)
"""
KNOWN: Final = {
    "controller_runtime_reconcile_total": {"controller", "result"},
    "controller_runtime_reconcile_errors_total": {"controller"},
    "controller_runtime_reconcile_time_seconds_bucket": {"controller", "le"},
    "workqueue_depth": {"name", "controller", "priority"},
    "workqueue_queue_duration_seconds_bucket": {"name", "controller", "le"},
    "rest_client_requests_total": {"code", "method", "host"},
}
"""As kubernetes-sigs/controller-runtime has them in pkg/internal/controller/metrics and pkg/metrics."""
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


class Scraped:
    """One scrape."""

    def __init__(self, text: str) -> None:
        families = [*text_string_to_metric_families(text)]
        self.labels = {sample.name: set(sample.labels) for family in families for sample in family.samples}
        self.types = {family.name: family.type for family in families}
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, /, **labels: str) -> float:
        """Of the only series with just these labels."""
        return self._samples[name, frozenset(labels.items())]

    def total(self, name: str, /, **labels: str) -> float:
        """Of all series with these labels and others."""
        wanted = set(labels.items())
        return sum(value for (each, found), value in self._samples.items() if each == name and wanted <= found)


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(pods_run=True) as started:
        await define_webs(started)
        yield started


@pytest_asyncio.fixture
async def running(levelog: Levelog) -> AsyncIterator[Running]:
    """`levelog run`, ready."""
    with levelog.start("run", WEBS_FILE, *ANYWHERE) as running:
        await (await Listener.of(running)).is_ready()
        yield running


async def scrape(running: Running, accepts: str = "") -> Scraped:
    told = await (await Listener.of(running)).asks("/metrics", accepts=accepts)
    assert told.status == 200, told
    return Scraped(told.text)


async def scraped_in_sync(running: Running, levels: int) -> Scraped:
    """What is scraped once so many levels are in sync, and nothing waits; they are counted every five seconds."""
    found: list[Scraped] = []

    async def is_in_sync() -> bool:
        found[:] = [await scrape(running)]
        return found[0].value("levelog_levels", view=VIEW, status="in_sync") == levels

    await until(is_in_sync, f"{levels} levels in sync by /metrics", pause=0.2)
    return found[0]


async def test_a_change_and_what_undoes_it_are_counted_and_timed_under_labels_without_objects(
    sandbox: Sandbox, running: Running
) -> None:
    before = await scraped_in_sync(running, 0)
    assert before.value("controller_runtime_reconcile_total", controller=VIEW, result="success") == 0
    assert before.value("levelog_decisions_total", view=VIEW) == 0
    assert before.total("levelog_writes_total") == 0
    sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
    after = await scraped_in_sync(running, 1)
    assert after.value("levelog_writes_total", outcome="written") == 3
    decisions = after.value("levelog_decisions_total", view=VIEW)
    reconciles = after.total("controller_runtime_reconcile_total", controller=VIEW)
    assert 2 <= decisions <= reconciles
    assert after.value("controller_runtime_reconcile_errors_total", controller=VIEW) == 0
    assert after.value("controller_runtime_reconcile_time_seconds_count", controller=VIEW) == reconciles
    assert 1 <= after.value("workqueue_queue_duration_seconds_count", name=VIEW, controller=VIEW) <= reconciles
    queue = {"name": VIEW, "controller": VIEW}
    assert after.value("workqueue_work_duration_seconds_count", **queue) == reconciles
    assert before.value("workqueue_adds_total", **queue) + after.value("workqueue_adds_total", **queue) >= 2
    assert after.value("workqueue_retries_total", **queue) == after.value(
        "controller_runtime_reconcile_total", controller=VIEW, result="requeue_after"
    )
    assert after.value("controller_runtime_terminal_reconcile_errors_total", controller=VIEW) == 0
    assert after.value("controller_runtime_active_workers", controller=VIEW) == 0
    assert after.value("controller_runtime_max_concurrent_reconciles", controller=VIEW) == 32
    assert after.value("workqueue_unfinished_work_seconds", **queue) == 0
    assert after.value("workqueue_longest_running_processor_seconds", **queue) == 0
    assert after.value("workqueue_depth", name=VIEW, controller=VIEW, priority="") == 0
    host = sandbox.url.removeprefix("http://")
    # applied by server-side apply; its answers are 201 Created
    assert after.value("rest_client_requests_total", code="201", method="PATCH", host=host) == 3
    assert after.value("rest_client_requests_total", code="200", method="GET", host=host) > 0
    assert after.value("levelog_fold_seconds_count") > before.value("levelog_fold_seconds_count")
    assert after.value("levelog_commit_seconds_count") > before.value("levelog_commit_seconds_count")
    assert after.value("levelog_log_lag_seconds") < 100
    for resource in ("webs.example.com", "pods"):
        assert 0 <= after.value("levelog_watch_last_contact_seconds", resource=resource) < 100
    assert after.value("levelog_undone_total", view=VIEW) == 0
    # its status is no input of the view: a wakeup, if it comes to one, calls nothing
    assert after.value("levelog_suppressed_total") >= 0
    assert after.value("process_resident_memory_bytes") > 0
    assert {name: labels for name, labels in after.labels.items() if name in KNOWN} == KNOWN
    assert after.types["controller_runtime_reconcile_time_seconds"] == "histogram"
    listener = await Listener.of(running)
    for accepts in ("", "text/plain;version=1.0.0", "application/openmetrics-text;version=1.0.0"):
        told = await listener.asks("/metrics", accepts=accepts)
        assert (told.status, told.text.endswith("# EOF\n"), "shop" in told.text) == (
            200,
            "openmetrics" in accepts,
            False,
        )
    assert (await listener.asks("/debug"))[:2] == (404, "there is /healthz, /readyz, /metrics\n")
    for times in (0, 1, 2):  # the first deletion leaves a state that nothing was written for
        sandbox.user.delete("pods", "shop-1")

        async def is_there_again(times: int = times) -> bool:
            scraped = await scrape(running)
            written = scraped.value("levelog_writes_total", outcome="written")
            return (written, scraped.value("levelog_undone_total", view=VIEW)) == (4 + times, times)

        await until(is_there_again, f"a pod that is deleted and made again, {times + 1} times")


async def test_what_is_refused_is_an_error_and_nothing_that_somebody_undid(sandbox: Sandbox, running: Running) -> None:
    sandbox.access.denials += [Denial("patch", "pods")]
    sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))

    async def has_failed_twice() -> bool:
        return (await scrape(running)).value("levelog_writes_total", outcome="failed") >= 6

    await until(has_failed_twice, "two rounds whose writes were refused")
    scraped = await scrape(running)
    assert scraped.value("controller_runtime_reconcile_errors_total", controller=VIEW) >= 1
    assert scraped.value("controller_runtime_reconcile_total", controller=VIEW, result="error") >= 1
    assert scraped.total("rest_client_requests_total", code="403", method="PATCH") >= 6
    assert scraped.value("levelog_undone_total", view=VIEW) == 0
    assert scraped.value("levelog_decisions_total", view=VIEW) > 1


async def test_calls_of_each_kind_are_counted_by_what_came_of_them_and_objects_that_wait_are_a_gauge(
    sandbox: Sandbox, levelog: Levelog, tmp_path: Path
) -> None:
    (tmp_path / "calling.py").write_text(CALLING)
    functions, outcomes = ("webs/audit", "webs/check", "webs/page"), ("returned", "failed", "given_up")

    async def counted() -> tuple[list[dict[str, float]], list[float]]:
        scraped = await scrape(calling)
        calls = [
            {each: scraped.total("levelog_calls_total", function=function, outcome=each) for each in outcomes}
            for function in functions
        ]
        return calls, [scraped.total("levelog_levels", view=view, status="failed") for view in functions[:2]]

    async def is_held() -> bool:
        calls, held = await counted()
        found = [(each["returned"], each["failed"] >= 1, each["given_up"]) for each in calls]
        return (found, held) == ([(1, True, 1)] * 3, [1, 1])

    async def is_through() -> bool:
        calls, held = await counted()
        return ([(each["returned"], each["given_up"]) for each in calls], held) == ([(2, 1)] * 3, [0, 0])

    with levelog.start("run", "calling.py", *ANYWHERE) as calling:
        await (await Listener.of(calling)).is_ready()
        assert await counted() == ([dict.fromkeys(outcomes, 0)] * 3, [0, 0])
        for name in ("never", "later", "now"):
            shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
            shop["metadata"]["name"] = name
            sandbox.user.create(shop)
        await until(is_held, "of each kind one call made, one given up and one held", pause=0.2)
        (tmp_path / "ledger").touch()
        await until(is_through, "nothing held", pause=0.2)
        assert (await scrape(calling)).total("levelog_writes_total") == 0
