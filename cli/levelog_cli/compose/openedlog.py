"""The log for those who look back at it: on the NATS that is given, of an application that runs, or of one that ran."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from levelog.errors import ConfigurationError
from levelog.wire.objects import Cluster
from levelog_cli.compose.nats import connect_nats
from levelog_cli.data_dir import DataDir
from levelog_cli.embedded import EmbeddedNats
from levelog_cli.settings import Settings
from levelog_log.stream import LogStream, clusters, open_stream


@asynccontextmanager
async def opened_log(settings: Settings) -> AsyncGenerator[LogStream]:
    """The log that the settings name, to be read.

    Where NATS was embedded and its application does not run now, the server is started for as long as the context is
    open. Raises ConfigurationError if there is no log, or there are several and none is named; Unavailable.
    """
    async with _nats_url(settings) as url, await connect_nats(settings, url, "levelog history") as connection:
        known = await clusters(connection)
        wanted = settings.cluster
        if not known or (wanted and wanted not in known):
            held = f"; it holds those of {', '.join(known)}" if known else ""
            what = f"no log of cluster {wanted}" if wanted else "no log"
            raise ConfigurationError(f"NATS at {connection.url} holds {what}{held}: `levelog ingest` makes one")
        if not wanted and len(known) > 1:
            raise ConfigurationError(
                f"NATS at {connection.url} holds the logs of several clusters, {', '.join(known)}: say which with "
                "--cluster or LEVELOG_CLUSTER"
            )
        yield await open_stream(connection, Cluster(wanted or known[0]))


@asynccontextmanager
async def _nats_url(settings: Settings) -> AsyncGenerator[str]:
    data = DataDir(settings.data_dir)
    if url := settings.nats_url or data.running_nats_url():
        yield url
        return
    if not data.nats.exists():
        raise ConfigurationError(
            f"there is no log in {data.shown}: give --nats-url, or the --data-dir that `levelog run` used"
        )
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as nats:
            yield nats.url
