"""Ingest: watches all resources of one cluster side by side, runs the sources, and appends to the cluster's log.

It starts the others and verifies cluster and log while they run. It keeps no state, and never reaches SQL.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from levelog.absence import level_of
from levelog.sources import SourceHandler
from levelog_base.errors import ConfigurationError, IdentityMismatch, LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application
from levelog_ingest.namespaces import has_patterns, matched_namespaces
from levelog_ingest.repairs import Repairs
from levelog_ingest.sources.runner import SourceRunner
from levelog_ingest.status import Progress, ResourceStatus, WatchedResource
from levelog_ingest.watcher import Watcher
from levelog_kube.client import SILENCE, KubeClient
from levelog_kube.discovery import IDENTITY_NAMESPACE, cluster_uid
from levelog_kube.requestfailures import ApiError
from levelog_log.appender import Appender
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream

log = logging.getLogger(__name__)

VERIFY_EVERY: Final = timedelta(seconds=30)
"""How often to look at the settings of the log; after a lost connection at once."""


class Ingest:
    """Watches resources and records their changes; keeps no state except the log. Calls sources beside the watches.

    Each resource has one watch, or one for each given namespace, which may be given by patterns. A watch without any
    event for the time of `silence`, not even a bookmark, is opened again. `application` is named in the log, so that
    other applications can check that they agree. Raises ConfigurationError if a resource is given twice, or if Secrets
    are watched without a key to redact them.
    """

    def __init__(
        self,
        client: KubeClient,
        stream: LogStream,
        resources: Iterable[WatchedResource],
        redactor: Redactor,
        *,
        sources: Iterable[SourceHandler] = (),
        on_change: Progress | None = None,
        silence: timedelta = SILENCE,
        application: str = "",
    ) -> None:
        self._client = client
        self._stream = stream
        self._appender = Appender(BatchPublisher(stream, may_read=True))
        self._watchers: dict[str, Watcher] = {}
        for watched in resources:
            redactor.require(watched.resource)
            name = str(watched.resource)
            if name in self._watchers:
                raise ConfigurationError(
                    f"{name} is to be watched twice: in {self._watchers[name].status.watched} and in {watched}"
                )
            self._watchers[name] = Watcher(
                client,
                stream,
                self._appender,
                redactor,
                watched,
                check_cluster=self._check_cluster,
                on_change=on_change,
                silence=silence,
                application=application,
            )
        self._application = Application(application)
        self._sources = [
            SourceRunner(source, stream, self._appender, redactor, on_change=on_change) for source in sources
        ]

    async def run(self) -> None:
        """Watch until cancelled.

        Raises IdentityMismatch if the API server is another cluster than the log's, or the log was lost, recreated or
        rolled back (alone or, when several tasks fail, in an exception group); ConfigurationError; ApiError or
        Unavailable if the cluster's identity cannot be read at the start.
        """
        try:
            await self._check_cluster()
        except ApiError as error:
            if error.status != 403:
                raise
            raise ConfigurationError(
                f"the cluster is known by the uid of namespace {IDENTITY_NAMESPACE}, which may not be read: allow "
                f"`get` on it ({error.message})"
            ) from error
        async with self._appender, asyncio.TaskGroup() as tasks:
            for name, watcher in self._watchers.items():
                tasks.create_task(watcher.run(), name=f"watch {name}")
            for source in self._sources:
                tasks.create_task(source.run(), name=f"watch {source.status.watched}")
            if by_patterns := [
                each for each in self._watchers.values() if has_patterns(each.status.watched.namespaces)
            ]:
                tasks.create_task(self._follow_namespaces(by_patterns), name="watch namespaces")
            tasks.create_task(self._verify_log(), name="verify the log")
            if self._application:
                repairs = Repairs(self._stream, self._appender, self._watchers.values(), self._application)
                tasks.create_task(repairs.run(), name="lost history")

    def snapshot(self) -> list[ResourceStatus]:
        """How each watch goes, and each source, now."""
        return [*(each.status for each in self._watchers.values()), *(each.status for each in self._sources)]

    def trouble(self) -> str:
        """Which resources are not recorded now, and why; empty: all are."""
        now = datetime.now(UTC)
        return "; ".join(filter(None, (status.trouble(now) for status in self.snapshot())))

    async def _follow_namespaces(self, watchers: Sequence[Watcher]) -> None:
        """Have resources watched in the namespaces that match; the patterns are the same for all of them."""
        async for namespaces in matched_namespaces(self._client, watchers[0].status.watched.namespaces):
            log.info("watches namespaces: %s", ", ".join(namespaces))
            for watcher in watchers:
                watcher.rescope(namespaces)

    async def _check_cluster(self) -> None:
        cluster = await cluster_uid(self._client)
        if cluster != self._stream.cluster:
            raise IdentityMismatch(
                f"the API server at {self._client.server} is cluster {cluster}, the log is of {self._stream.cluster}"
            )

    async def _verify_log(self) -> None:
        """Verify, also while idle, that the log is as it was made and still has all acknowledged records."""
        connection = self._stream.connection
        changed = asyncio.Event()
        stop = connection.on_change(changed.set)
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(VERIFY_EVERY.total_seconds()):
                        await changed.wait()
                changed.clear()
                if not connection.is_connected:
                    continue
                try:
                    await self._appender.publisher.verify()
                    await self._stream.verify()
                except (IdentityMismatch, ConfigurationError):
                    raise
                except LevelogError as error:
                    log.log(level_of(error), "the log could not be verified: %s", error)
        finally:
            stop()
