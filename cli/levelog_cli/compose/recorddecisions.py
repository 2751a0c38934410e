"""The decisions that stand between the records of a history: those of the applications on a log, or of a bundle."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from levelog.errors import ConfigurationError
from levelog_cli.compose.levels import selected_scopes
from levelog_cli.compose.recordsources import BundleSource, LogSource
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.databases import open_to_read
from levelog_cli.settings import Settings
from levelog_history.selection import Selected
from levelog_history.timeline import Decided
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Asked, Decision
from levelog_store.look.overview import find_scopes
from levelog_store.look.recall import read_about
from levelog_store.rows import Scope

_SLACK: Final = timedelta(minutes=5)
"""How far the clocks of processors and NATS may be apart."""

IsShown = Callable[[str], bool]
"""Tells whether an object, by its name, is one of those that are shown."""


@asynccontextmanager
async def opened_decisions(
    settings: Settings, source: LogSource | BundleSource, selected: Sequence[Selected], is_shown: IsShown
) -> AsyncGenerator[list[AsyncIterator[Decided]]]:
    """Decisions on the objects that are shown, and those that wrote to one: for each application, in their order.

    Raises ConfigurationError if there is no database, or it holds no such application.
    """
    if isinstance(source, BundleSource):
        yield [_in_bundle(source, is_shown)]
        return
    data = DataDir(settings.data_dir)
    if not settings.database_url and not data.database.exists():
        raise ConfigurationError(
            f"decisions are in the database of the application, and there is none in {data.shown}: give "
            "--database-url, or the --data-dir that `levelog run` used"
        )
    names = [str(each) if each.name else f"{each}/" for each in selected]
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(await open_to_read(settings))
        async with database.reading() as connection:
            scopes = selected_scopes(settings, database.name, await find_scopes(connection))
        begun = datetime.fromisoformat(source.stream.identity.created)
        yield [
            _in_database(database, scope, names, is_shown, begun)
            for scope in scopes
            if scope.cluster == source.stream.cluster
        ]


async def _in_database(
    database: Database, scope: Scope, names: Sequence[str], is_shown: IsShown, begun: datetime
) -> AsyncIterator[Decided]:
    async for page in read_about(database, scope, names):
        for past, writes in page:
            if past.decided_at + _SLACK < begun:
                continue  # made on a log that was here before this one, whose sequences were others
            if _is_about(past, writes, is_shown):
                yield Decided(application=scope.application, decision=past, writes=writes)


async def _in_bundle(source: BundleSource, is_shown: IsShown) -> AsyncIterator[Decided]:
    async for past, writes in source.bundle.written():
        if _is_about(past, writes, is_shown):
            yield Decided(application=source.bundle.origin.application, decision=past, writes=writes)


def _is_about(past: Decision, writes: Sequence[Asked], is_shown: IsShown) -> bool:
    return is_shown(past.parent) or any(is_shown(asked.target) for asked in writes)
