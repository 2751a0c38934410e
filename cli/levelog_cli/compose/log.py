"""Finding the log of a cluster on NATS, for those who do not make it."""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from nats.aio.msg import Msg

from levelog.errors import ConfigurationError
from levelog.wire.objects import Cluster
from levelog.wire.subjects import stream_name
from levelog_cli.settings import Settings
from levelog_log.connection import Connection
from levelog_log.stream import LogStream, clusters, find_stream

log = logging.getLogger(__name__)

_STREAM_MADE: Final = "$JS.EVENT.ADVISORY.STREAM.CREATED"
_SWEEP: Final = timedelta(seconds=10)  # an advisory may be lost, or not be exported to the account


async def await_log(connection: Connection, settings: Settings, cluster: Cluster | None) -> LogStream:
    """The log of a cluster (None: of the only one that has a log here), as soon as ingest has made it.

    Raises ConfigurationError if there are logs of several clusters and the settings name none.
    """
    has_changed = asyncio.Event()

    async def note(_: Msg) -> None:
        has_changed.set()

    wanted = cluster or Cluster(settings.cluster)
    subscription = await connection.subscribe(f"{_STREAM_MADE}.{stream_name(wanted) if wanted else '*'}", note)
    is_told = False
    try:
        while True:
            has_changed.clear()
            found = await _find_log(connection, wanted)
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


async def _find_log(connection: Connection, wanted: Cluster) -> LogStream | None:
    if not wanted:  # only who may list the streams can do without --cluster
        known = await clusters(connection)
        if len(known) > 1:
            raise ConfigurationError(
                f"NATS at {connection.url} holds the logs of several clusters, {', '.join(known)}: "
                "say which with --cluster or LEVELOG_CLUSTER"
            )
        if not known:
            return None
        wanted = known[0]
    return await find_stream(connection, wanted)
