"""Finding the log of a cluster on NATS, for those who do not make it."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from nats.aio.msg import Msg

from levelog.errors import ConfigurationError, Unavailable
from levelog.objects import Cluster
from levelog_cli.settings import Settings
from levelog_log.connection import Connection
from levelog_log.stream import LogStream, clusters, open_stream

log = logging.getLogger(__name__)

_STREAM_MADE: Final = "$JS.EVENT.ADVISORY.STREAM.CREATED.>"
_SWEEP: Final = timedelta(seconds=10)  # an advisory may be lost, or not be exported to the account


async def await_log(connection: Connection, settings: Settings, cluster: Cluster | None) -> LogStream:
    """The log of a cluster (None: of the only one that has a log here), as soon as ingest has made it.

    Raises ConfigurationError if there are logs of several clusters and the settings name none.
    """
    has_changed = asyncio.Event()

    async def note(_: Msg) -> None:
        has_changed.set()

    subscription = await connection.subscribe(_STREAM_MADE, note)
    is_told = False
    try:
        while True:
            has_changed.clear()
            found = await _find_log(connection, settings, cluster)
            if found is not None:
                return found
            if not is_told:
                log.info("waits for the log, which `levelog ingest` makes", extra={"nats": connection.url})
                is_told = True
            try:
                async with asyncio.timeout(_SWEEP.total_seconds()):
                    await has_changed.wait()
            except TimeoutError:
                continue
    finally:
        if not connection.client.is_closed:
            await subscription.unsubscribe()


async def _find_log(connection: Connection, settings: Settings, cluster: Cluster | None) -> LogStream | None:
    known = await clusters(connection)
    wanted = cluster or settings.cluster
    if not wanted and len(known) > 1:
        raise ConfigurationError(
            f"NATS at {connection.url} holds the logs of several clusters, {', '.join(known)}: "
            "say which with --cluster or LEVELOG_CLUSTER"
        )
    if not known or (wanted and wanted not in known):
        return None
    try:
        return await open_stream(connection, Cluster(wanted or known[0]))
    except Unavailable:
        if (wanted or known[0]) in await clusters(connection):
            raise
        return None  # removed in between
