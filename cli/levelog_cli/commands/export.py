"""`levelog export`: history in one file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster")
def export(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="The bundle to write, as in shop.jsonl.", metavar="FILE")],
    *,
    start: Annotated[
        str, typer.Option("--from", help="Decisions from there on: a sequence, a time, or 15m.", metavar="MOMENT")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Decisions up to there, likewise.", metavar="MOMENT")] = "",
    objects: Annotated[
        list[str] | None,
        typer.Option(
            "--object",
            help="Only decisions on this: RESOURCE[.GROUP]/NAMESPACE/NAME; without a name, or without both, all there.",
            metavar="OBJECT",
        ),
    ] = None,
) -> None:
    """Write decisions, and the records that they were made on, into one file, redacted as the log is.

    `levelog replay` and `levelog history` read it with --bundle, and pytest does.
    """

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.compose.export import export_history

        if is_there:
            raise ConfigurationError(f"{file} is there already: give another name, or remove it")
        records, decisions = await export_history(settings, file, start=start, end=end, objects=objects or [])
        sys.stdout.write(f"{file}: {decisions} decisions and {records} records\n")

    is_there = file.exists()
    execute(settings, work)
