"""`levelog writers`: who writes what, how often, and to what effect."""

from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "data_dir", "cluster")
def writers(
    settings: Settings,
    objects: Annotated[
        list[str],
        typer.Argument(
            help="RESOURCE[.GROUP]/NAMESPACE/NAME; without a name, or without both, all objects there, as in "
            "webs.example.com or pods/default.",
            metavar="OBJECTS...",
        ),
    ],
    *,
    since: Annotated[
        str, typer.Option(help="Count what came after: a sequence, a time, or so long ago (15m).", metavar="MOMENT")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Show who writes objects, how often, which writes changed nothing, and which come at a fixed period."""

    async def work() -> None:
        from levelog_cli.wiring.lookback import show_writers

        await show_writers(settings, objects, since=since, as_json=as_json)

    execute(settings, work)
