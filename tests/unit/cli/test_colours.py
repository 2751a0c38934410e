"""Colours are for terminals only."""

import io
import sys

import pytest

from levelog_cli.checks.findings import Finding, print_finding
from levelog_cli.printing.tables import UNLIMITED, coloured, table_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_status_has_a_colour_on_a_terminal_unless_somebody_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured("failed") == "failed"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert coloured("failed") == "\x1b[31mfailed\x1b[0m"
    assert coloured("STATUS") == "STATUS"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("failed") == "failed"


def test_the_doctor_has_colours_on_a_terminal_unless_somebody_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for variable, value, is_coloured in (("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv(variable, value)
        print_finding(Finding.wrong("NATS", "it is away"))
        assert ("\x1b[31m" in terminal.getvalue()) == is_coloured, f"{variable}={value}"


@pytest.mark.parametrize("width", [30, UNLIMITED])
def test_colours_leave_the_columns_where_they_are(width: int) -> None:
    columns, rows = ("A", "STATUS", "B", "REASON"), [("x", "failed", "y", "why"), ("x", "in_sync", "y", "")]
    painted = table_lines(columns, rows, width, {1: lambda cell: f"<{cell}>"})
    assert [line.replace("<", "").replace(">", "") for line in painted] == table_lines(columns, rows, width)
    assert any("<failed>" in line for line in painted)
