"""The command `levelog`. What a command needs is imported when it runs, so that `--help` answers at once."""

import inspect
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from levelog_cli.commands.demo import demo
from levelog_cli.commands.dev import dev
from levelog_cli.commands.looking import history, levels, open_past, retry, wakes, why, writers
from levelog_cli.commands.rerunning import bisect, export, plan, replay, ui, what_if
from levelog_cli.commands.run import FilesCommand, RunCommand, actuate, ingest, process, run
from levelog_cli.commands.setup import crd, doctor, import_crd, init, manifests, migrate, rbac, remove_finalizers

app = typer.Typer(
    name="levelog",
    help="Level-triggered Kubernetes operators on a durable log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = {
    "Run": (run, ingest, process, actuate, retry, demo),
    "Write an operator": (init, dev, plan),
    "Set up": (crd, import_crd, migrate, doctor, rbac, manifests, remove_finalizers),
    "Look back": (levels, history, why, writers, wakes, ui, open_past, bisect),
    "Try new code": (replay, what_if, export),
}
for purpose, commands in _COMMANDS.items():
    for command in commands:
        takes_files = "files" in inspect.signature(command).parameters
        app.command(
            name="open" if command is open_past else None,
            cls=RunCommand if command is run else FilesCommand if takes_files else None,
            rich_help_panel=purpose,
        )(command)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"levelog {version('levelog')}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Level-triggered Kubernetes operators on a durable log."""


def main() -> None:
    """Entry point of the console script."""
    app()
