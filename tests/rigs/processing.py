"""Processors on a real log and a real database, fed with records instead of a cluster."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from sqlalchemy import Table, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from levelog.operator import Operator
from levelog_actuator import Actuator
from levelog_base.wire.objects import Application, Cluster, GroupResource, Partition
from levelog_base.wire.records import AboutResource, ObjectDeleted, ObjectSeen, ReceiptNoted
from levelog_base.wire.subjects import partition_subjects
from levelog_cli.loading import load_operators
from levelog_kube.client import KubeClient
from levelog_log.appender import Appender
from levelog_log.messages import MessageWriter
from levelog_log.notifications import Notifier
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_processors.processor import Processor
from levelog_processors.program import Program
from levelog_processors.upkeep import verify
from levelog_store.actuate import claims
from levelog_store.connect.database import Database
from levelog_store.dialects import now
from levelog_store.fold.checkpoints import read_points
from levelog_store.rows import IndexKey, Scope
from levelog_store.tables import backfills, intents, leases, levels, wakeups
from rigs.acting import QUICK
from rigs.assembled import Assembled, cancel
from rigs.leasing import scope_of
from rigs.levelog import WEBS_FILE
from rigs.logs import be_back_soon, change_settings
from rigs.migrated import migrate
from rigs.waiting import until
from rigs.webs import PODS, WEBS, lists_done, web

CLUSTER = Cluster("cluster")
PARTITIONS = 4


class Processing(Assembled):
    """One application with any number of processors; used as `async with Processing(...)`."""

    def __init__(
        self,
        nats_url: str,
        database_url: str,
        operators: Sequence[Operator] | None = None,
        *,
        cluster: Cluster = CLUSTER,
        redaction: str = "",
    ) -> None:
        """`redaction`: the digest that the log notes."""
        self._redaction = redaction
        self._cluster = cluster
        self._nats_url = nats_url
        self._database_url = database_url
        self.program = Program(operators or load_operators([WEBS_FILE]))
        self.processors: dict[str, Processor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.stream: LogStream
        self.database: Database
        self.scope: Scope
        self.notifier: Notifier
        self.on_keys: Callable[[Collection[IndexKey]], None] | None = None
        """What processors started from now on tell of the keys that they change."""

    async def _open(self, stack: AsyncExitStack) -> None:
        connection = await stack.enter_async_context(await connect(self._nats_url))
        be_back_soon(connection)
        self.stream = await ensure_stream(connection, self._cluster, partitions=PARTITIONS, redaction=self._redaction)
        self._appender = await stack.enter_async_context(Appender(BatchPublisher(self.stream)))
        self._writer = MessageWriter(self._cluster, PARTITIONS, source="test")
        await migrate(self._database_url)
        self.database = await stack.enter_async_context(await Database.open(self._database_url))
        self.notifier = await stack.enter_async_context(Notifier(connection, self._cluster, Application("webs")))
        await self.open()
        stack.push_async_callback(self._stop_all)

    async def _stop_all(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)

    async def open(self) -> None:
        """Open the scope as a process does that starts."""
        scope = await scope_of(self.database, self.program, self.stream)
        self.scope = await verify(self.database, scope, self.stream)

    def start(self, name: str = "one", *, events_from: int | None = None) -> Processor:
        """Run a processor."""
        processor = Processor(
            self.database,
            self.scope,
            self.program,
            self.stream,
            self.notifier,
            owner=f"{name}-{len(self.processors)}",
            on_keys=self.on_keys,
            events_from=events_from,
            writes_after=timedelta(milliseconds=50),
        )
        self.processors[name] = processor
        self._tasks[name] = asyncio.create_task(processor.run(), name=name)
        return processor

    def actuate(self, client: KubeClient) -> None:
        """Run an actuator."""
        actuator = Actuator(
            self.database,
            self.scope,
            client,
            BatchPublisher(self.stream),
            self.notifier,
            settings=QUICK,
            effects=self.program.effects,
            writers=self.program.writers,
        )
        self._tasks["actuator"] = asyncio.create_task(actuator.run(), name="actuator")

    async def stop(self, name: str = "one") -> None:
        """Stop a processor, or the actuator; what it failed with is raised."""
        await cancel(self._tasks.pop(name))

    async def ended(self, name: str = "one") -> BaseException | None:
        """Wait until a processor ends by itself; what it failed with."""
        task = self._tasks.pop(name)
        async with asyncio.timeout(90):
            return (await asyncio.gather(task, return_exceptions=True))[0]

    async def tell(self, *records: ObjectSeen | ObjectDeleted | ReceiptNoted) -> int:
        """Append records, each acknowledged; returns the sequence of the last."""
        last = 0
        for record in records:
            last = await self._appender.append(self._writer.message(record))
        return last

    async def listed(self, *records: ObjectSeen, version: int = 1, of: Collection[GroupResource] = (WEBS, PODS)) -> int:
        """Append a complete list of some resources that found the records."""
        marks = [lists_done(resource, version) for resource in of]
        for begun, _ in marks:
            await self.mark(begun)
        await self.tell(*records)
        last = 0
        for _, ended in marks:
            last = await self.mark(ended)
        return last

    async def begin(
        self, *records: ObjectSeen, version: int = 1, of: Collection[GroupResource] = (WEBS, PODS)
    ) -> Processor:
        """Start a processor on such a list, and wait until it is folded."""
        last = await self.listed(*records, version=version, of=of)
        processor = self.start()
        await self.folded(last)
        return processor

    async def mark(self, record: AboutResource) -> int:
        """Append a mark to every partition; returns the sequence of the last."""
        return await self._appender.append(*self._writer.to_all_partitions(record))

    async def mark_in_turn(self, record: AboutResource) -> None:
        """Append a mark to every partition, to each once the one before is folded."""
        for message in self._writer.to_all_partitions(record):
            await self.folded(await self._appender.append(message))

    async def expire(self, last: int) -> None:
        """Let all records up to a sequence expire, and keep those that come."""
        second = 1_000_000_000
        await change_settings(self.stream, max_age=second, duplicate_window=second)

        async def is_gone() -> bool:
            return (await self.stream.state()).first_seq > last

        await until(is_gone, f"record {last} expired")
        await change_settings(self.stream, max_age=7 * 86_400 * second)

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        """Rows of the scope."""
        async with self.database.reading() as connection:
            found = await connection.execute(select(table).where(table.c.scope == self.scope.number))
            return [dict(row) for row in found.mappings()]

    async def level(self, name: str) -> dict[str, Any]:
        """The level of a Web, by its name."""
        found = await self.find_level(name)
        assert found, f"there is no level of {name}"
        return found

    async def find_level(self, name: str) -> dict[str, Any] | None:
        """The same where there may be none."""
        return next((row for row in await self.rows(levels) if row["parent"].endswith(f"/{name}")), None)

    async def intents(self, *states: str) -> list[tuple[str, str]]:
        """Verb and target of the intents in the states, in order of decision."""
        rows = sorted(await self.rows(intents), key=lambda row: (row["decided_at"], row["round"], row["ordinal"]))
        return [(row["verb"], row["target"]) for row in rows if not states or row["state"] in states]

    async def claim(self) -> None:
        """Claim what is pending, as an actuator does before it writes."""
        async with self.database.transaction() as connection:
            await claims.claim(connection, self.scope, "actuator", limit=1000, lease=timedelta(minutes=5))

    async def first_write(self) -> dict[str, Any]:
        """Start a processor on a Web that wants one pod; the intent to write that pod, claimed."""
        await self.begin(web("shop", 1, replicas=1))
        await self.claim()
        [row] = await self.rows(intents)
        return row

    async def folded(self, sequence: int) -> None:
        """Wait until the log is folded up to a sequence, nothing is to be computed anew and no wakeup is due."""

        subjects = [partition_subjects(self.scope.cluster, Partition(number)) for number in range(PARTITIONS)]
        await self.stream.connection.wait_connected()
        last = await asyncio.gather(*map(self.stream.last_record, subjects))
        wanted = [min(record.sequence, sequence) if record is not None else 0 for record in last]

        async def is_quiet() -> bool:
            self._raise_failures()
            async with self.database.reading() as connection:
                checkpoints = {each.partition: each.mirrored for each in await read_points(connection, self.scope)}
                if max(checkpoints.values()) < sequence or await connection.scalar(select(backfills.c.name).limit(1)):
                    return False
                if any(folded_to < wanted[partition] for partition, folded_to in checkpoints.items()):
                    return False
                return not await count_pending(connection, self.scope)

        await until(is_quiet, what=f"record {sequence} folded and nothing pending")

    async def tried(self) -> None:
        """Wait until all that is wanted was written or called, or failed at least once."""

        async def is_tried() -> bool:
            self._raise_failures()
            open_ = [row for row in await self.rows(intents) if row["state"] in ("pending", "claimed")]
            return all(row["error"] for row in open_)

        await until(is_tried, what="an attempt at all that is wanted")

    async def until_folded_only(self, sequence: int) -> None:
        """Wait until the log is folded up to a sequence, whatever is pending."""

        async def is_folded() -> bool:
            self._raise_failures()
            async with self.database.reading() as connection:
                return max(each.mirrored for each in await read_points(connection, self.scope)) >= sequence

        await until(is_folded, what=f"record {sequence} folded")

    async def start_more(self, name: str) -> Processor:
        """Run another processor, and wait until each one has its share of the partitions."""
        processor = self.start(name)

        async def is_shared() -> bool:
            self._raise_failures()
            return len({row["owner"] for row in await self.rows(leases)} - {""}) == len(self._tasks)

        await until(is_shared, what="the partitions shared")
        return processor

    def _raise_failures(self) -> None:
        for task in self._tasks.values():
            if task.done():
                task.result()


async def count_pending(connection: AsyncConnection, scope: Scope) -> int:
    """Wakeups that are due now."""
    is_due = or_(wakeups.c.due_at.is_(None), wakeups.c.due_at <= now(connection.dialect))
    return await connection.scalar(select(func.count()).where(wakeups.c.scope == scope.number, is_due)) or 0
