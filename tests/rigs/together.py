"""Ingest, a processor and an actuator of one application, all in this process, as `levelog run` has them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from levelog.resources import ResourceBase
from levelog_actuator import Actuator
from levelog_actuator.outbox import ActuatorSettings
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import WatchedResource
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.notifications import Notifier
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import ensure_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.processor import Processor
from levelog_processors.program import Program
from levelog_processors.upkeep import verify
from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from rigs.acting import QUICK
from rigs.leasing import scope_of

PARTITIONS: Final = 2
TURNS: Final = 10
"""Of the loop, until the tasks that others began are cancelled too."""


class Together(Struct):
    """What runs."""

    database: Database
    scope: Scope
    tasks: list[asyncio.Task[Any]]

    def check(self) -> None:
        """Raise what one of them has ended with."""
        for task in self.tasks:
            if task.done():
                task.result()


@asynccontextmanager
async def together(
    kubeconfig: Path,
    nats_url: str,
    database_url: str,
    application: Application,
    program: Program,
    watched: Sequence[type[ResourceBase]],
    *,
    owners: Sequence[str] = ("one",),
    settings: ActuatorSettings = QUICK,
) -> AsyncGenerator[Together]:
    """Run them until the end of the block, with a processor for each owner; the database has its tables."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect_kube(kubeconfig))
        connection = await stack.enter_async_context(await connect_nats(nats_url))
        stream = await ensure_stream(connection, await cluster_uid(client), partitions=PARTITIONS)
        notifier = await stack.enter_async_context(Notifier(connection, stream.cluster, application))
        database = await stack.enter_async_context(await Database.open(database_url))
        opened = await scope_of(database, program, stream, application=application)
        scope = await verify(database, opened, stream)
        types = [each.resource_type for each in watched]
        resources = [WatchedResource(resource=each.group_resource, version=each.version) for each in types]
        publisher = BatchPublisher(stream)
        actuator = Actuator(
            database,
            scope,
            client,
            publisher,
            notifier,
            settings=settings,
            effects=program.effects,
            writers=program.writers,
        )
        runs = [
            Ingest(client, stream, resources, Redactor()).run(),
            *(
                Processor(database, scope, program, stream, notifier, owner=each, claimant=actuator).run()
                for each in owners
            ),
            actuator.run(),
        ]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(each) for each in runs]
        try:
            yield Together(database, scope, tasks)
        finally:
            async with database.transaction():  # so that none of theirs is cut short, which SQLite holds on to
                for task in tasks:
                    task.cancel()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
