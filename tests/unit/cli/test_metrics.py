"""What a scrape costs, and what it leaves out, by a clock of the test's own."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from prometheus_client.parser import text_string_to_metric_families

from levelog_cli.monitoring.metrics import COUNT_EVERY_SECONDS, Metrics
from levelog_processors.decide.tally import CallCounts
from levelog_processors.health import LoopHealth
from levelog_store.look.overview import Workload

PAGE: Final = Path(__file__).parents[3] / "docs/monitoring.md"


class Processor:
    """As much of one as is scraped."""

    def __init__(self) -> None:
        self.program = SimpleNamespace(
            views={"webs/pods": None},
            indices={"webs/images": None, "webs/names": None},
            record_handlers={"webs/audit": None},
            unrecorded={"webs/audit": None, "webs/tick": None},
        )
        self.health = LoopHealth()
        self.calls = CallCounts(suppressed=7)
        self.index_failures = {"webs/images": 2}
        self.under_way = [("webs/pods", 2.0), ("webs/pods", 3.0)]
        self.most_at_once = {"webs/pods": 32}
        self.counted = 0

    def count_by(self, *_: object) -> None:
        pass

    async def workload(self) -> Sequence[Workload]:
        self.counted += 1
        if self.counted > 2:
            raise ConnectionError("the database is away")
        return [Workload("webs/pods", "failed", 3), Workload("webs/pods", "", 4)]


async def text_of(metrics: Metrics) -> str:
    return (await asyncio.to_thread(metrics.page, "")).body.decode()


async def test_levels_are_counted_once_in_a_while_however_many_scrape_and_left_out_where_they_cannot_be() -> None:
    now = 0.0
    metrics = Metrics(lambda: now)
    assert "levelog_levels{" not in await text_of(metrics)
    processor = Processor()
    metrics.processor(cast("Any", processor))
    for _ in range(3):
        text = await text_of(metrics)
        assert 'levelog_levels{status="failed",view="webs/pods"} 3.0' in text
        assert 'levelog_levels{status="in_sync",view="webs/pods"} 0.0' in text
        assert 'workqueue_depth{controller="webs/pods",name="webs/pods",priority=""} 4.0' in text
        assert "levelog_suppressed_total 7.0" in text
        assert 'levelog_index_failures{index="webs/images"} 2.0' in text
        assert 'levelog_index_failures{index="webs/names"} 0.0' in text
    assert processor.counted == 1
    now += COUNT_EVERY_SECONDS
    assert "levelog_levels{" in await text_of(metrics)
    assert processor.counted == 2
    now += COUNT_EVERY_SECONDS
    text = await text_of(metrics)
    assert "levelog_levels{" not in text
    assert "levelog_log_lag_seconds 0.0" in text


async def test_functions_that_run_are_counted_and_timed_by_their_view() -> None:
    metrics = Metrics()
    metrics.processor(cast("Any", Processor()))
    text = await text_of(metrics)
    assert 'controller_runtime_active_workers{controller="webs/pods"} 2.0' in text
    assert 'controller_runtime_max_concurrent_reconciles{controller="webs/pods"} 32.0' in text
    assert 'workqueue_unfinished_work_seconds{controller="webs/pods",name="webs/pods"} 5.0' in text
    assert 'workqueue_longest_running_processor_seconds{controller="webs/pods",name="webs/pods"} 3.0' in text


async def test_without_the_event_loop_a_scrape_is_answered_with_what_was_counted() -> None:
    metrics = Metrics()
    metrics.processor(cast("Any", Processor()))
    text = metrics.page("").body.decode()  # on the loop's own thread, which so cannot answer
    assert 'controller_runtime_reconcile_total{controller="webs/pods",result="success"} 0.0' in text
    assert "levelog_log_lag_seconds" not in text


async def test_the_page_lists_each_metric_with_its_type_and_labels() -> None:
    metrics = Metrics()
    metrics.processor(cast("Any", Processor()))
    families = {family.name: family for family in text_string_to_metric_families(await text_of(metrics))}
    named = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    described = {name.removesuffix("_total"): (kind, {*re.findall(r"\w+", labels)}) for name, kind, labels in named}
    real = {name: family.type for name, family in families.items() if not name.startswith("process_")}
    assert {name: kind for name, (kind, _) in described.items()} == real
    seen = {name: {*family.samples[0].labels} - {"le"} for name, family in families.items() if family.samples}
    assert {name: labels for name, (_, labels) in described.items() if name in seen} == {
        name: labels for name, labels in seen.items() if name in described
    }
