"""`levelog wakes`: audit logs are read or heard, with the bodies that levelog's own log or a bundle has, and told."""

from collections.abc import Sequence
from pathlib import Path

from levelog_base.errors import ConfigurationError
from levelog_cli.monitoring.listening import ListenAddress
from levelog_cli.printing.lines import print_json, print_line, print_lines
from levelog_cli.printing.tables import table_lines
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import opened_source
from levelog_history.records import RecordSource
from levelog_history.selection import Selected
from levelog_wakes.answer import WakesFound, answer
from levelog_wakes.audit import AuditReader, Remarks
from levelog_wakes.bursts import Bursts
from levelog_wakes.recorded import take_with_records
from levelog_wakes.streams import read_files
from levelog_wakes.table import COLUMNS, cells, footer, rows
from levelog_wakes.webhook import hear


async def show_wakes(
    settings: Settings,
    files: Sequence[Path],
    *,
    client: str,
    listen: str,
    has_log: bool,
    bundle: Path | None,
    draft: Path | None,
    as_json: bool,
) -> None:
    """Print what files of audit logs say, or what is heard at an address; draft code into a folder.

    Raises ConfigurationError for what cannot be read or written, and for options that do not go together.
    """
    if bool(files) == bool(listen):
        raise ConfigurationError("name files of an audit log, or an address to --listen at")
    if listen and (has_log or bundle):
        raise ConfigurationError("--log and --bundle go with files: what is heard at --listen is not in them yet")
    if listen:
        address = ListenAddress.parse(listen)
        found = await hear(address.host, address.port, client, on_listening=lambda at: print_line(f"listens at {at}"))
    elif has_log or bundle:
        async with opened_source(settings, bundle) as source:
            found = await found_wakes(files, client=client, source=source)
    else:
        found = await found_wakes(files, client=client)
    if draft is not None:
        _write_drafts(draft, found)
    if as_json:
        print_json(found)
        return
    if shown := rows(found):
        print_lines(table_lines([*COLUMNS], [cells(each) for each in shown]))
    for each in shown:
        print_line("", f"{each.client}, {each.resource}", *(f"  {line}" for line in each.says))
    print_line("", footer(found), *(f"note: {remark}" for remark in found.remarks))


async def found_wakes(files: Sequence[Path], *, client: str = "", source: RecordSource | None = None) -> WakesFound:
    """The answer of the files; `client` is a part of a name.

    Raises ConfigurationError for one that cannot be read, and if all that they hold is something else.
    """
    reader, bursts = AuditReader(Remarks()), Bursts(client)
    calls = read_files(files, reader)
    if source is None:
        for call in calls:
            bursts.take(call)
    else:
        selected = [Selected.parse(each) for each in await source.resources()]
        if not selected:
            raise ConfigurationError(f"{source.name} has no list of a resource: leave --log and --bundle out")
        await take_with_records(calls, source.about(selected), bursts, reader.remarks)
    if not reader.events and reader.remarks:
        raise ConfigurationError(f"no event of an audit log: {'; '.join(reader.remarks.lines())}")
    return answer(bursts, reader)


def _write_drafts(folder: Path, found: WakesFound) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"--draft {folder}: {error.strerror}") from error
    for number, each in enumerate((each for each in found.woken if each.draft), 1):
        (folder / f"{each.resource.partition('.')[0]}_{number}.py").write_text(each.draft)
