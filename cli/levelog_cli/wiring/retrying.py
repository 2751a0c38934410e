"""Choosing levels to be tried again, and telling the processes of the application."""

import sys

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_base.wire.objects import Application, Cluster
from levelog_cli.printing.lines import print_line
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.databases import open_beside
from levelog_cli.servers.nats import connect_nats
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_history.pastlevels import none_of, refuse_unknown
from levelog_log.notifications import Notifier, Topic
from levelog_store.fold.levelwrites import RETRIABLE, retry_levels
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.look.overview import LevelLine
from levelog_store.rows import Scope


async def retry_selected(settings: Settings, names: list[str], *, view: str, all_failed: bool) -> None:
    """Note in SQL that the levels are to be tried again, tell whoever runs, and print which they are.

    It needs no other process: whoever starts later finds it. Raises ConfigurationError if there is nothing such.
    """
    if bool(names) == all_failed:
        both = ", not both" if names else ""
        raise ConfigurationError(f"say what to try again: names of parents, or --all-failed{both}")
    chosen: list[tuple[Scope, LevelLine]] = []
    async with await open_beside(settings) as database:
        scopes = await chosen_scopes(settings, database)
        async with database.reading() as connection:
            for name in names or [""]:
                wanted = LevelQuery(view=view, name=name, statuses=("failed",) if all_failed else ())
                found = [
                    (scope, line) for scope in scopes for line in await read_level_lines(connection, scope, wanted)
                ]  # and not `levels_now`, which reads tables that retrying needs no right to read
                if not found:
                    await refuse_unknown(connection, scopes, name, view)
                chosen += _retriable(found, wanted)
        for scope in scopes:
            named = {(line.view, line.parent) for of, line in chosen if of.number == scope.number}
            await retry_levels(database, scope, named)
    told = {(scope.cluster, scope.application): scope for scope, _ in chosen}
    await _tell(settings, list(told.values()))
    for _, line in chosen:
        print_line(f"{line.view} of {line.parent} was {line.status}, and is tried again")


def _retriable(found: list[tuple[Scope, LevelLine]], wanted: LevelQuery) -> list[tuple[Scope, LevelLine]]:
    if chosen := [row for row in found if _is_retriable(row[1])]:
        return chosen
    if not found:
        raise ConfigurationError(none_of(wanted))
    line = found[0][1]
    state = line.status if line.evaluated_at is not None or line.is_held else "not evaluated yet"
    raise ConfigurationError(f"there is nothing to try again: {line.view} of {line.parent} is {state}")


def _is_retriable(line: LevelLine) -> bool:
    if line.evaluated_at is None:
        return line.status == "failed"
    return not line.writes or bool(line.put_off) if line.status == "settling" else line.status in RETRIABLE


async def _tell(settings: Settings, scopes: list[Scope]) -> None:
    """Notify of the work; without NATS, whoever runs finds it within 10 s."""
    url = settings.nats_url or DataDir(settings.data_dir).running_nats_url()
    if not url:
        return
    try:
        async with await connect_nats(settings, url, "levelog retry") as connection:
            for scope in scopes:
                notifier = Notifier(connection, Cluster(scope.cluster), Application(scope.application))
                for topic in Topic:
                    await notifier.publish(topic)
    except Unavailable as error:
        sys.stderr.write(f"levelog: the processes could not be notified, and notice within 10 s: {error}\n")
