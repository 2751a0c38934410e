"""`levelog wakes`: why any program wakes, from the audit log of its cluster."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import Settings, taking


@taking()
def wakes(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Audit logs of kube-apiserver: JSON lines or EventLists, plain or gzip.", metavar="FILE"),
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
        from levelog_wakes.answer import answer
        from levelog_wakes.audit import AuditReader, Remarks
        from levelog_wakes.streams import read_files

        if bool(files) == bool(listen):
            raise ConfigurationError("name files of an audit log, or an address to --listen at")
        reader = AuditReader(Remarks())
        if files:
            found = answer(read_files(files, reader), reader, client=user_agent)
        else:
            from levelog_cli.monitoring.listening import ListenAddress
            from levelog_cli.printing.lines import print_line
            from levelog_wakes.webhook import heard

            address = ListenAddress.parse(listen)
            found = await heard(
                address.host, address.port, reader, client=user_agent, told=lambda at: print_line(f"listens at {at}")
            )
        if draft is not None:
            write_drafts(draft, found)
        if as_json:
            print_plain(found)
        else:
            print_answer(found)

    execute(settings, work)
