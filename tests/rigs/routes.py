"""Ingest behind a proxy at which requests go wrong."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from levelog_log.stream import LogStream
from levelog_log.transport.connection import connect
from levelog_sandbox.sandbox import Sandbox
from rigs.apirequests import asks
from rigs.faultproxy import FaultProxy
from rigs.ingesting import config_map, log_of
from rigs.logs import be_back_soon
from rigs.nats import NatsServer
from rigs.waiting import until

WATCHES: Final = asks("watch", "configmaps")


class Route:
    """A sandbox behind a fault proxy, and the log of that cluster."""

    def __init__(self, sandbox: Sandbox, proxy: FaultProxy, kubeconfig: Path, stream: LogStream) -> None:
        self.sandbox, self.proxy, self.kubeconfig, self.stream = sandbox, proxy, kubeconfig, stream
        self.user = sandbox.user

    def create(self, *names: str, **data: str) -> Any:
        """Make ConfigMaps; the last one."""
        return [self.user.create(config_map(name, **data)) for name in names][-1]

    def change(self, name: str, **data: str) -> Any:
        return self.user.patch("configmaps", name, {"data": data})

    def delete(self, name: str) -> Any:
        return self.user.delete("configmaps", name)

    async def watch_anew(self) -> None:
        """End the watch, and wait until there is another one."""
        before = self._watches()
        self.sandbox.end_watches()
        await until(lambda: self._watches() > before, "another watch")

    def _watches(self) -> int:
        return sum(WATCHES(exchange.request) for exchange in self.proxy.log)


@asynccontextmanager
async def route_of(
    folder: Path, nats_server: NatsServer, *, partitions: int = 2, **options: Any
) -> AsyncGenerator[Route]:
    """The route to a cluster of its own; `options` are those of the sandbox."""
    async with (
        Sandbox(**options) as sandbox,
        FaultProxy(sandbox.url) as proxy,
        await connect(nats_server.url) as connection,
    ):
        be_back_soon(connection)
        kubeconfig = proxy.kubeconfig(folder / "config")
        yield Route(sandbox, proxy, kubeconfig, await log_of(kubeconfig, connection, partitions=partitions))
