"""`levelog export`: history in one file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster", "kubeconfig", "context")
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
    selector: Annotated[
        str,
        typer.Option("--selector", "-l", help="Only decisions on objects with these labels: team=a", metavar="LABELS"),
    ] = "",
) -> None:
    """Write decisions, and the records that they were made on, into one file, redacted as the log is.

    Schemas of custom resources come from the cluster, if it is the log's and answers; the rest needs none.
    `levelog replay` and `levelog history` read it with --bundle, and pytest does.
    """

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.wiring.rerun import export_history

        if is_there:
            raise ConfigurationError(f"{file} is there already: give another name, or remove it")
        written = await export_history(settings, file, start=start, end=end, objects=objects or [], selector=selector)
        schemas = f", schemas of {', '.join(written.schemas)}" if written.schemas else ""
        sys.stdout.write(f"{file}: {written.decisions} decisions, {written.records} records{schemas}\n")

    is_there = file.exists()
    execute(settings, work)
