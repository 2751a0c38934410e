"""`levelog plan`: what new code would decide on the current state, before it runs."""

from typing import Annotated

import typer

from levelog_cli.commands.run import Files
from levelog_cli.printing.forms import PlainForm, plain_form_of
from levelog_cli.running import FAILED, execute
from levelog_cli.settings import DECIDING, Settings, taking


@taking("database_url", *DECIDING, looks_back=True)
def plan(
    settings: Settings,
    files: Files,
    *,
    allow_network: Annotated[
        bool, typer.Option("--allow-network", help="Let reconcile functions use the network.")
    ] = False,
    output: Annotated[
        PlainForm | None, typer.Option("--output", "-o", help="json or yaml.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what these operators would change: levels, and writes. Ends with status 1 if anything.

    They decide on a copy of the application's tables, which is deleted at the end; nothing else is written.
    """

    async def work() -> None:
        from levelog_cli.wiring.rerun import plan_changes

        form = plain_form_of(output, as_json=as_json)
        if not await plan_changes(settings, files, allows_network=allow_network, form=form):
            raise SystemExit(FAILED)

    execute(settings, work)
