"""`levelog levels`: how each level stands, and its drift; `levelog retry`: tries again at once."""

from typing import Annotated

import typer

from levelog_cli.printing.forms import Form, form_of
from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster", looks_back=True)
def levels(
    settings: Settings,
    name: Annotated[
        str,
        typer.Argument(
            help="A parent, or how its name ends: webs.example.com/default/shop, default/shop, shop. "
            "_ stands for no namespace.",
            metavar="NAME",
        ),
    ] = "",
    *,
    view: Annotated[str, typer.Option(help="One view: webs/pods, or pods.", metavar="VIEW")] = "",
    status: Annotated[
        str, typer.Option(help="in_sync, drifting, settling, failed, blocked or deleting.", metavar="STATUS")
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            help="As they were at a sequence, a time, or how long ago (15m); reads the log.", metavar="MOMENT"
        ),
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, and print levels that change.")] = False,
    output: Annotated[
        Form | None,
        typer.Option("--output", "-o", help="name: only the parents' names; wide: more columns.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Show the status of each level and how actual differs from desired, while the application runs or afterwards."""

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.wiring.levelwatch import watch_levels
        from levelog_cli.wiring.lookback import show_levels, show_levels_at
        from levelog_history.levels import LevelFilter

        form = form_of(output, as_json=as_json)
        wanted = LevelFilter(name=name, view=view, status=status)
        if watch and at:
            raise ConfigurationError("--watch shows what changes from now on: drop one of --watch and --at")
        if watch:
            await watch_levels(settings, wanted, form)
        elif at:
            await show_levels_at(settings, wanted, at=at, form=form)
        else:
            await show_levels(settings, wanted, form)

    execute(settings, work)


@taking(*NATS, "database_url", "data_dir", "application", "cluster", looks_back=True)
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
    """Try again at once: levels that failed, are blocked, or wait for their next attempt, and records that failed."""

    async def work() -> None:
        from levelog_cli.wiring.retrying import retry_selected

        await retry_selected(settings, names or [], view=view, all_failed=all_failed)

    execute(settings, work)
