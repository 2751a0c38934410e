"""`--help` of each command."""

import pytest
from typer.testing import CliRunner

from levelog_cli.main import app

COMMANDS = sorted(
    info.name or info.callback.__name__.replace("_", "-") for info in app.registered_commands if info.callback
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_in_eighty_columns(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert shown.exit_code == 0, shown.exception
    assert f"Usage: levelog {command}" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
