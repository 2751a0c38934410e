"""The boards and alerts of `deploy/` ask for what a running stack has: series of `/metrics`, rows of PostgreSQL."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from levelog_sandbox import Denial, Sandbox
from rigs import boards
from rigs.levelog import WEBS, Levelog, Running, define_webs
from rigs.nats import NatsServer
from rigs.postgres import plain
from rigs.probing import ANYWHERE, Listener
from rigs.promql import parse

PAGING: Final = """
from datetime import timedelta

from levelog import Call, Index, Struct, call
from webs import Intent, Iterator, Level, Web, op

class Alarm(Struct):
    text: str

@op.on.event
def noted(web: Web) -> None:
    raise ConnectionError("the ledger is closed")

@op.timer(every=timedelta(days=1), recorded=False)
def probe(web: Web) -> None:
    raise ConnectionError("nobody answers")

@op.effect
def page(request: Alarm) -> None:
    pass

@op.view
def paged(web: Web, page: Index[str, Call[Alarm, None]]) -> Level[bool]:
    return Level(desired=True, actual=web.metadata.uid in page)

@op.reconcile(paged)
def tell(web: Web) -> Iterator[Intent]:
    yield call(page, Alarm("is there"))
"""
OF_THE_SCRAPE: Final = {"job", "instance"}
"""Labels that Prometheus adds, and all that `up` has."""
CHOSEN: Final = {"$__rate_interval": "1m", "$job": ".*", "$view": ".*"}
"""What Grafana puts for variables of which everything is chosen."""


@pytest_asyncio.fixture
async def running(nats_server: NatsServer, postgres_url: str, tmp_path: Path) -> AsyncIterator[Running]:
    """`levelog run` on PostgreSQL, with a Web whose pods are refused, and functions that were called for it."""
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        sandbox.access.denials += [Denial("patch", "pods")]
        shutil.copy(WEBS / "webs.py", tmp_path)
        (tmp_path / "operator.py").write_text(PAGING)
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": postgres_url}
        with levelog.start("run", "operator.py", *ANYWHERE) as running:
            listener = await Listener.of(running)
            await listener.is_ready()
            sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
            for shown in (
                'levelog_levels{status="failed",view="webs/pods"} 1.0',
                'levelog_calls_total{function="webs/page",outcome="returned"} 1.0',
                'levelog_levels{status="failed",view="webs/noted"} 1.0',
                'levelog_levels{status="failed",view="webs/probe"} 1.0',
            ):
                await listener.says("/metrics", 200, shown)
            yield running


async def test_boards_and_alerts_ask_for_what_a_process_and_its_database_have(
    running: Running, postgres_url: str
) -> None:
    told = await (await Listener.of(running)).asks("/metrics")
    samples = [sample for family in text_string_to_metric_families(told.text) for sample in family.samples]
    for alert in boards.alerts():
        check_expression(alert["alert"], alert["expr"], samples)
    for name, text in boards.expressions():
        check_expression(name, text, samples)
    for each in boards.board("operators")["templating"]["list"]:
        if each["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", each["query"])
            assert found is not None, each["query"]
            check_expression(each["name"], f"sum by ({found[2]}) ({found[1]})", samples)
    connection = await asyncpg.connect(plain(postgres_url))
    try:
        for name, text in boards.queries():
            rows = await connection.fetch(asked(text, SQL))
            assert rows or name == "Writes and calls under way", f"{name}: no rows"
    finally:
        await connection.close()


def check_expression(name: str, text: str, samples: list[Sample]) -> None:
    """Every selector selects something, by labels that are there; so do those by which it groups."""
    expression = parse(asked(text, CHOSEN))
    assert expression.selectors, name
    known = set(OF_THE_SCRAPE)
    for metric, matchers in expression.selectors:
        if metric == "up":
            assert {matcher.label for matcher in matchers} <= OF_THE_SCRAPE, name
            continue
        series = [sample.labels for sample in samples if sample.name == metric]
        assert series, f"{name}: there is no {metric}"
        known |= series[0].keys()
        own = [matcher for matcher in matchers if matcher.label not in OF_THE_SCRAPE]
        assert {matcher.label for matcher in own} <= series[0].keys(), f"{name}: {metric} has {set(series[0])}"
        fitting = [labels for labels in series if all(matcher.fits(labels) for matcher in own)]
        assert fitting, f"{name}: {metric} is never {own}"
    assert expression.grouped <= known, f"{name}: {expression.grouped - known}"


SQL: Final = {
    "${application:sqlstring}": "'webs'",
    "${view:sqlstring}": "'webs/pods', 'webs/paged'",
    "$__interval": "'30s'",
}


def asked(text: str, values: Mapping[str, str]) -> str:
    """With variables and macros as Grafana replaces them."""
    for variable, value in values.items():
        text = text.replace(variable, value)
    text = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '1 hour' AND now()", text)
    text = re.sub(r"\$__timeGroupAlias\((\w+), '30s'\)", r'floor(extract(epoch from \1)/30)*30 AS "time"', text)
    assert "$" not in text, text
    return text


@pytest.mark.long
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_each_alert_fires_when_it_should_and_else_does_not(tmp_path: Path) -> None:
    rules = [{key: alert[key] for key in ("alert", "expr", "for", "labels")} for alert in boards.alerts()]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "levelog", "rules": rules}]}))
    assert {alert["alert"] for alert in boards.alerts()} == set(WRONG)
    cases = [case(name, {**WELL, **wrong}) for name, (wrong, _) in WRONG.items()]
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case("", WELL), *cases]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    ended = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


WELL: Final = {
    'up{job="levelog", instance="a:8080"}': "1+0x90",
    'levelog_watch_last_contact_seconds{resource="pods"}': "30+0x90",
    "levelog_log_lag_seconds": "0+0x90",
    'workqueue_depth{controller="webs/pods", name="webs/pods", priority=""}': "3+0x90",
    'controller_runtime_reconcile_total{controller="webs/pods", result="success"}': "0+1x90",
    'levelog_levels{view="webs/pods", status="blocked"}': "0+0x90",
    'levelog_levels{view="webs/pods", status="failed"}': "0+0x90",
    'levelog_undone_total{view="webs/pods"}': "0+0x90",
    'levelog_writes_total{outcome="written"}': "0+5x90",
    'levelog_writes_total{outcome="postponed"}': "0+1x90",
    'levelog_levels{view="webs/noted", status="failed"}': "0 1 0+0x88",
    'levelog_levels{view="webs/noted", status="settling"}': "1+0x90",
    'levelog_records_expired_total{handler="webs/noted"}': "1+0x90",
}
"""Series of a process in which nothing is wrong, each minute."""
OF_PODS: Final = {"view": "webs/pods"}
WRONG: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "LevelogDown": ({'up{job="levelog", instance="a:8080"}': "0+0x90"}, {"job": "levelog", "instance": "a:8080"}),
    "LevelogNobodyWatches": ({'levelog_watch_last_contact_seconds{resource="pods"}': "_x90"}, {}),
    "LevelogWatchSilent": ({'levelog_watch_last_contact_seconds{resource="pods"}': "0+60x90"}, {"resource": "pods"}),
    "LevelogLogLag": ({"levelog_log_lag_seconds": "0+60x90"}, {}),
    "LevelogStandsStill": (
        {'controller_runtime_reconcile_total{controller="webs/pods", result="success"}': "7+0x90"},
        {"controller": "webs/pods"},
    ),
    "LevelogLevelsBlocked": ({'levelog_levels{view="webs/pods", status="blocked"}': "2+0x90"}, OF_PODS),
    "LevelogLevelsFailed": ({'levelog_levels{view="webs/pods", status="failed"}': "2+0x90"}, OF_PODS),
    "LevelogUndone": ({'levelog_undone_total{view="webs/pods"}': "0x10 1+1x5 6+0x75"}, OF_PODS),
    "LevelogRecordsExpired": (
        {'levelog_records_expired_total{handler="webs/noted"}': "0x30 1+0x60"},
        {"handler": "webs/noted"},
    ),
    "LevelogWritesPostponed": ({'levelog_writes_total{outcome="postponed"}': "0+9x90"}, {}),
}
"""For each alert the series by which it differs, and the labels that the alert has then."""


def case(firing: str, series: Mapping[str, str]) -> dict[str, Any]:
    """What promtool is to find after 40 minutes: that one alert fires, and no other."""
    severities = {alert["alert"]: alert["labels"] for alert in boards.alerts()}
    wanted = [
        {"alertname": name, "eval_time": "40m", "exp_alerts": [{"exp_labels": {**severities[name], **WRONG[name][1]}}]}
        if name == firing
        else {"alertname": name, "eval_time": "40m", "exp_alerts": []}
        for name in severities
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    return {"name": firing or "well", "interval": "1m", "input_series": inputs, "alert_rule_test": wanted}
