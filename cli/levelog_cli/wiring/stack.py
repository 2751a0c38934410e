"""The processes of an application: ingest, processor and actuator, in one process or each in its own.

The rooms of a role are imported where the role is begun: the Kubernetes client is most of the memory of a process.
"""

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from levelog.calls.audithook import check_purity
from levelog_base.errors import ConfigurationError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application, Cluster
from levelog_cli.loading import LoadedApplication
from levelog_cli.monitoring.monitor import Monitor, monitoring
from levelog_cli.printing.bars import Bars
from levelog_cli.servers.backing import Backing, embedded_backing, load_redactor
from levelog_cli.servers.nats import await_log, connect_nats, refuse_disagreement
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import EVERYTHING, Role, needs_cluster, needs_sql, shown
from levelog_log.leadership import Leadership
from levelog_log.notifications import Notifier, Topic
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.timelinemark import TimelineMark
from levelog_log.transport.connection import Connection

if TYPE_CHECKING:
    from levelog_actuator.actuator import Actuator
    from levelog_actuator.dryrun import DryRun
    from levelog_kube.client import KubeClient
    from levelog_processors.live import LiveIndices
    from levelog_processors.processor import Processor
    from levelog_store.connect.database import Database
    from levelog_store.rows import Scope

log = logging.getLogger(__name__)

