"""`levelog replay`: decides recorded history again; `levelog export`: writes history into one file."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.printing.lines import print_line
from levelog_cli.running import FAILED, MISUSED, execute
from levelog_cli.settings import DECIDING, NATS, FromBundle, Settings, taking


class Mode(StrEnum):
    """How history is decided again."""

    RECORDED = "recorded"
    LOG = "log"


@taking(*NATS, "database_url", *DECIDING, looks_back=True)
def replay(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="Operators to decide with.", metavar="FILE")],
    *,
    against: Annotated[
        str,
        typer.Option(help="recorded, or a file with other operators to compare with.", metavar="FILE"),
    ] = "recorded",
    mode: Annotated[
        Mode,
        typer.Option(
            help="recorded: repeat each decision on its recorded inputs; log: repeat the whole history, in the log's "
            "order, without a database.",
        ),
    ] = Mode.RECORDED,
    bundle: FromBundle = None,
    start: Annotated[
        str,
        typer.Option("--from", help="Begin at a moment: a sequence, a time, or how long ago (15m).", metavar="MOMENT"),
    ] = "",
    end: Annotated[str, typer.Option("--to", help="End there.", metavar="MOMENT")] = "",
    objects: Annotated[
        list[str] | None,
        typer.Option(
            "--object",
            help="Only decisions on this object: RESOURCE/NAMESPACE/NAME; may be repeated.",
            metavar="OBJECT",
        ),
    ] = None,
    resource: Annotated[
        str, typer.Option(help="Only decisions on objects of this resource: webs.example.com.", metavar="RESOURCE")
    ] = "",
    handler: Annotated[
        str, typer.Option(help="Only decisions of this view, or with this reconcile function or index.", metavar="NAME")
    ] = "",
    calls: Annotated[
        list[str] | None,
        typer.Option(
            "--call",
            help="Call a handler, timer or effect again, and compare; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    allow_network: Annotated[
        bool,
        typer.Option(
            "--allow-network",
            help="Let reconcile functions use the network, and functions named with --call do anything.",
        ),
    ] = False,
    breaks: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            help="Open the debugger in the decisions that a record caused (its sequence), in those on an object "
            "(RESOURCE/NAMESPACE/NAME), or in a function; may be repeated.",
            metavar="WHERE",
        ),
    ] = None,
    is_pdb: Annotated[
        bool,
        typer.Option("--pdb", help="Open the debugger where a function raises, and at the first difference."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Repeat recorded decisions and compare the results. Ends with status 1 if one differs.

    Writes to a scratch database at most, and deletes it at the end.
    A function named with --call runs as it did then, but cannot change anything outside the process.
    """

    async def work() -> None:
        from levelog_cli.wiring.rerun import replay_history
        from levelog_replay.choice import Choice
        from levelog_replay.stops.debugger import DebuggerLeft

        choice = Choice(
            file=file,
            against=against,
            start=start,
            end=end,
            objects=objects or [],
            resource=resource,
            handler=handler,
            allows_network=allow_network,
            is_in_order=mode is Mode.LOG,
            bundle=bundle,
            breaks=breaks or [],
            calls=calls or [],
            is_pdb=is_pdb,
        )
        try:
            is_same = await replay_history(settings, choice, as_json=as_json)
        except DebuggerLeft:
            sys.stderr.write("levelog: the debugger was left: not all decisions were made again\n")
            raise SystemExit(MISUSED) from None
        if not is_same:
            raise SystemExit(FAILED)

    execute(settings, work, is_seen=bool(calls or breaks))


@taking(*NATS, "database_url", "data_dir", "application", "cluster", "kubeconfig", "context", looks_back=True)
def export(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="The bundle to write, as in shop.jsonl.", metavar="FILE")],
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Decisions from a moment on: a sequence, a time, or how long ago (15m). Of older records, only those "
            "that say what there was then.",
            metavar="MOMENT",
        ),
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Decisions up to there.", metavar="MOMENT")] = "",
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
    bookmarks: Annotated[
        bool,
        typer.Option("--bookmarks", help="Also write that nothing changed, each minute: for indices with expires=."),
    ] = False,
) -> None:
    """Write decisions, and the records that they were made on, into one file, redacted as the log is.

    Schemas of custom resources come from the cluster, if it is the log's and answers; the rest needs none.
    `levelog replay` and `levelog history` read it with --bundle, and pytest does.
    """

    async def work() -> None:
        from levelog.counting import counted
        from levelog.errors import ConfigurationError
        from levelog_cli.wiring.rerun import export_history

        if is_there:
            raise ConfigurationError(f"{file} is there already: give another name, or remove it")
        written = await export_history(
            settings,
            file,
            start=start,
            end=end,
            objects=objects or [],
            selector=selector,
            has_bookmarks=bookmarks,
        )
        schemas = f", schemas of {', '.join(written.schemas)}" if written.schemas else ""
        decisions, records = counted(written.decisions, "decision"), counted(written.records, "record")
        print_line(f"{file}: {decisions}, {records}{schemas}")

    is_there = file.exists()
    execute(settings, work)
