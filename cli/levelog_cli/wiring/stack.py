"""The processes of an application: ingest, processor and actuator, in one process or each in its own.

The rooms of a role are imported where the role is begun: the Kubernetes client is most of the memory of a process.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Cluster
from levelog_cli.loading import LoadedApplication
from levelog_cli.monitoring.monitor import Monitor, monitoring
from levelog_cli.printing.bars import Bars, FirstLists
from levelog_cli.servers.backing import Backing, embedded_backing, load_redactor
from levelog_cli.servers.nats import await_log, connect_nats, refuse_disagreement
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import EVERYTHING, Role, needs_cluster, needs_sql, shown
from levelog_log.leadership import Leadership
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import Connection

if TYPE_CHECKING:
    from levelog_kube.client import KubeClient
    from levelog_processors.processor import Processor
    from levelog_store.connect.database import Database

log = logging.getLogger(__name__)


class WiredProcess(Struct, frozen=True, kw_only=True):
    """What the roles of one process share."""

    settings: Settings
    application: LoadedApplication
    roles: frozenset[Role]
    backing: Backing
    connection: Connection
    redactor: Redactor
    client: "KubeClient | None"
    cluster: Cluster | None
    database: "Database | None"
    on_processor: "Callable[[Processor], None] | None"
    monitor: Monitor
    bars: Bars


async def run_stack(
    settings: Settings,
    application: LoadedApplication,
    roles: frozenset[Role],
    *,
    on_processor: "Callable[[Processor], None] | None" = None,
) -> None:
    """Run until cancelled. What fails first stops the rest and is raised.

    Nothing is written before the cluster has said which one it is and that it may be watched, and both servers were
    reached. Only all roles together may have embedded servers: other processes could not reach those. `on_processor` is
    given the processor before it starts.
    """
    client = cluster = database = None
    async with AsyncExitStack() as stack:
        bars = Bars(settings.log_format)
        stack.callback(bars.put_away)
        monitor = await stack.enter_async_context(monitoring(settings.listen, roles))
        if needs_cluster(roles):
            from levelog_cli.servers.clusters import known_cluster

            known = known_cluster(settings, application.program, roles)
            client, cluster = await stack.enter_async_context(known)
        backing = Backing(nats_url=settings.nats_url, database_url=settings.database_url)
        if roles == EVERYTHING:
            backing = await stack.enter_async_context(embedded_backing(settings))
        redactor = load_redactor(settings, backing)
        connection = await stack.enter_async_context(await connect_nats(settings, backing.nats_url, shown(roles)))
        if needs_sql(roles):
            from levelog_cli.servers.databases import open_to_run

            opening = open_to_run(backing.database_url, bars, is_own=backing.has_own_database)
            database = await stack.enter_async_context(await opening)
        process = WiredProcess(
            settings=settings,
            application=application,
            roles=roles,
            backing=backing,
            connection=connection,
            redactor=redactor,
            client=client,
            cluster=cluster,
            database=database,
            on_processor=on_processor,
            monitor=monitor,
            bars=bars,
        )
        await _run(process)


async def _run(process: WiredProcess) -> None:
    """Run everything as tasks of a group, which lists their errors in the order in which they failed."""
    async with asyncio.TaskGroup() as tasks:
        if process.backing.nats is not None:
            tasks.create_task(process.backing.nats.watch(), name="nats-server")
        tasks.create_task(process.connection.until_refused(), name="refusals of NATS")
        for server in process.monitor.servers(process.connection, process.database, process.client):
            tasks.create_task(server.watch(), name="probe")
        if process.client is not None and process.backing.data is not None and not process.settings.dry_run:
            from levelog_cli.wiring.runlease import RunLease

            lease = RunLease(process.client, process.application.name, process.backing.data)
            tasks.create_task(lease.keep(), name="lease of this run")
        tasks.create_task(_run_roles(process), name="roles")


async def _open_log(process: WiredProcess) -> LogStream:
    if process.cluster is not None and Role.INGEST in process.roles:
        stream = await ensure_stream(
            process.connection,
            process.cluster,
            replicas=process.settings.log_replicas or None,
            redaction=process.redactor.digest,
        )
    else:
        stream = await await_log(process.connection, process.settings, process.cluster)
    stream.require_redaction(process.redactor.digest)
    return stream


async def _run_roles(process: WiredProcess) -> None:
    stream = await _open_log(process)
    if process.roles & {Role.INGEST, Role.PROCESS}:  # the actuator reads nothing of the log, and may have no right to
        namespaces = process.settings.namespaces if Role.INGEST in process.roles else None
        await refuse_disagreement(stream, process.application, namespaces)
    log.info("%s: application %s", shown(process.roles), process.application.name, extra={"cluster": stream.cluster})
    async with asyncio.TaskGroup() as tasks:
        if process.client is not None and Role.INGEST in process.roles:
            tasks.create_task(_ingest(process, process.client, stream), name="ingest")
        if process.database is not None:
            from levelog_cli.wiring.working import work

            tasks.create_task(work(process, stream, process.database), name="work")


async def _ingest(process: WiredProcess, client: "KubeClient", stream: LogStream) -> None:
    """Watch, or stand by for another process of the application that does; nobody shares an embedded NATS."""
    from levelog_ingest.ingest import Ingest
    from levelog_ingest.status import WatchedResource

    program = process.application.program
    watched = [
        WatchedResource(
            resource=resource.group_resource,
            version=resource.version,
            namespaces=() if resource.scope == "Cluster" else process.settings.namespaces,
            kind=resource.kind,
            scope=resource.scope or None,
        )
        for resource in program.resources.values()
    ]
    names = [str(each.resource) for each in watched] + list(program.sources)
    leadership = None
    if process.backing.nats is None:
        leadership = Leadership(stream, process.application.name, Role.INGEST, holder=process_name())

    async def watch() -> None:
        begun = Ingest(
            client,
            stream,
            watched,
            process.redactor,
            sources=list(program.sources.values()),
            # with it, objects are counted first
            on_change=FirstLists(process.bars, names) if process.bars.are_wanted else None,
            application=process.application.name,
        )
        process.monitor.ingest(begun, leadership)
        await begun.run()

    if leadership is None:
        await watch()
    else:
        process.monitor.watch(Role.INGEST)  # it stands by
        await leadership.lead(watch)


def process_name(token: str = "") -> str:
    """Host, process id and a random part: a pid is used again, and pods of one name come and go.

    With the token of a database, others see in PostgreSQL whether the process is there.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{token or secrets.token_hex(4)}"
