"""Processor and actuator in a process, on the scope of their application.

The actuator is imported where it is made: the Kubernetes client is most of the memory of a process.
"""

import asyncio
import gc
import logging
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from levelog.calls.audithook import check_purity
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application
from levelog_cli.servers.databases import make_views, refuse_company
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_cli.wiring.stack import WiredProcess, process_name
from levelog_history.reach import Moment
from levelog_log.notifications import Notifier, Topic
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream
from levelog_log.timelinemark import TimelineMark
from levelog_processors.hooks import Lifecycle
from levelog_processors.live import LiveIndices
from levelog_processors.processor import Processor
from levelog_processors.upkeep import verify
from levelog_store.actuate.claims import Claimant
from levelog_store.connect.database import Database
from levelog_store.owners.scopes import find_scopes, open_scope
from levelog_store.rows import Scope

if TYPE_CHECKING:
    from levelog_actuator.actuator import Actuator
    from levelog_actuator.dryrun import DryRun

log = logging.getLogger(__name__)

_RESYNC: Final = timedelta(seconds=10)  # a notification may be lost


async def work(process: WiredProcess, stream: LogStream, database: Database) -> None:
    """Process and actuate on one scope of the database."""
    async with AsyncExitStack() as stack:
        name = process.application.name
        notifier = await stack.enter_async_context(Notifier(process.connection, stream.cluster, name))
        if process.backing.nats is None:
            mark = TimelineMark(stream, name, holder=process_name())
            await stack.enter_async_context(mark.kept(lambda: database.timeline, database.require))
        if Role.PROCESS in process.roles:
            scope = await _open_scope(process, stream, database, notifier)
        else:
            scope = await _await_scope(database, stream, name, notifier)
        await _Work(process, scope, stream, database, notifier).run()


class _Work(Struct, frozen=True):
    """What processor and actuator of one process share."""

    process: WiredProcess
    scope: Scope
    stream: LogStream
    database: Database
    notifier: Notifier

    async def run(self) -> None:
        """Run until cancelled."""
        program, is_processing = self.process.application.program, Role.PROCESS in self.process.roles
        if any(operator.configures_clients for operator in program.operators):
            from levelog_cli.wiring.clients import configure_clients

            await configure_clients(self.process.settings)
        if is_processing and self.process.settings.check_purity:
            check_purity()
        events_from = await _events_from(self.process.settings, self.stream) if is_processing else None
        async with AsyncExitStack() as stack:
            live: LiveIndices | None = None
            if is_processing or program.effects:  # which may need what start-up hooks make
                live = await stack.enter_async_context(LiveIndices(self.database, self.scope, program, self.notifier))
                await stack.enter_async_context(Lifecycle(program, live.index))
            self.process.monitor.trace(self.scope, self.stream, self.database)
            actuator = self._actuator(live)
            async with asyncio.TaskGroup() as tasks:
                if is_processing and live is not None:
                    processor = self._processor(live, actuator, events_from)
                    tasks.create_task(processor.run(), name="processor")
                    tasks.create_task(self.process.bars.follow(lambda: processor.progress), name="progress")
                if actuator is not None:
                    tasks.create_task(actuator.run(), name="actuator")

    def _processor(self, live: LiveIndices, actuator: "Actuator | DryRun | None", events_from: int | None) -> Processor:
        program = self.process.application.program
        if self.process.settings.dry_run and program.unrecorded:
            log.warning("dry run: not called: %s", ", ".join(sorted(program.unrecorded)))
        processor = Processor(
            self.database,
            self.scope,
            program,
            self.stream,
            self.notifier,
            owner=process_name(self.database.token),
            threads=self.process.settings.threads,
            on_keys=live.tell,
            redactor=self.process.redactor,
            claimant=actuator if isinstance(actuator, Claimant) else None,
            events_from=events_from,
            is_dry=self.process.settings.dry_run,
        )
        if self.process.on_processor is not None:
            self.process.on_processor(processor)
        self.process.monitor.processor(processor)
        gc.freeze()  # what a start leaves stays: looking through it would take a tenth of a second, now and then
        gc.set_threshold(10_000)  # decisions make no cycles; at 700, looking for some takes a fifth of many
        return processor

    def _actuator(self, live: LiveIndices | None) -> "Actuator | DryRun | None":
        """The actuator, if that is a role of this process."""
        if self.process.client is None or Role.ACTUATE not in self.process.roles:
            return None
        from levelog_actuator.actuator import Actuator
        from levelog_actuator.outbox import ActuatorSettings

        limits = ActuatorSettings(
            requests=self.process.settings.requests,
            group_requests=self.process.settings.group_requests,
            longest=timedelta(seconds=self.process.settings.max_backoff),
        )
        if self.process.settings.dry_run:
            from levelog_actuator.dryrun import DryRun

            self.process.monitor.watch(Role.ACTUATE)
            return DryRun(
                self.database,
                self.scope,
                self.process.client,
                self.notifier,
                settings=limits,
                redactor=self.process.redactor,
            )
        actuator = Actuator(
            self.database,
            self.scope,
            self.process.client,
            BatchPublisher(self.stream),
            self.notifier,
            settings=limits,
            redactor=self.process.redactor,
            effects=self.process.application.program.effects,
            writers=self.process.application.program.writers,
            index=live.index if live is not None else None,
        )
        self.process.monitor.actuator(actuator)
        return actuator


async def _events_from(settings: Settings, stream: LogStream) -> int | None:
    """Sequence after which new record handlers begin, if that was said. Raises ConfigurationError."""
    if not settings.events_from:
        return None
    moment = Moment.parse(settings.events_from, datetime.now(UTC))
    if moment.time is not None:
        return await stream.position_before(moment.time)
    last = await stream.last_sequence()
    if moment.sequence > last + 1:  # the reader would find a log that was rolled back, now and at later starts
        raise ConfigurationError(f"--events-from {moment.sequence}: the log ends at record {last}")
    return moment.sequence - 1


async def _open_scope(process: WiredProcess, stream: LogStream, database: Database, notifier: Notifier) -> Scope:
    if not process.settings.shared_database:
        await refuse_company(database, process.application.name)
    scope = await open_scope(
        database,
        cluster=stream.cluster,
        application=process.application.name,
        partitions=stream.partitions,
        stream_created=stream.identity.created,
        fingerprint=process.application.program.fingerprint,
        code=process.application.program.handlers,
    )
    verified = await verify(database, scope, stream)
    await make_views(database, process.application)
    await notifier.publish(Topic.INTENT)
    return verified


async def _await_scope(database: Database, stream: LogStream, application: Application, notifier: Notifier) -> Scope:
    """The application's scope, as soon as a processor has opened it for this log."""
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
