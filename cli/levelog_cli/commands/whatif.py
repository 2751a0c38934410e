"""`levelog what-if`: decides on history that went otherwise."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import FAILED, execute
from levelog_cli.settings import DECIDING, NATS, FromBundle, Settings, taking


@taking(*NATS, *DECIDING, looks_back=True)
def what_if(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="Operators to decide with.", metavar="FILE")],
    *,
    drop: Annotated[
        list[int] | None,
        typer.Option("--drop", help="Leave out a record, by its sequence; may be repeated.", metavar="RECORD"),
    ] = None,
    swap: Annotated[
        tuple[int, int] | None,
        typer.Option("--swap", help="Put two records in each other's place.", metavar="RECORD RECORD"),
    ] = None,
    delay_receipt: Annotated[
        str, typer.Option("--delay-receipt", help="Let all receipts come later, by so long: 3s.", metavar="TIME")
    ] = "",
    value: Annotated[
        tuple[int, str] | None,
        typer.Option(
            "--set",
            help="Change a field in the object of one record: 75 spec.replicas=2. The value is YAML.",
            metavar="RECORD FIELD=VALUE",
        ),
    ] = None,
    code: Annotated[
        Path | None,
        typer.Option("--code", help="Operators that decide on the changed history instead of FILE.", metavar="FILE"),
    ] = None,
    bundle: FromBundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Change recorded history, decide again, and show which decisions differ. Ends with status 1 if any does.

    All other records stay as they are: also those of what the operator wrote then.
    """

    async def work() -> None:
        from levelog_cli.wiring.travel import show_what_if
        from levelog_replay.travel.edits import WantedEdits

        changes = WantedEdits(dropped=drop or [], swapped=swap, delay=delay_receipt, value=value)
        if not await show_what_if(settings, file, changes, code=code or file, bundle=bundle, as_json=as_json):
            raise SystemExit(FAILED)

    execute(settings, work)
