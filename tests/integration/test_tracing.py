"""Spans of a stack that runs, from the trace that a source names to the span that an effect opens itself."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from levelog_sandbox import Sandbox
from rigs.levelog import WEBS, Levelog, define_webs
from rigs.probing import ANYWHERE, Listener
from rigs.waiting import until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OPERATOR: Final = f"""
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from levelog import Call, External, Index, Struct, call
from webs import Intent, Iterator, Level, Web, op

class Order(External, plural="orders"):
    web: str

@op.source(Order)
async def orders() -> AsyncIterator[list[Order] | object]:
    yield []
    while not Path("order").exists():
        await asyncio.sleep(0.05)
    yield Order(name="first", web="shop").traced("00-{TRACE}-{SPAN}-01")
    await asyncio.Event().wait()

@op.index
def ordered(order: Order) -> Iterator[tuple[str, str]]:
    yield order.web, order.name

class Alarm(Struct):
    text: str

@op.effect
def page(request: Alarm) -> None:
    dial()

@op.view
def paged(web: Web, ordered: Index[str, str], page: Index[str, Call[Alarm, None]]) -> Level[list[str]]:
    done = sorted(call.request.text for call in page[web.metadata.uid])
    return Level(desired=sorted(ordered[web.metadata.name]), actual=done)

@op.reconcile(paged)
def tell(web: Web, level: Level[list[str]]) -> Iterator[Intent]:
    for name in level.desired:
        yield call(page, Alarm(name), name=name)
"""
WITH_SDK: Final = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

@op.on.startup
def set_up() -> None:
    out = Path("spans").open("w", buffering=1)
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

def dial() -> None:
    with trace.get_tracer("pager").start_as_current_span("dial"):
        pass
"""
WITHOUT_SDK: Final = """
import sys

def dial() -> None:
    Path("loaded").write_text("\\n".join(sys.modules))
"""


class Spans:
    """What was exported, by name."""

    def __init__(self, text: str) -> None:
        self.all: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def named(self, name: str) -> list[dict[str, Any]]:
        """In the order in which they ended."""
        return [span for span in self.all if span["name"] == name]


@pytest_asyncio.fixture
async def levelog(tmp_path: Path) -> AsyncIterator[Levelog]:
    """The command in a folder with the operator webs, on a sandbox with one Web."""
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        shutil.copy(WEBS / "webs.py", tmp_path)
        yield Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))


async def in_sync(levelog: Levelog, sdk: str) -> None:
    """Run the operator until the first pods are there, then until somebody was paged."""
    (levelog.folder / "operator.py").write_text(f"{OPERATOR}{sdk}")
    with levelog.start("run", "operator.py", *ANYWHERE) as running:
        listener = await Listener.of(running)
        await listener.says("/metrics", 200, 'levelog_writes_total{outcome="written"} 3.0')
        for view in ("webs/pods", "webs/paged"):
            await listener.says("/metrics", 200, f'levelog_levels{{status="in_sync",view="{view}"}} 1.0')
        (levelog.folder / "order").touch()
        await listener.says("/metrics", 200, 'levelog_calls_total{function="webs/page",outcome="returned"} 1.0')
        assert await running.stops() == 0


async def test_a_trace_goes_from_a_source_through_decisions_to_writes_and_calls(levelog: Levelog) -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="the Python package opentelemetry-sdk is not installed")
    await in_sync(levelog, WITH_SDK)
    spans = Spans(await asyncio.to_thread((levelog.folder / "spans").read_text))

    decisions = [*spans.named("decide webs/pods"), *spans.named("decide webs/paged")]
    by_intent = {key: span for span in decisions for key in span["attributes"]["levelog.intents"]}
    writes = spans.named("apply pods")
    [called] = spans.named("call page")
    [dialled] = spans.named("dial")
    assert sorted(span["attributes"]["k8s.pod.name"] for span in writes) == ["shop-0", "shop-1", "shop-2"]
    for span in (*writes, called):
        decided = by_intent[span["attributes"]["levelog.intent"]]
        assert span["parent_id"] == decided["context"]["span_id"]
        assert span["context"]["trace_id"] == decided["context"]["trace_id"]
        assert decided["start_time"] <= span["start_time"] <= span["end_time"]
        assert span["attributes"]["levelog.outcome"] == "written"
        assert span["status"]["status_code"] == "UNSET"
    assert {span["attributes"]["http.response.status_code"] for span in writes} == {201}
    assert {span["kind"] for span in writes} == {"SpanKind.CLIENT"}
    assert dialled["parent_id"] == called["context"]["span_id"]

    [ordered] = [span for span in decisions if links_to(span, f"0x{TRACE}")]
    assert ordered == by_intent[called["attributes"]["levelog.intent"]]
    [link] = ordered["links"]
    assert link["context"]["span_id"] == f"0x{SPAN}"
    assert link["attributes"]["levelog.object"] == "orders.external/_/first"
    assert link["attributes"]["messaging.message.id"]
    assert link["attributes"]["levelog.sequence"] > 0
    assert ordered["parent_id"] is None
    assert ordered["context"]["trace_id"] != f"0x{TRACE}"
    assert ordered["attributes"]["k8s.namespace.name"] == "default"
    assert len(ordered["attributes"]["k8s.cluster.uid"]) == 36
    assert ordered["attributes"]["db.system.name"] == "sqlite"
    assert ordered["attributes"]["messaging.system"] == "nats"
    assert ordered["attributes"]["messaging.destination.name"].startswith("levelog-")
    assert (ordered["attributes"]["levelog.status.before"], ordered["attributes"]["levelog.status"]) == (
        "in_sync",
        "settling",
    )
    # the pods that were written lead to the decision that they are there
    shown = {link["attributes"]["levelog.object"] for span in decisions for link in span["links"]}
    assert shown >= {"webs.example.com/default/shop", "pods/default/shop-0"}


def links_to(span: dict[str, Any], trace: str) -> bool:
    return any(link["context"]["trace_id"] == trace for link in span["links"])


async def test_without_a_provider_nothing_of_opentelemetry_is_loaded(levelog: Levelog) -> None:
    await in_sync(levelog, WITHOUT_SDK)

    async def loaded() -> str:
        return (levelog.folder / "loaded").read_text()

    modules = (await until(loaded, "the modules of the process")).splitlines()
    assert "levelog_cli.monitoring.metrics" in modules
    assert not [name for name in modules if name.startswith("opentelemetry")]
