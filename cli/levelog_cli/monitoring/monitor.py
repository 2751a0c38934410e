"""What a process tells of itself: its servers and its roles, as they come up, and what holds up its event loop."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from levelog_cli.monitoring.probes import AskedServer, Judge, ProbeAnswer, Probes
from levelog_cli.wiring.roles import Role
from levelog_log.stream import LogStream
from levelog_log.transport.connection import Connection, require_jetstream

if TYPE_CHECKING:
    from levelog_actuator.actuator import Actuator
    from levelog_cli.monitoring.metrics import Metrics
    from levelog_cli.monitoring.tracing import Tracing
    from levelog_ingest.ingest import Ingest
    from levelog_kube.client import KubeClient
    from levelog_log.leadership import Leadership
    from levelog_processors.processor import Processor
    from levelog_store.connect.database import Database
    from levelog_store.rows import Scope


class Monitor:
    """Takes each part of a process when it begins; without metrics nobody asks for them."""

    def __init__(self, probes: Probes, metrics: "Metrics | None" = None) -> None:
        self._probes = probes
        self._metrics = metrics
        self._tracing: Tracing | None = None

    def trace(self, scope: "Scope", stream: LogStream, database: "Database") -> None:
        """Make spans of what is decided, written and called, if OpenTelemetry is set up by now."""
        if "opentelemetry.trace" not in sys.modules:
            return
        from levelog_cli.monitoring.tracing import TracedPlace, Tracing, tracer_in_use

        if (tracer := tracer_in_use()) is not None:
            place = TracedPlace(
                cluster=scope.cluster,
                application=scope.application,
                stream=stream.name,
                database=database.dialect.name,
            )
            self._tracing = Tracing(tracer, place)

    def watch(self, part: str, judge: Judge = lambda: "") -> None:
        """A part is there, and wrong as `judge` says."""
        self._probes.watch(part, judge)

    def servers(self, nats: Connection, database: "Database | None", client: "KubeClient | None") -> list[AskedServer]:
        """Coroutines that ask each server whether it is there; to be run as tasks."""
        if self._metrics is None:
            return []
        asked = {f"NATS at {nats.url}": AskedServer(lambda: require_jetstream(nats))}
        if database is not None:
            self._metrics.database(database)
            asked[f"database {database.name}"] = AskedServer(lambda: _ask_database(database))
        if client is not None:
            self._metrics.client(client)
            asked[f"API server at {client.server}"] = AskedServer(lambda: _ask_api(client))
        for name, server in asked.items():
            self.watch(name, server.judge)
        return list(asked.values())

    def ingest(self, ingest: "Ingest", leadership: "Leadership | None") -> None:
        """It watches, and tells of its watches as long as it leads."""

        def leads() -> bool:
            return leadership is None or leadership.is_leading

        self.watch(Role.INGEST, lambda: ingest.trouble() if leads() else "")
        if self._metrics is not None:
            self._metrics.ingest(lambda: ingest.snapshot() if leads() else [])

    def processor(self, processor: "Processor") -> None:
        """It folds and decides."""
        self.watch(Role.PROCESS, processor.trouble)
        if self._metrics is not None:
            self._metrics.processor(processor)
        if self._tracing is not None:
            self._tracing.processor(processor)

    def actuator(self, actuator: "Actuator") -> None:
        """It writes."""
        self.watch(Role.ACTUATE, actuator.trouble)
        if self._metrics is not None:
            self._metrics.actuator(actuator)
        if self._tracing is not None:
            self._tracing.actuator(actuator)


@asynccontextmanager
async def monitoring(listen: str, roles: frozenset[Role]) -> AsyncGenerator[Monitor]:
    """Serve probes and metrics of this process while the context is open, where `listen` says; empty: not.

    The log names what holds up the event loop in any case.

    Raises ConfigurationError if it cannot listen there.
    """
    probes = Probes(sorted(roles))
    beating = asyncio.create_task(probes.beat(), name="beat")
    try:
        with probes.telling(), _listening(listen, probes) as monitor:
            yield monitor
    finally:
        beating.cancel()


@contextmanager
def _listening(listen: str, probes: Probes) -> Generator[Monitor]:
    if not listen:
        yield Monitor(probes)
        return
    from levelog_cli.monitoring.listening import ListenAddress, WebPage, listening
    from levelog_cli.monitoring.metrics import Metrics

    def page(probe: Callable[[], ProbeAnswer]) -> Callable[[str], WebPage]:
        def made(accepts: str) -> WebPage:  # noqa: ARG001 - there is one form
            answer = probe()
            status = HTTPStatus.OK if answer.is_good else HTTPStatus.SERVICE_UNAVAILABLE
            return WebPage(answer.text.encode(), status=status)

        return made

    metrics = Metrics()
    pages = {"/healthz": page(probes.healthz), "/readyz": page(probes.readyz), "/metrics": metrics.page}
    with listening(ListenAddress.parse(listen), pages):
        yield Monitor(probes, metrics)


async def _ask_database(database: "Database") -> None:
    from sqlalchemy import select

    async with database.reading() as connection:
        await connection.execute(select(1))


async def _ask_api(client: "KubeClient") -> None:
    """Any answer is one, but that the server is broken."""
    from levelog_kube.requestfailures import ApiError

    try:
        await client.request("GET", "/version")
    except ApiError as error:
        if error.is_transient:
            raise
