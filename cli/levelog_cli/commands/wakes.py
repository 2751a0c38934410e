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
        from levelog_wakes.ahead import read_ahead
        from levelog_wakes.answer import answer
        from levelog_wakes.audit import AuditReader, Remarks
        from levelog_wakes.bursts import Bursts

        if bool(files) == bool(listen):
            raise ConfigurationError("name files of an audit log, or an address to --listen at")
        if listen and (log or bundle):
            raise ConfigurationError("--log and --bundle go with files: what is heard at --listen is not in them yet")
        reader, bursts = AuditReader(Remarks()), Bursts(user_agent)
        if listen:
            from levelog_cli.monitoring.listening import ListenAddress
            from levelog_cli.printing.lines import print_line
            from levelog_wakes.webhook import hear

            address = ListenAddress.parse(listen)
            await hear(address.host, address.port, reader, bursts, told=lambda at: print_line(f"listens at {at}"))
        elif log or bundle:
            from levelog_cli.wiring.lookback import opened_source
            from levelog_history.selection import Selected
            from levelog_wakes.recorded import take_with_records

            async with opened_source(settings, bundle) as source:
                selected = [Selected.parse(each) for each in await source.resources()]
                if not selected:
                    raise ConfigurationError(f"{source.name} has no list of a resource: leave --log and --bundle out")
                recorded = source.about(selected)
                await take_with_records(read_ahead(files or (), reader), recorded, bursts, reader.remarks)
        else:
            for call in read_ahead(files or (), reader):
                bursts.take(call)
        found = answer(bursts, reader)
        if draft is not None:
            write_drafts(draft, found)
        if as_json:
            print_plain(found)
        else:
            print_answer(found)

    execute(settings, work)
