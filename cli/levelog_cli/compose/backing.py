"""The servers behind the processes of an application: NATS and SQL, given by URL or embedded."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from levelog_cli.data_dir import DataDir
from levelog_cli.embedded import EmbeddedNats
from levelog_cli.settings import Settings

log = logging.getLogger(__name__)


class Backing(Struct, frozen=True, kw_only=True):
    """Where the log and the tables are."""

    nats_url: str
    database_url: str
    data: DataDir | None = None
    """Set if one of the two is embedded."""
    nats: EmbeddedNats | None = None

    @property
    def has_own_database(self) -> bool:
        """Whether the tables are in the data directory, where nobody but levelog keeps their revision."""
        return self.data is not None and self.database_url == self.data.database_url


@asynccontextmanager
async def embedded_backing(settings: Settings) -> AsyncGenerator[Backing]:
    """What is given by URL, and the rest embedded, up while the context is open."""
    if settings.nats_url and settings.database_url:
        yield Backing(nats_url=settings.nats_url, database_url=settings.database_url)
        return
    data = DataDir(settings.data_dir)
    with data.claim() as lock:
        log.info("keeps its data in %s", data.shown)
        database_url = settings.database_url or data.database_url
        if settings.nats_url:
            yield Backing(nats_url=settings.nats_url, database_url=database_url, data=data)
            return
        async with EmbeddedNats(data, lock) as nats:
            yield Backing(nats_url=nats.url, database_url=database_url, data=data, nats=nats)
