"""Ingest, a processor and an actuator for Meters of one namespace, each behind a fault proxy, in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select

from levelog_actuator import Actuator, ActuatorSettings
from levelog_base.errors import LevelogError
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Application, Cluster, GroupResource
from levelog_cli.loading import load_operators
from levelog_cli.servers.clusters import known_cluster
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import Role
from levelog_ingest.ingest import Ingest
from levelog_ingest.status import WatchedResource
from levelog_log.notifications import Notifier
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_processors.processor import Processor
from levelog_processors.program import Program
from levelog_store.connect.database import Database
from levelog_store.tables import intents, levels
from rigs.api import Api
from rigs.apirequests import ApiRequest
from rigs.assembled import Assembled
from rigs.clusterclient import ClusterClient
from rigs.faultproxy import FaultProxy
from rigs.faults import Refuse
from rigs.leasing import scope_of
from rigs.meters import METERS_FILE, meter, numbers_of
from rigs.waiting import until

SETTINGS: Final = ActuatorSettings(
    lease=timedelta(seconds=10),
    request=timedelta(seconds=3),
    attempts=30,
    first_delay=timedelta(milliseconds=50),
    most_delay=timedelta(milliseconds=500),
    resync=timedelta(seconds=1),
)
SILENCE: Final = timedelta(seconds=3)
PATIENCE: Final = timedelta(seconds=60)
_WATCHED: Final = (("example.com", "meters"), ("", "configmaps"))
_RESOURCES: Final = ("meters.example.com", "configmaps")

Effects = Counter[tuple[str, str]]
"""Effective writes of levelog's, by verb and name of the object."""


