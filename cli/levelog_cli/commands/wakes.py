"""`levelog wakes`: why any program wakes, from the audit log of its cluster."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "data_dir", "cluster", looks_back=True)
def wakes(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Audit logs of kube-apiserver: JSON lines or EventLists, plain or gzip; - is the standard input.",
            metavar="FILE",
        ),
    ] = None,
    *,
    user_agent: Annotated[
        str, typer.Option(help="Only clients with this in their program or user.", metavar="TEXT")
    ] = "",
    listen: Annotated[
        str,
        typer.Option(
            help="Be an audit webhook at HOST:PORT until Ctrl-C, instead of reading files.", metavar="ADDRESS"
        ),
    ] = "",
    log: Annotated[
        bool, typer.Option("--log", help="Take bodies that the audit log does not have from levelog's log.")
    ] = False,
    bundle: Annotated[
        Path | None, typer.Option(help="Take them from a file from `levelog export` instead.", metavar="FILE")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="Write levelog code for each condition into a new folder.", metavar="FOLDER")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show when each client wakes, for which field, and what waking on that field alone would save."""

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.printing.forms import print_plain
        from levelog_cli.printing.waits import print_answer, write_drafts
        from levelog_cli.wiring.audits import found_wakes

        if bool(files) == bool(listen):
            raise ConfigurationError("name files of an audit log, or an address to --listen at")
        if listen and (log or bundle):
            raise ConfigurationError("--log and --bundle go with files: what is heard at --listen is not in them yet")
        if listen:
            from levelog_cli.monitoring.listening import ListenAddress
            from levelog_cli.printing.lines import print_line
            from levelog_wakes.webhook import hear

            address = ListenAddress.parse(listen)
            found = await hear(address.host, address.port, user_agent, told=lambda at: print_line(f"listens at {at}"))
        elif log or bundle:
            from levelog_cli.wiring.lookback import opened_source

            async with opened_source(settings, bundle) as source:
                found = await found_wakes(files or (), client=user_agent, source=source)
        else:
            found = await found_wakes(files or (), client=user_agent)
        if draft is not None:
            write_drafts(draft, found)
        if as_json:
            print_plain(found)
        else:
            print_answer(found)

    execute(settings, work)
