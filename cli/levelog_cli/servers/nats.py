"""NATS as the settings say, and the log on it: who makes it, who waits for it, and whether operators agree with it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct

from levelog.resources import ResourceType
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application, Cluster, Partition, is_newer
from levelog_base.wire.records import SyncFinished, SyncStarted
from levelog_base.wire.subjects import Control, control_subject, control_subjects
from levelog_cli.loading import LoadedApplication
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.servers.embedded import EmbeddedNats
from levelog_cli.settings import NATS, Settings, flag
from levelog_cli.wiring.roles import Role
from levelog_log.leases import holder_of
from levelog_log.stream import LogStream, clusters, find_stream, open_stream
from levelog_log.transport.access import NatsAccess
from levelog_log.transport.connection import INBOX, Connection, connect

log = logging.getLogger(__name__)

_FILES: Final = NATS[1:]


async def connect_nats(settings: Settings, url: str, command: str) -> Connection:
    """Connect to a server that is given, or to the embedded one of that URL; raises as `connect` does.

    Answers come to subjects that begin with the command, `_INBOX.levelog-ingest`, so that a server can let each user
    listen to its own only.
    """
    inbox = f"{INBOX}.{command.replace(' ', '-').replace('+', '-')}"
    return await connect(url, name=command, access=_access(settings), inbox=inbox)


def _access(settings: Settings) -> NatsAccess:
    given = [flag(name) for name in _FILES if getattr(settings, name) is not None]
    if given and not settings.nats_url:
        raise ConfigurationError(f"{', '.join(given)} without --nats-url: the embedded nats-server needs none")
    return NatsAccess(
        credentials_file=settings.nats_credentials,
        nkey_file=settings.nats_nkey_file,
        ca_file=settings.nats_ca_file,
        cert_file=settings.nats_cert_file,
        key_file=settings.nats_key_file,
    )


_PAUSE_SECONDS: Final = 0.5


async def await_log(connection: Connection, settings: Settings, cluster: Cluster | None) -> LogStream:
    """The log of a cluster (None: of the only one that has a log here), as soon as ingest has made it.

    Raises ConfigurationError if there are logs of several clusters and the settings name none.
    """
    wanted = cluster or Cluster(settings.cluster)
    is_told = False
    while (found := await _find_log(connection, wanted)) is None:
        if not is_told:
            log.info("waits for the log, which `levelog ingest` makes", extra={"nats": connection.url})
            is_told = True
        await asyncio.sleep(_PAUSE_SECONDS)
    return found


async def _find_log(connection: Connection, wanted: Cluster) -> LogStream | None:
    if not wanted:  # only who may list the streams can do without --cluster
        known = await clusters(connection)
        if not known:
            return None
        wanted = _only(connection, known)
    return await find_stream(connection, wanted)


@asynccontextmanager
async def opened_log(settings: Settings) -> AsyncGenerator[LogStream]:
    """The log that the settings name, to be read.

    Where NATS was embedded and its application does not run now, the server is started for as long as the context is
    open. Raises ConfigurationError if there is no log, or there are several and none is named; Unavailable.
    """
    async with _nats_url(settings) as url, await connect_nats(settings, url, "levelog history") as connection:
        known = await clusters(connection)
        wanted = Cluster(settings.cluster)
        if not known or (wanted and wanted not in known):
            held = f"; it holds those of {', '.join(known)}" if known else ""
            what = f"no log of cluster {wanted}" if wanted else "no log"
            raise ConfigurationError(f"NATS at {connection.url} holds {what}{held}: `levelog ingest` makes one")
        yield await open_stream(connection, wanted or _only(connection, known))


def _only(connection: Connection, known: Sequence[Cluster]) -> Cluster:
    if len(known) > 1:
        raise ConfigurationError(
            f"NATS at {connection.url} holds the logs of several clusters, {', '.join(known)}: say which with "
            "--cluster or LEVELOG_CLUSTER"
        )
    return known[0]


@asynccontextmanager
async def _nats_url(settings: Settings) -> AsyncGenerator[str]:
    data = DataDir(settings.data_dir)
    if url := settings.nats_url or data.running_nats_url():
        yield url
        return
    if not data.has(data.nats):
        raise ConfigurationError(
            f"there is no log in {data.shown}: give --nats-url, or the --data-dir that `levelog run` used"
        )
    with data.claim() as lock:
        async with EmbeddedNats(data, lock) as nats:
            yield nats.url


class Agreement(Struct, frozen=True, kw_only=True):
    """Whether an application's declaration of a resource goes with the records of it in the log."""

    refusal: str = ""
    """The reason why it may not go on with this log; empty: it may."""
    replaces: str = ""
    """The recorded form, and what takes its place; empty: nothing does."""


