"""No character that a tenant writes into an object acts on a terminal, or begins a line of its own."""

import ast
import json
import logging
from pathlib import Path

import pytest
import yaml

import levelog_cli
from levelog.escapes import escaped
from levelog_cli.checks.findings import Finding, print_finding
from levelog_cli.logs import set_up_logs
from levelog_cli.printing.lines import print_json, print_line, print_lines, print_yaml
from levelog_cli.printing.tables import GrowingTable, table_lines
from levelog_cli.settings import LogFormat, LogLevel

ACTING = "\x1b[2J \x07 \x7f \x9b31m \r \n \t \u2028 \u202e \u2066 \u200b \ufeff \ud800 \U000e0041"
SHOWN = r"\u001b[2J \u0007 \u007f \u009b31m \r \n \t \u2028 \u202e \u2066 \u200b \ufeff \ud800 \udb40\udc41"
KEPT = "größe 数 \u05d0 👩\u200d💻 a\\b"


def test_what_acts_is_escaped_and_text_is_not() -> None:
    assert escaped(ACTING) == SHOWN
    assert escaped(KEPT) == KEPT


def test_escaped_json_says_the_same() -> None:
    text = ACTING.replace("\ud800", "") + KEPT
    assert json.loads(escaped(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize("form", ["json", "yaml", "line", "table", "growing", "finding"])
def test_every_form_of_printing_escapes(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # no cell is folded
    text = f"a{ACTING}b".replace("\ud800", "")
    match form:
        case "json" | "yaml":
            (print_json if form == "json" else print_yaml)({"reason": text})
        case "line":
            print_line(text)
        case "table":
            print_lines(table_lines(["A", "B"], [[text, text]]))
        case "growing":
            GrowingTable(["A", "B"], {}).add([[text, text]])
        case _:
            print_finding(Finding.wrong(text.replace(" \n", ""), text, text))
    out = capsys.readouterr().out
    assert [line for line in out.split("\n") if escaped(line) != line] == []
    assert out.count("\n") <= 3, out
    if form in ("json", "yaml"):
        assert (json.loads if form == "json" else yaml.safe_load)(out) == {"reason": text}


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_a_log_line_holds_what_it_is_given(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    handlers = logging.getLogger().handlers[:]
    try:
        set_up_logs(log_format, LogLevel.INFO)
        forged = f"{ACTING}\n12:30:01.250 info     actuator   wrote all"
        try:
            int(forged)
        except ValueError:
            logging.getLogger("levelog").exception(forged, extra={"object": forged})
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.captureWarnings(capture=False)
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert [line for line in lines if escaped(line) != line] == []
    assert all(line.startswith("  ") for line in lines[1:]), lines


def test_nothing_is_printed_past_the_edge() -> None:
    """What is told of objects goes through `printing/`; the others print what levelog or its user wrote."""
    own = {"checks/findings.py", "commands/demo.py", "commands/setup.py", "main.py"}
    root = Path(levelog_cli.__file__).parent
    found = set[str]()
    for path in root.rglob("*.py"):
        names = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if names & {"sys.stdout.write", "sys.stdout.writelines"}:
            found.add(path.relative_to(root).as_posix())
    assert {name for name in found if not name.startswith("printing/")} <= own
