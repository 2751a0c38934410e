"""Ingest running in a test, and what it wrote."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import GroupResource
from levelog_base.wire.records import (
    GapNoted,
    HistoryReverted,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    SyncFinished,
    SyncStarted,
)
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import Progress, WatchedResource
from levelog_kube.client import SILENCE, connect
from levelog_kube.discovery import cluster_uid
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import Connection
from rigs.assembled import cancel
from rigs.logs import read_all
from rigs.waiting import until

CONFIG_MAPS = WatchedResource(resource=GroupResource(group="", resource="configmaps"), version="v1")


def config_map(name: str, **data: str) -> dict[str, Any]:
    """In the namespace default."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def log_of(kubeconfig: Path, connection: Connection, *, partitions: int = 2) -> LogStream:
    """The log of a cluster, made unless it is there."""
    async with await connect(kubeconfig) as client:
        return await ensure_stream(connection, await cluster_uid(client), partitions=partitions)


@asynccontextmanager
async def ingesting(
    kubeconfig: Path,
    stream: LogStream,
    *watched: WatchedResource,
    redactor: Redactor | None = None,
    on_change: Progress | None = None,
    silence: timedelta = SILENCE,
    application: str = "",
) -> AsyncGenerator[Ingest]:
    """Ingest of these resources (ConfigMaps unless others are given), cancelled at the end.

    What ends it before is raised at the end, instead of what the test raises.
    """
    async with await connect(kubeconfig) as client:
        ingest = Ingest(
            client,
            stream,
            watched or (CONFIG_MAPS,),
            redactor or Redactor(),
            on_change=on_change,
            silence=silence,
            application=application,
        )
        task = asyncio.create_task(ingest.run())
        try:
            yield ingest
        finally:
            await cancel(task)


async def until_watching(ingest: Ingest) -> None:
    """Wait until every resource is listed."""
    await until(lambda: all(status.phase == "watching" for status in ingest.snapshot()), "ingest to watch everything")


async def until_recorded(
    stream: LogStream, is_enough: Callable[[Sequence[LoggedRecord]], object]
) -> Sequence[LoggedRecord]:
    """Wait until the records in the log are enough, and return them."""

    async def enough() -> Sequence[LoggedRecord]:
        records = await read_all(stream)
        return records if is_enough(records) else ()

    return await until(enough, "the records to be in the log")


def state_of(records: Sequence[LoggedRecord]) -> dict[str, Any]:
    """The objects that exist when the records are folded in order: bodies by name, with what a finished list sweeps."""
    bodies: dict[str, Any] = {}
    last: dict[str, tuple[int, int]] = {}
    started: dict[str, int] = {}
    for logged in records:
        match logged.record:
            case ObjectSeen() as seen:
                if seen.version >= last.get(seen.key.name, (0, 0))[1]:
                    bodies[seen.key.name] = msgspec.json.decode(seen.body)
                    last[seen.key.name] = (logged.sequence, seen.version)
            case ObjectDeleted() as gone:
                bodies.pop(gone.key.name, None)
                last[gone.key.name] = (logged.sequence, gone.version)
            case SyncStarted(sync_id=sync_id):
                started.setdefault(sync_id, logged.sequence)
            case HistoryReverted():
                last = {name: (sequence, 0) for name, (sequence, _) in last.items()}
                started.clear()
            case SyncFinished(sync_id=sync_id, version=version) if sync_id in started:
                for name in [*bodies]:
                    if last[name][0] < started[sync_id] and last[name][1] <= version:
                        del bodies[name]
            case _:
                pass
    return bodies


def lists(records: Sequence[LoggedRecord]) -> int:
    """How many lists were finished."""
    return len({record.record.sync_id for record in records if isinstance(record.record, SyncFinished)})


def gaps(records: Sequence[LoggedRecord]) -> list[GapNoted]:
    """The gaps, once each."""
    return [record.record for record in records if isinstance(record.record, GapNoted) and record.partition == 0]
