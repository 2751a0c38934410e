"""`levelog levels`: what is, against what should be, of each parent."""

from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import Settings, taking


@taking("database_url", "data_dir", "application", "cluster")
def levels(
    settings: Settings,
    name: Annotated[
        str,
        typer.Argument(
            help="A parent, or how its name ends: webs.example.com/default/shop, default/shop, shop. "
            "In place of a namespace, _ stands for none."
        ),
    ] = "",
    *,
    view: Annotated[str, typer.Option(help="One view: webs/pods, or pods.", metavar="VIEW")] = "",
    status: Annotated[
        str, typer.Option(help="in_sync, drifting, settling, failed, blocked or deleting.", metavar="STATUS")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Show the levels of an application that runs, or ran last: desired against actual, of each parent."""

    async def work() -> None:
        from levelog_cli.compose.levels import show_levels

        await show_levels(settings, name=name, view=view, status=status, as_json=as_json)

    execute(settings, work)
