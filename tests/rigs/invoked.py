"""The command `levelog` in this process, which typer makes anew for each call of its own CliRunner."""

import io
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, NamedTuple

import typer.main

from levelog_cli.main import app


class Invoked(NamedTuple):
    """How it ended, and what it printed on stdout and stderr."""

    status: int | str | None
    output: str


def invoke(*arguments: str) -> Invoked:
    """Call it, where it ends before it has an event loop."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            _command()(arguments, prog_name="levelog")
        except SystemExit as end:
            return Invoked(end.code, printed.getvalue())
    raise AssertionError("it did not end by itself")


@cache
def _command() -> Any:
    return typer.main.get_command(app)
