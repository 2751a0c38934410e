"""The boards and alerts of `deploy/`: named, weighed, and each with a runbook that is there."""

import re

import pytest

from rigs import boards
from rigs.pages import ROOT, anchors
from rigs.promql import Matcher, Selector, parse

RUNBOOKS = ROOT / "docs/runbooks.md"
FOLDER = "docs/"


def test_alerts_have_names_severities_and_texts() -> None:
    alerts = boards.alerts()
    names = [alert["alert"] for alert in alerts]
    assert len(names) == len(set(names)) > 0
    for alert in alerts:
        assert re.fullmatch(r"Levelog(?:[A-Z][a-z]+)+", alert["alert"])
        assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}, alert["alert"]
        assert re.fullmatch(r"[1-9]\d*m", alert["for"]), alert["alert"]
        assert alert["labels"].keys() == {"severity"}, alert["alert"]
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}, alert["alert"]
        grouped = parse(alert["expr"]).grouped | {"instance"}
        for text in (alert["annotations"]["summary"], alert["annotations"]["description"]):
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= grouped, alert["alert"]


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    linked = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in boards.alerts()}
    assert linked == {name: f"{FOLDER}{RUNBOOKS.name}#{name.lower()}" for name in linked}
    assert {url.partition("#")[2] for url in linked.values()} <= anchors(RUNBOOKS)
    sections = re.split(r"^## (\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)[1:]
    told = dict(zip(sections[::2], sections[1::2], strict=True))
    assert sorted(told) == sorted(linked)
    for name, text in told.items():
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Means", "Look", "Do"], name


@pytest.mark.parametrize("name", boards.BOARDS)
def test_boards_are_importable_and_their_panels_tell_apart(name: str) -> None:
    board = boards.board(name)
    assert board["uid"] == f"levelog-{name}"
    panels = board["panels"]
    for field in ("id", "title"):
        assert len({panel[field] for panel in panels}) == len(panels), field
    source = board["templating"]["list"][0]
    assert (source["type"], source["name"]) == ("datasource", "datasource")
    kind = {"type": source["query"], "uid": "${datasource}"}
    variables = {each["name"] for each in board["templating"]["list"]}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert {str(target["datasource"]) for target in panel["targets"]} == {str(panel["datasource"])} == {str(kind)}
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        for target in panel["targets"]:
            text = target.get("expr") or target["rawSql"]
            assert set(re.findall(r"\$\{?([a-z]\w*)", text)) <= variables, panel["title"]


def test_expressions_are_read_as_prometheus_reads_them() -> None:
    found = parse(
        'histogram_quantile(0.9, sum by (le, name) (rate(a_bucket{b="x{y}", c=~"$d"}[5m]))) > 2 unless on (name) e'
    )
    assert found.selectors == [
        Selector("a_bucket", [Matcher("b", "=", "x{y}"), Matcher("c", "=~", "$d")]),
        Selector("e", ()),
    ]
    assert found.grouped == {"le", "name"}
    with pytest.raises(ValueError, match="without the name"):
        parse('sum({job="levelog"})')
