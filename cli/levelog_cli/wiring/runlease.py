"""A Lease in the cluster that names the data directory which acts for an application: of two, both would write."""

import asyncio
import logging
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from levelog.absence import level_of
from levelog_base.errors import LevelogError, Unavailable
from levelog_base.wire.objects import Application
from levelog_cli.deployment.accounts import dns_name
from levelog_cli.servers.data_dir import DataDir
from levelog_kube.client import KubeClient
from levelog_kube.discovery import found_at
from levelog_kube.requestfailures import ApiError

log = logging.getLogger(__name__)

NAMESPACE: Final = "default"
_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PERIOD: Final = timedelta(seconds=20)
DURATION: Final = timedelta(seconds=60)
_REQUEST: Final = timedelta(seconds=3)
_CONFLICT: Final = 409


class RunLease:
    """Held by one data directory of an application in a cluster, as long as it does not stand still for a minute.

    It keeps nobody from writing: `levelog run` may begin before it can be asked for, and has to go on without it.
    """

    def __init__(
        self, client: KubeClient, application: Application, data: DataDir, *, period: timedelta = PERIOD
    ) -> None:
        self._client = client
        self._period = period
        self._application = application
        self._name = f"levelog-run-{dns_name(application)}"
        self._path = f"{_PATH}/{self._name}"
        self._holder = f"{socket.gethostname()}:{data.path}"
        self._named = ""
        self._renewed = ""
        self._silent_since = float("-inf")

    async def keep(self) -> None:
        """Hold the Lease, or warn of who holds it, until cancelled; then give it back."""
        try:
            while await self._can_look():
                await self._client.absence.pause(self._period.total_seconds())
        finally:
            with suppress(LevelogError, TimeoutError):  # it ends by itself
                async with asyncio.timeout(_REQUEST.total_seconds()):
                    await self._give_back()

    async def _can_look(self) -> bool:
        """Look once; tells whether it is worth another time."""
        try:
            await self._look()
        except Unavailable as error:
            log.log(min(level_of(error), logging.INFO), "the lease of this run is looked at again: %s", error)
        except LevelogError as error:
            if isinstance(error, ApiError) and (error.status == _CONFLICT or error.is_transient):
                return True  # somebody else was faster, or the server is busy
            log.info(
                "not looked whether another `levelog run` acts for application %s, which would write as well: %s",
                self._application,
                error,
            )
            return False
        return True

    async def _look(self) -> None:
        lease = await self._read()
        held = (lease or {}).get("spec") or {}
        holder = held.get("holderIdentity")
        if holder not in ("", None, self._holder) and self._is_alive(held.get("renewTime")):
            if holder != self._named:
                log.warning(
                    "application %s is run from another data directory too, %s: both write. "
                    "Stop one, or give both the same --nats-url and --database-url",
                    self._application,
                    holder,
                )
            self._named = holder
            return
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease["metadata"] if lease else {"name": self._name},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": round(DURATION.total_seconds()),
                "renewTime": datetime.now(UTC).isoformat(timespec="microseconds"),
            },
        }
        await self._ask("PUT" if lease else "POST", self._path if lease else _PATH, body)

    def _is_alive(self, renewed: str | None) -> bool:
        """Whether the holder renews it: by both clocks at the first look, by this one alone from then on."""
        now = time.monotonic()
        if renewed is not None and renewed != self._renewed:
            age = (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds() if not self._renewed else 0.0
            self._renewed, self._silent_since = renewed, now - max(age, 0.0)
        return now - self._silent_since < DURATION.total_seconds()

    async def _give_back(self) -> None:
        lease = await self._read()
        if lease and (lease.get("spec") or {}).get("holderIdentity") == self._holder:
            precondition = {"resourceVersion": lease["metadata"]["resourceVersion"]}
            await self._ask("DELETE", self._path, {"preconditions": precondition})

    async def _read(self) -> Any:
        """The Lease; None if there is none."""
        found = await found_at(self._client, self._path, _REQUEST)
        return found.decode(dict[str, Any]) if found is not None else None

    async def _ask(self, method: str, path: str, body: Any) -> None:
        await self._client.request(method, path, body=msgspec.json.encode(body), timeout=_REQUEST)
