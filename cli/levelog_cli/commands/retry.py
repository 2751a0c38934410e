"""`levelog retry`: levels that failed, or wait, are tried again at once."""

from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster")
def retry(
    settings: Settings,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Parents, or how their names end: webs.example.com/default/shop, default/shop, shop.",
            show_default=False,
        ),
    ] = None,
    *,
    view: Annotated[str, typer.Option(help="One view: webs/pods, or pods.", metavar="VIEW")] = "",
    all_failed: Annotated[bool, typer.Option("--all-failed", help="Every level that is failed.")] = False,
) -> None:
    """Try again at once: levels that failed, are blocked, or wait for their next attempt."""

    async def work() -> None:
        from levelog_cli.wiring.attempts import retry_selected

        await retry_selected(settings, names or [], view=view, all_failed=all_failed)

    execute(settings, work)