class MeterStack(Assembled):
    """Used as `async with MeterStack(...)`; `ingest` and `actuate` are the proxies, which the test itself goes past."""

    def __init__(self, api: Api, nats_url: str, database_url: str, folder: Path, namespace: str) -> None:
        """The database has its tables already: Alembic makes those of one at a time."""
        self._database_url = database_url
        self.ingest = FaultProxy(api.url, ca_file=api.ca_file)
        self.actuate = FaultProxy(api.url, ca_file=api.ca_file)
        self._api = api
        self._nats_url = nats_url
        self._folder = folder
        self._namespace = namespace
        self._wanted: dict[str, int] = {}
        self._own: set[str] = set()
        """Versions that the test itself wrote."""
        self._tasks: list[asyncio.Task[None]] = []
        self._client = ClusterClient(api.url, ca_file=api.ca_file, token=api.token)
        self._database: Database
        self._program = Program(load_operators([METERS_FILE]))

    async def _open(self, stack: AsyncExitStack) -> None:
        for part in (self.ingest, self.actuate, self._client):
            await stack.enter_async_context(part)
        self._database = await stack.enter_async_context(await Database.open(self._database_url))
        connection = await stack.enter_async_context(await connect_nats(self._nats_url, timeout=PATIENCE))
        identity = await self._client.get("/api/v1/namespaces/kube-system")
        stream = await ensure_stream(connection, Cluster(identity.metadata["uid"]), partitions=2)
        notifier = await stack.enter_async_context(Notifier(connection, stream.cluster, Application("meters")))
        stack.push_async_callback(self._end)
        self._tasks = [
            asyncio.create_task(_supervised(lambda: self._run_ingest(stream))),
            asyncio.create_task(self._work(stream, notifier)),
        ]

    async def create(self, name: str, verb: str) -> None:
        """Make a Meter that wants 1."""
        self._wanted[name] = 1
        made = await self._client.create(self._path(), meter(name, verb, 1))
        self._own.add(made.version)

    async def change(self, name: str, wanted: int) -> None:
        """Let it want another number."""
        self._wanted[name] = wanted
        changed = await self._client.merge(self._path(name), {"spec": {"wanted": wanted}})
        self._own.add(changed.version)

    async def remove(self, name: str) -> None:
        """Delete a ConfigMap."""
        removed = await self._client.delete(f"{self._maps}/{name}")
        assert removed.code == 200, removed

    def end_watches(self) -> None:
        """As the server does after some minutes; what comes next is that they go on."""
        for watch in self.ingest.watches:
            watch.drop()

    @asynccontextmanager
    async def forgotten(self) -> AsyncGenerator[None]:
        """The server forgets what happens meanwhile: all has to be listed again, which it refuses until the end."""
        for resource in _RESOURCES:
            self.ingest.add(Refuse(code=410), partial(resumes, resource))
        refusal = self.ingest.add(Refuse(code=503), lists, times=None)
        self.end_watches()

        async def are_refused() -> bool:
            return {request.resource for request in refusal.applied} == set(_RESOURCES)

        await until(are_refused, "lists of all resources")
        yield
        self.ingest.remove(refusal)

    async def converges(self) -> None:
        """Wait until each Meter shows what it wants, and nothing is left to be done."""
        await until(self._has_converged, f"what the Meters of {self._namespace} want", seconds=240, pause=0.25)

    def effects(self) -> Effects:
        """All so far."""
        return Counter((each.verb, each.name) for each in self.actuate.log.effective_writes(others=self._own))

    async def meters(self) -> dict[str, Any]:
        """Meters by name."""
        found = await self._client.get(self._path())
        return {each["metadata"]["name"]: each for each in found.body["items"]}

    async def _has_converged(self) -> bool:
        for task in self._tasks:
            if task.done():
                task.result()
        return await self._is_quiet() and await self._is_shown()

    async def _is_quiet(self) -> bool:
        async with self._database.reading() as connection:
            state = intents.c.state.in_(("pending", "claimed", "written"))
            left = (await connection.execute(select(func.count()).select_from(intents).where(state))).scalar_one()
            drifting = select(func.count()).select_from(levels).where(levels.c.status != "in_sync")
            return not left and not (await connection.execute(drifting)).scalar_one()

    async def _is_shown(self) -> bool:
        meters, maps = await self.meters(), (await self._client.get(self._maps)).names
        return all(numbers_of(meters[name], maps) == [wanted] for name, wanted in self._wanted.items())

    async def _run_ingest(self, stream: LogStream) -> None:
        watched = [
            WatchedResource(
                resource=GroupResource(group=group, resource=resource), version="v1", namespaces=(self._namespace,)
            )
            for group, resource in _WATCHED
        ]
        async with known_cluster(self._settings(self.ingest), self._program, frozenset({Role.INGEST})) as (client, _):
            await Ingest(client, stream, watched, Redactor(), silence=SILENCE).run()

    async def _work(self, stream: LogStream, notifier: Notifier) -> None:
        program = self._program
        scope = await scope_of(self._database, program, stream, application="meters")

        async def act() -> None:
            async with known_cluster(self._settings(self.actuate), program, frozenset({Role.ACTUATE})) as (client, _):
                publisher = BatchPublisher(stream)
                await Actuator(self._database, scope, client, publisher, notifier, settings=SETTINGS).run()

        async with asyncio.TaskGroup() as tasks:
            processor = Processor(self._database, scope, program, stream, notifier, owner="one")
            tasks.create_task(processor.run())
            tasks.create_task(_supervised(act))

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _settings(self, proxy: FaultProxy) -> Settings:
        path = self._folder / f"{self._namespace}-{proxy.port}.kubeconfig"
        proxy.kubeconfig(path, token=self._api.token or "none")
        return Settings(kubeconfig=str(path), namespace=[self._namespace])

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/configmaps"

    def _path(self, name: str = "") -> str:
        return f"/apis/example.com/v1/namespaces/{self._namespace}/meters" + (f"/{name}" if name else "")


def of_meter(name: str) -> Callable[[ApiRequest], bool]:
    """Whether a request is about a Meter or its ConfigMaps."""
    return lambda request: request.name == name or request.name.startswith(f"{name}-")


def lists(request: ApiRequest) -> bool:
    """Whether a request reads all objects, in pages or with a watch."""
    return request.verb == "list" or "sendInitialEvents" in request.query


def resumes(resource: str, request: ApiRequest) -> bool:
    """Whether a request goes on with a watch."""
    return request.verb == "watch" and request.resource == resource and not lists(request)


async def _supervised(run: Callable[[], Awaitable[None]]) -> None:
    """Start it again when it ends with an error that a supervisor starts a process again for."""
    while True:
        try:
            await run()
        except LevelogError:
            await asyncio.sleep(0.1)
