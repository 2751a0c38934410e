"""How many servers of a NATS cluster keep a stream: raised as the cluster grows, never lowered."""

import asyncio
import logging
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct

from levelog_base.errors import Unavailable
from levelog_log.transport.connection import Connection
from levelog_log.transport.jetstream import NO_STREAM, ErrorAnswer, Group, ask_again, refusal

log = logging.getLogger(__name__)

MOST: Final = 3
"""More servers write slower."""
TOO_FEW: Final = (10005, 10074)
"""Error codes: no suitable peers for placement; several replicas without a cluster."""
_ELECTION: Final = timedelta(seconds=15)
_PAUSE: Final = timedelta(milliseconds=200)


class _Answer(Struct, frozen=True):
    error: ErrorAnswer | None = None
    cluster: Group | None = None
    config: dict[str, Any] = {}
    """Sent back as it came, since an update resets what it leaves out."""


async def raise_replicas(connection: Connection, name: str, wanted: int | None) -> int:
    """Have at least `wanted` servers keep a stream; returns how many do, 0 if there is no such stream.

    None: as many as the cluster has, up to three. Raises Unavailable, also where the cluster has too few for a
    number that was given; ConfigurationError.
    """
    found = await _info(connection, name)
    if found.error is not None:
        if found.error.err_code == NO_STREAM:
            return 0
        raise refusal(f"asking for stream {name}", found.error)
    has, needed = int(found.config.get("num_replicas", 1)), wanted or MOST
    if has >= needed or (wanted is None and (found.cluster is None or not found.cluster.name)):
        return has
    step = f"keeping stream {name} on {needed} servers of NATS"
    config = {**found.config, "num_replicas": needed}
    error = (await ask_again(connection, f"STREAM.UPDATE.{name}", config, _Answer)).error
    if error is None:
        log.info("stream %s is kept by %d servers of NATS, before by %d", name, needed, has)
        await _await_leader(connection, name)
        return needed
    if wanted is None and error.err_code in TOO_FEW:
        log.warning("stream %s stays on %d of the servers of NATS: %s", name, has, error.description)
        return has
    raise refusal(step, error)


async def _await_leader(connection: Connection, name: str) -> None:
    """Wait until the servers that keep the stream now have elected one. Raises Unavailable."""
    try:
        async with asyncio.timeout(_ELECTION.total_seconds()):
            while (group := (await _info(connection, name)).cluster) is not None and not group.leader:  # noqa: ASYNC110 - NATS tells nobody
                await asyncio.sleep(_PAUSE.total_seconds())
    except TimeoutError as error:
        raise Unavailable(f"stream {name} has no leader on NATS at {connection.url} yet") from error


async def _info(connection: Connection, name: str) -> _Answer:
    return await ask_again(connection, f"STREAM.INFO.{name}", None, _Answer)
