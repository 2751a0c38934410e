"""An actuator on a real API, log and database, fed with intents instead of decisions."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from levelog.effects import EffectHandler
from levelog.handlers.viewhandlers import ReconcileHandler
from levelog.operator import Operator
from levelog_actuator import Actuator, ActuatorSettings
from levelog_actuator.results import Later
from levelog_base.wire.objects import Application
from levelog_base.wire.records import ReceiptNoted
from levelog_kube.client import KubeClient
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.notifications import Notifier, Topic
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import Connection
from levelog_log.transport.connection import connect as connect_nats
from levelog_store.actuate.elapsed import elapsed
from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from rigs.api import Api
from rigs.apirequests import ApiRequest, asks
from rigs.assembled import Assembled, cancel
from rigs.faultproxy import FaultProxy
from rigs.intents import decide, intent, intents_by_key
from rigs.kubeconfig import write_kubeconfig
from rigs.leasing import scope_of
from rigs.logs import be_back_soon, read_all
from rigs.migrated import migrate
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

APPLICATION = Application("webs")
PARTITIONS = 4
ACTUATOR = "levelog/"
"""How the actuator's user agent begins; that of the test is another."""

QUICK = ActuatorSettings(
    lease=timedelta(seconds=30),
    request=timedelta(seconds=10),
    first_delay=timedelta(milliseconds=20),
    most_delay=timedelta(milliseconds=200),
    resync=timedelta(milliseconds=200),
)
"""Short waits, and deadlines that a busy machine keeps."""
BRIEF = replace(QUICK, lease=timedelta(seconds=4), request=timedelta(seconds=1.5))
"""For tests in which deadlines pass."""
WITHOUT_RESYNC = replace(QUICK, resync=timedelta(hours=1))
"""What begins does not begin because somebody looked now and then."""
PATIENT = replace(QUICK, requests=4)
"""For many requests on a machine that is busy with other tests."""


def writes(request: ApiRequest) -> bool:
    """Tell whether the actuator wrote."""
    return request.is_write and request.user_agent.startswith(ACTUATOR)


