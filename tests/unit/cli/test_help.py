"""`--help` of each command."""

import pytest

from levelog_cli.main import app
from rigs.invoked import invoke

COMMANDS = sorted(
    info.name or info.callback.__name__.replace("_", "-") for info in app.registered_commands if info.callback
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_in_eighty_columns(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke(command, "--help")
    assert shown.status == 0, shown
    assert f"Usage: levelog {command}" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