_RESYNC: Final = timedelta(seconds=10)  # a notification may be lost


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
        bars = stack.enter_context(Bars(settings.log_format))
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
        process = _Process(
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
        await process.run()


class _Process(Struct, kw_only=True):
    """One process with what it is connected to."""

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

    async def run(self) -> None:
        """Run everything as tasks of a group, which lists their errors in the order in which they failed."""
        async with asyncio.TaskGroup() as tasks:
            if self.backing.nats is not None:
                tasks.create_task(self.backing.nats.watch(), name="nats-server")
            tasks.create_task(self.connection.until_refused(), name="refusals of NATS")
            for server in self.monitor.servers(self.connection, self.database, self.client):
                tasks.create_task(server.watch(), name="probe")
            if self.client is not None and self.backing.data is not None and not self.settings.dry_run:
                from levelog_cli.wiring.runlease import RunLease

                lease = RunLease(self.client, self.application.name, self.backing.data)
                tasks.create_task(lease.keep(), name="lease of this run")
            tasks.create_task(self._run_roles(), name="roles")

    async def _run_roles(self) -> None:
        stream = await self._log()
        if self.roles & {Role.INGEST, Role.PROCESS}:  # the actuator reads nothing of the log, and may have no right to
            namespaces = self.settings.namespaces if Role.INGEST in self.roles else None
            await refuse_disagreement(stream, self.application, namespaces)
        log.info("%s: application %s", shown(self.roles), self.application.name, extra={"cluster": stream.cluster})
        async with asyncio.TaskGroup() as tasks:
            if self.client is not None and Role.INGEST in self.roles:
                tasks.create_task(self._ingest(self.client, stream), name="ingest")
            if self.database is not None:
                tasks.create_task(self._work(stream, self.database), name="work")

    async def _ingest(self, client: "KubeClient", stream: LogStream) -> None:
        """Watch, or stand by for another process of the application that does; nobody shares an embedded NATS."""
        from levelog_cli.printing.bars import FirstLists
        from levelog_ingest.ingest import Ingest
        from levelog_ingest.status import WatchedResource

        program = self.application.program
        watched = [
            WatchedResource(
                resource=resource.group_resource,
                version=resource.version,
                namespaces=() if resource.scope == "Cluster" else self.settings.namespaces,
                kind=resource.kind,
                scope=resource.scope or None,
            )
            for resource in program.resources.values()
        ]
        names = [str(each.resource) for each in watched] + list(program.sources)
        leadership = None
        if self.backing.nats is None:
            leadership = Leadership(stream, self.application.name, Role.INGEST, holder=process_name())

        async def watch() -> None:
            begun = Ingest(
                client,
                stream,
                watched,
                self.redactor,
                sources=list(program.sources.values()),
                # with it, objects are counted first
                on_change=FirstLists(self.bars, names) if self.bars.are_wanted else None,
                application=self.application.name,
            )
            self.monitor.ingest(begun, leadership)
            await begun.run()

        if leadership is None:
            await watch()
        else:
            self.monitor.watch(Role.INGEST)  # it stands by
            await leadership.lead(watch)

    async def _log(self) -> LogStream:
        if self.cluster is not None and Role.INGEST in self.roles:
            stream = await ensure_stream(
                self.connection,
                self.cluster,
                replicas=self.settings.log_replicas or None,
                redaction=self.redactor.digest,
            )
        else:
            stream = await await_log(self.connection, self.settings, self.cluster)
        stream.require_redaction(self.redactor.digest)
        return stream

    async def _work(self, stream: LogStream, database: "Database") -> None:
        """Process and actuate on one scope of the database."""
        async with AsyncExitStack() as stack:
            notifier = await stack.enter_async_context(Notifier(self.connection, stream.cluster, self.application.name))
            if self.backing.nats is None:
                mark = TimelineMark(stream, self.application.name, holder=process_name())
                await stack.enter_async_context(mark.kept(lambda: database.timeline, database.require))
            if Role.PROCESS in self.roles:
                scope = await self._open_scope(stream, database, notifier)
            else:
                scope = await _await_scope(database, stream, self.application.name, notifier)
            await self._work_on(scope, stream, database, notifier)

    async def _work_on(self, scope: "Scope", stream: LogStream, database: "Database", notifier: Notifier) -> None:
        from levelog_processors.hooks import Lifecycle
        from levelog_processors.live import LiveIndices
        from levelog_processors.processor import Processor
        from levelog_store.actuate.claims import Claimant

        program = self.application.program
        if any(operator.configures_clients for operator in program.operators):
            from levelog_cli.wiring.clients import configure_clients

            await configure_clients(self.settings)
        if Role.PROCESS not in self.roles:
            async with AsyncExitStack() as stack:
                live = None
                if program.effects:  # which may need what start-up hooks make
                    live = await stack.enter_async_context(LiveIndices(database, scope, program, notifier))
                    await stack.enter_async_context(Lifecycle(program, live.index))
                self.monitor.trace(scope, stream, database)
                if actuator := self._actuator(scope, stream, database, notifier, live):
                    await actuator.run()
            return
        if self.settings.check_purity:
            check_purity()
        events_from = await self._events_from(stream)
        async with LiveIndices(database, scope, program, notifier) as live, Lifecycle(program, live.index):
            self.monitor.trace(scope, stream, database)
            actuator = self._actuator(scope, stream, database, notifier, live)
            if self.settings.dry_run and program.unrecorded:
                log.warning("dry run: not called: %s", ", ".join(sorted(program.unrecorded)))
            processor = Processor(
                database,
                scope,
                program,
                stream,
                notifier,
                owner=process_name(database.token),
                threads=self.settings.threads,
                on_keys=live.tell,
                redactor=self.redactor,
                claimant=actuator if isinstance(actuator, Claimant) else None,
                events_from=events_from,
                is_dry=self.settings.dry_run,
            )
            if self.on_processor is not None:
                self.on_processor(processor)
            self.monitor.processor(processor)
            gc.freeze()  # what a start leaves stays: looking through it would take a tenth of a second, now and then
            gc.set_threshold(10_000)  # decisions make no cycles; at 700, looking for some takes a fifth of many
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(processor.run(), name="processor")
                tasks.create_task(self.bars.follow(lambda: processor.progress), name="progress")
                if actuator is not None:
                    tasks.create_task(actuator.run(), name="actuator")

    async def _events_from(self, stream: LogStream) -> int | None:
        """Sequence after which new record handlers begin, if that was said. Raises ConfigurationError."""
        if not self.settings.events_from:
            return None
        from levelog_history.reach import Moment

        moment = Moment.parse(self.settings.events_from, datetime.now(UTC))
        if moment.time is not None:
            return await stream.position_before(moment.time)
        last = await stream.last_sequence()
        if moment.sequence > last + 1:  # the reader would find a log that was rolled back, now and at later starts
            raise ConfigurationError(f"--events-from {moment.sequence}: the log ends at record {last}")
        return moment.sequence - 1

    def _actuator(
        self,
        scope: "Scope",
        stream: LogStream,
        database: "Database",
        notifier: Notifier,
        live: "LiveIndices | None",
    ) -> "Actuator | DryRun | None":
        """The actuator, if that is a role of this process."""
        if self.client is None or Role.ACTUATE not in self.roles:
            return None
        from levelog_actuator.actuator import Actuator
        from levelog_actuator.limits import ActuatorSettings

        limits = ActuatorSettings(
            requests=self.settings.requests,
            group_requests=self.settings.group_requests,
            longest=timedelta(seconds=self.settings.max_backoff),
        )
        if self.settings.dry_run:
            from levelog_actuator.dryrun import DryRun

            self.monitor.watch(Role.ACTUATE)
            return DryRun(database, scope, self.client, notifier, settings=limits, redactor=self.redactor)
        actuator = Actuator(
            database,
            scope,
            self.client,
            BatchPublisher(stream),
            notifier,
            settings=limits,
            redactor=self.redactor,
            effects=self.application.program.effects,
            writers=self.application.program.writers,
            index=live.index if live is not None else None,
        )
        self.monitor.actuator(actuator)
        return actuator

    async def _open_scope(self, stream: LogStream, database: "Database", notifier: Notifier) -> "Scope":
        from levelog_cli.servers.databases import make_views, refuse_company
        from levelog_processors.upkeep import verify
        from levelog_store.owners.scopes import open_scope

        if not self.settings.shared_database:
            await refuse_company(database, self.application.name)
        scope = await open_scope(
            database,
            cluster=stream.cluster,
            application=self.application.name,
            partitions=stream.partitions,
            stream_created=stream.identity.created,
            fingerprint=self.application.program.fingerprint,
            code=self.application.program.handlers,
        )
        verified = await verify(database, scope, stream)
        await make_views(database, self.application)
        await notifier.publish(Topic.INTENT)
        return verified


def process_name(token: str = "") -> str:
    """Host, process id and a random part: a pid is used again, and pods of one name come and go.

    With the token of a database, others see in PostgreSQL whether the process is there.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{token or secrets.token_hex(4)}"


async def _await_scope(
    database: "Database", stream: LogStream, application: Application, notifier: Notifier
) -> "Scope":
    """The application's scope, as soon as a processor has opened it for this log."""
    from levelog_store.owners.scopes import find_scopes

    listener = notifier.listen(Topic.INTENT)
    is_told = False
    while True:
        async with database.reading() as connection:
            for scope in await find_scopes(connection):
                is_same = scope.application == application and scope.cluster == stream.cluster
                if is_same and scope.stream_created == stream.identity.created:
                    return scope
        if not is_told:
            log.info("waits for `levelog process` to open application %s", application)
            is_told = True
        await listener.wait(_RESYNC)