class Acting(Assembled):
    """One application's intents and what carries them out; used as `async with Acting(...)`.

    All requests, those of the test by `api` too, go through `proxy`, whose log tells them apart by user agent; those of
    the actuator through `door` before.
    """

    def __init__(self, server: Api, nats_url: str, database_url: str, folder: Path) -> None:
        self._server = server
        self._nats_url = nats_url
        self.database_url = database_url
        self.kubeconfig = folder / "kubeconfig"
        self._running: asyncio.Task[None] | None = None
        self.clock: Callable[[], float] = elapsed
        """By which actuators that are made from now on count their claims and their heartbeat."""
        self.writers: Mapping[str, ReconcileHandler] | None = None
        """Reconcile functions that such actuators have; none: they send whatever is asked for."""
        self.postponed = 0
        """Attempts after which an intent was given back, to be claimed again."""
        self.api: Api
        self.client: KubeClient
        self.connection: Connection
        self.database: Database
        self.door: TcpProxy
        self.notifier: Notifier
        self.namespace: str
        self.proxy: FaultProxy
        self.scope: Scope
        self.stream: LogStream

    async def _open(self, stack: AsyncExitStack) -> None:
        self.proxy = await stack.enter_async_context(FaultProxy(self._server.url, ca_file=self._server.ca_file))
        self.api = Api(self.proxy.url, token=self._server.token)
        self.namespace = await self.api.create_namespace()
        self.door = await stack.enter_async_context(TcpProxy(urlsplit(self.proxy.url).port or 0))
        url = self.door.url(self.proxy.url)
        write_kubeconfig(self.kubeconfig, url=url, user="actuator", token=self._server.token or "none")
        self.client = await stack.enter_async_context(await connect_kube(self.kubeconfig))
        cluster = await cluster_uid(self.client)
        self.connection = connection = await stack.enter_async_context(await connect_nats(self._nats_url))
        be_back_soon(connection)
        self.stream = await ensure_stream(connection, cluster, partitions=PARTITIONS)
        self.notifier = await stack.enter_async_context(Notifier(connection, cluster, APPLICATION))
        await migrate(self.database_url)
        self.database = await stack.enter_async_context(await Database.open(self.database_url))
        self.scope = await scope_of(self.database, stream=self.stream)

    def actuator(self, settings: ActuatorSettings = QUICK, effects: Operator | None = None) -> Actuator:
        """An actuator that does not run yet; it calls the effects of the operator."""
        publisher = BatchPublisher(self.stream)
        return Actuator(
            self.database,
            self.scope,
            self.client,
            publisher,
            self.notifier,
            settings=settings,
            effects=effects_of(effects),
            writers=self.writers,
            clock=self.clock,
        )

    def _take(self, _receipts: Sequence[ReceiptNoted], later: Sequence[Later]) -> None:
        self.postponed += len(later)

    @asynccontextmanager
    async def running(
        self, settings: ActuatorSettings = QUICK, effects: Operator | None = None
    ) -> AsyncGenerator[Actuator]:
        """An actuator that runs; what it fails with is raised."""
        actuator = self.actuator(settings, effects)
        actuator.observers.on_taken = self._take
        self._running = task = asyncio.create_task(actuator.run())
        try:
            yield actuator
        finally:
            self._running = None
            await cancel(task)

    async def decide(self, *rows: dict[str, Any], is_notified: bool = True) -> list[str]:
        """Store intents as a processor does; returns their keys."""
        keys = await decide(self.database, *({**row, "scope": self.scope.number} for row in rows))
        if is_notified:
            await self.notifier.publish(Topic.INTENT)
        return keys

    def intent(self, verb: str, seen: Any = None, *, body: Any = None, target: str = "", **columns: Any) -> Any:
        """An intent for an object as the decision saw it, or for `target`, else what `body` names, unseen."""
        if seen is not None:
            metadata = seen["metadata"]
            target = target or f"{plural_of(seen)}/{metadata['namespace']}/{metadata['name']}"
            columns = {
                "target_uid": metadata["uid"],
                "target_version": int(metadata["resourceVersion"]),
                "api_version": seen["apiVersion"],
            } | columns
        elif not target:
            target = f"{plural_of(body)}/{self.namespace}/{body['metadata']['name']}"
        return intent(target, verb=verb, body=body, **columns)

    async def does(self, verb: str, seen: Any = None, **columns: Any) -> ReceiptNoted:
        """Decide one intent, and wait for its receipt; arguments are those of `intent`."""
        (receipt,) = await self.carried_out(self.intent(verb, seen, **columns))
        return receipt

    async def carried_out(self, *rows: dict[str, Any]) -> list[ReceiptNoted]:
        """Decide intents, and wait until each has a receipt in the log; in the order of the intents."""
        keys = await self.decide(*rows)
        return await self.receipts_of(keys)

    async def receipts_of(self, keys: Sequence[str], *, seconds: float = 90.0) -> list[ReceiptNoted]:
        """Wait until each intent has a receipt in the log."""
        found: dict[str, ReceiptNoted] = {}

        async def are_there() -> bool:
            if self._running is not None and self._running.done():
                self._running.result()
            found.update({receipt.key: receipt for receipt in await self.receipts()})
            return found.keys() >= set(keys)

        await until(are_there, f"receipts of {', '.join(keys)}", seconds=seconds)
        return [found[key] for key in keys]

    async def relayed(self, key: str) -> dict[str, Any]:
        """The row of an intent, once it is noted that its receipt is in the log."""

        async def is_noted() -> bool:
            return bool((await self.rows())[key]["is_relayed"])

        await until(is_noted, f"a note that the receipt of {key} is in the log")
        return (await self.rows())[key]

    async def receipts(self) -> list[ReceiptNoted]:
        """All receipts in the log."""
        records = [logged.record for logged in await read_all(self.stream)]
        return [record for record in records if isinstance(record, ReceiptNoted)]

    async def rows(self) -> dict[str, dict[str, Any]]:
        """All intents by their keys."""
        return await intents_by_key(self.database)

    def sent(self, *, name: str | None = None) -> list[ApiRequest]:
        """Writes that the actuator sent, whatever became of them."""
        where = asks(name=name, user_agent=ACTUATOR)
        return [each.request for each in self.proxy.log if where(each.request) and each.request.is_write]

    def effective(self, *, name: str | None = None) -> list[ApiRequest]:
        """Writes of the actuator after which the object was another one."""
        return self.proxy.log.effective_writes(asks(name=name, user_agent=ACTUATOR))

    def path(self, resource: str, name: str = "") -> str:
        """Path of an object, or of a collection, in the test's namespace."""
        plural, _, group = resource.partition(".")
        root = f"/apis/{group}/v1" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def make(self, resource: str, name: str, **fields: Any) -> Any:
        """Create an object as somebody else than the actuator, and return it."""
        metadata = {"name": name, **fields.pop("metadata", {})}
        made = await self.api.create(
            self.path(resource),
            {"apiVersion": API_VERSION[resource], "kind": KIND[resource], "metadata": metadata, **fields},
        )
        return {"apiVersion": API_VERSION[resource], "kind": KIND[resource], **made}

    async def get(self, resource: str, name: str) -> Any:
        """The object as it is, or None."""
        status, body = await self.api.request("GET", self.path(resource, name))
        return body if status == 200 else None

    async def change(self, resource: str, name: str, patch: Any, subresource: str = "") -> Any:
        """Merge-patch an object as somebody else than the actuator, and return it."""
        path = self.path(resource, name) + (f"/{subresource}" if subresource else "")
        status, body = await self.api.request("PATCH", path, patch, content_type="application/merge-patch+json")
        assert status == 200, body
        return {"apiVersion": API_VERSION[resource], "kind": KIND[resource], **body}

    async def remove(self, resource: str, name: str) -> None:
        """Delete an object as somebody else than the actuator, and see it gone."""
        await self.api.request("DELETE", self.path(resource, name), {"gracePeriodSeconds": 0})

        async def is_gone() -> bool:
            return await self.get(resource, name) is None

        await until(is_gone, f"the end of {resource} {name}")


WEBS = "webs.example.com"
PLAINS = "plains.example.com"
"""A resource without subresources, which tests that need it define."""
KIND = {"configmaps": "ConfigMap", "pods": "Pod", WEBS: "Web", PLAINS: "Plain"}
API_VERSION = {"configmaps": "v1", "pods": "v1", WEBS: "example.com/v1", PLAINS: "example.com/v1"}


def config_map(name: str, owner: Any = None, **fields: Any) -> Any:
    """A manifest; with a controlling owner if one is given."""
    owners = {"ownerReferences": [owner_of(owner)]} if owner else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **owners}, **fields}


def owner_of(web: Any) -> Any:
    """The reference by which a Web controls an object."""
    metadata = web["metadata"]
    reference = {"apiVersion": "example.com/v1", "kind": "Web", "name": metadata["name"], "uid": metadata["uid"]}
    return {**reference, "controller": True, "blockOwnerDeletion": True}


def effects_of(operator: Operator | None) -> dict[str, EffectHandler]:
    """The effects of an operator as an actuator takes them."""
    return {f"{operator.name}/{name}": effect for name, effect in operator.effects.items()} if operator else {}


def plural_of(manifest: Any) -> str:
    """Resource of an object, as `pods` or `webs.example.com`."""
    return next(resource for resource, kind in KIND.items() if kind == manifest["kind"])