async def refuse_disagreement(
    stream: LogStream, application: LoadedApplication, namespaces: Sequence[str] | None
) -> None:
    """Raise ConfigurationError, naming both sides, where one of `agreements` is a refusal. Raises Unavailable."""
    for agreement in await agreements(stream, application, namespaces):
        if agreement.refusal:
            raise ConfigurationError(agreement.refusal)


async def agreements(
    stream: LogStream, application: LoadedApplication, namespaces: Sequence[str] | None
) -> list[Agreement]:
    """Compare each resource that is read with the last list of it in the log.

    `namespaces` are those that this process is going to watch, None if it watches nothing: where another application
    watches others of a resource, what one lists would delete what the other holds. A newer version of the API takes
    over, unless another application watches now that recorded an older one. Raises Unavailable.
    """
    resources = application.program.resources.values()
    return await asyncio.gather(*(_compare(stream, application.name, resource, namespaces) for resource in resources))


async def _compare(
    stream: LogStream, application: str, resource: ResourceType, namespaces: Sequence[str] | None
) -> Agreement:
    found = await stream.last_record(control_subjects(stream.cluster, Control.SYNC, resource.group_resource))
    if found is None or not isinstance(found.record, SyncStarted | SyncFinished):
        return Agreement()
    last, declared, replaces = found.record, resource.api_version, ""
    name, other = resource.group_resource, f"application {last.application}"
    if last.api_version not in ("", declared):
        recorded = f"records {name} in version {last.api_version}"
        declares = f"{resource.kind} of application {application} declares {declared}"
        if not is_newer(declared, last.api_version):
            return Agreement(
                refusal=f"{other} {recorded}, {declares}, which is older: declare the version that is recorded, or "
                f"remove the stream {stream.name} on {stream.connection.url} to begin a new log"
            )
        if namespaces is not None and (watching := await _watching(stream, resource, application)):
            return Agreement(
                refusal=f"application {watching}, which watches now, {recorded}, {declares}: stop it, begin this one, "
                "and start it again with a class that declares the same"
            )
        replaces = f"{other} {recorded}, {declares}"
    if last.application in ("", application) or namespaces is None or resource.scope == "Cluster":
        return Agreement(replaces=replaces)
    if last.namespaces != tuple(namespaces):
        return Agreement(
            refusal=f"{other} records {name} of {_watched(last.namespaces)}, application {application} would record "
            f"{_watched(namespaces)}: let both watch the same namespaces, or give each a log of its own"
        )
    return Agreement(replaces=replaces)


async def _watching(stream: LogStream, resource: ResourceType, application: str) -> str:
    """Another application that recorded a resource in an older version, and of which a process watches; else empty."""
    lists = control_subject(stream.cluster, Partition(0), Control.SYNC, resource.group_resource)
    others = [
        logged.record.application
        async for logged in stream.records_of(lists)
        if isinstance(logged.record, SyncStarted) and is_newer(resource.api_version, logged.record.api_version)
    ]
    for other in sorted({*others} - {"", application}):
        if await holder_of(stream, Application(other), Role.INGEST) is not None:
            return other
    return ""


def _watched(namespaces: Sequence[str]) -> str:
    return f"namespaces {', '.join(namespaces)}" if namespaces else "all namespaces"
