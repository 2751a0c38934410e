"""A Lease in the cluster that names the data directory which acts for an application: of two, both would write."""

import asyncio
import logging
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from levelog.absence import level_of
from levelog_base.errors import LevelogError, Unavailable
from levelog_base.wire.objects import Application
from levelog_cli.deployment.accounts import dns_name
from levelog_cli.servers.data_dir import DataDir
from levelog_kube.client import KubeClient
from levelog_kube.failures import ApiError

log = logging.getLogger(__name__)

NAMESPACE: Final = "default"
_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PERIOD: Final = timedelta(seconds=20)
DURATION: Final = timedelta(seconds=60)
_REQUEST: Final = timedelta(seconds=3)


class _Spec(Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Metadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    resource_version: str = ""


class _Lease(Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    spec: _Spec = _Spec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


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
        self._holder = f"{socket.gethostname()}:{data.path}"
        self._named = ""
        self._renewed: datetime | None = None
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
        except ApiError as error:
            if error.status == 409 or error.is_transient:
                return True  # somebody else was faster, or the server is busy
            return self._give_up(error)
        except Unavailable as error:
            log.log(min(level_of(error), logging.INFO), "the lease of this run is looked at again: %s", error)
        except LevelogError as error:
            return self._give_up(error)
        return True

    def _give_up(self, error: LevelogError) -> bool:
        log.info(
            "not looked whether another `levelog run` acts for application %s, which would write as well: %s",
            self._application,
            error,
        )
        return False

    async def _look(self) -> None:
        lease = await self._read()
        if lease is None:
            body = _Lease(_Metadata(self._name), self._renewal())
            await self._client.request("POST", _PATH, body=msgspec.json.encode(body), timeout=_REQUEST)
            return
        if lease.spec.holder_identity not in ("", None, self._holder) and self._is_alive(lease.spec):
            self._warn(lease.spec.holder_identity or "")
            return
        taken = _Lease(lease.metadata, self._renewal())
        await self._client.request("PUT", self._path, body=msgspec.json.encode(taken), timeout=_REQUEST)

    def _warn(self, holder: str) -> None:
        if holder != self._named:
            log.warning(
                "application %s is run from another data directory too, %s: both write. "
                "Stop one, or give both the same --nats-url and --database-url",
                self._application,
                holder,
            )
        self._named = holder

    def _is_alive(self, held: _Spec) -> bool:
        """Whether the holder renews it: by both clocks at the first look, by this one alone from then on."""
        now = time.monotonic()
        if held.renew_time is not None and held.renew_time != self._renewed:
            age = datetime.now(UTC) - held.renew_time if self._renewed is None else timedelta()
            self._renewed = held.renew_time
            self._silent_since = now - max(age, timedelta()).total_seconds()
        return now - self._silent_since < DURATION.total_seconds()

    async def _give_back(self) -> None:
        lease = await self._read()
        if lease is not None and lease.spec.holder_identity == self._holder:
            precondition = {"preconditions": {"resourceVersion": lease.metadata.resource_version}}
            await self._client.request("DELETE", self._path, body=msgspec.json.encode(precondition), timeout=_REQUEST)

    async def _read(self) -> _Lease | None:
        try:
            return (await self._client.request("GET", self._path, timeout=_REQUEST)).decode(_Lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _renewal(self) -> _Spec:
        now = datetime.now(UTC)
        # A MicroTime has six digits, which msgspec leaves out where all are zero.
        return _Spec(self._holder, round(DURATION.total_seconds()), now.replace(microsecond=now.microsecond or 1))

    @property
    def _path(self) -> str:
        return f"{_PATH}/{quote(self._name, safe='')}"
