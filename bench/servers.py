"""The servers that all measurements share, and what they ask of the cluster."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from levelog_kube.client import KubeClient, connect
from levelog_kube.requestfailures import ApiError
from rigs.assembled import Assembled
from rigs.binaries import find_binaries
from rigs.controlplane import ControlPlane
from rigs.postgres import PostgresServer
from rigs.waiting import until

CRD = Path(__file__).parents[1] / "examples/webs/crd.yaml"
WEBS = "/apis/example.com/v1/namespaces/default/webs"
ALL_WEBS = "/apis/example.com/v1/webs"
OBJECT_BYTES = 3000
CLIENTS = 16
PATIENCE = timedelta(minutes=5)
"""For requests beside which the same cores do everything else."""
PRESERVED = "x-kubernetes-preserve-unknown-fields"
MERGE_PATCH = "application/merge-patch+json"


class _Web(msgspec.Struct):
    class Metadata(msgspec.Struct):
        name: str

    class Status(msgspec.Struct):
        replicas: int | None = None

    metadata: Metadata
    status: Status = msgspec.field(default_factory=Status)


class _Webs(msgspec.Struct):
    items: list[_Web]


_webs = msgspec.json.Decoder(_Webs)


def webs_of(namespace: str) -> str:
    """Where the Webs of a namespace are."""
    return WEBS.replace("default", namespace)


def web_name(number: int) -> str:
    """Name of a Web."""
    return f"web-{number:05}"


class Servers(Assembled):
    """kube-apiserver with etcd, and PostgreSQL that syncs to disk; used as `async with Servers()`."""

    def __init__(self) -> None:
        self.control_plane = ControlPlane(find_binaries(print), is_measured=True)
        self.postgres = PostgresServer(is_durable=True)
        self.client: KubeClient

    async def _open(self, stack: AsyncExitStack) -> None:
        for server in (self.control_plane, self.postgres):
            await stack.enter_async_context(server)
        self.client = await stack.enter_async_context(await connect(self.control_plane.kubeconfig))
        await self._install_crd()

    async def create_webs(self, count: int, *, first: int = 0, namespace: str = "default") -> float:
        """Create Webs of about 3 KB, numbered from `first`; returns the seconds that took."""
        started = time.monotonic()
        padding = {"example.com/padding": "x" * (OBJECT_BYTES - 700)}

        async def create(number: int) -> None:
            web = {
                "apiVersion": "example.com/v1",
                "kind": "Web",
                "metadata": {"name": web_name(number), "annotations": padding},
                "spec": {"image": "nginx", "replicas": 1},
            }
            await self.client.request("POST", webs_of(namespace), body=msgspec.json.encode(web), timeout=PATIENCE)

        await self.for_each(range(first, first + count), create)
        return time.monotonic() - started

    async def delete_webs(self) -> None:
        """Delete all Webs, some at a time: the server gives no request more than a minute."""
        while await self.statuses(1):
            await self.client.request("DELETE", WEBS, query={"limit": "1000"}, timeout=PATIENCE)

    async def for_each(self, numbers: Iterable[int], ask: Callable[[int], Awaitable[None]]) -> None:
        """Ask something of the API server for each number, 16 at a time."""
        left = iter(numbers)

        async def work() -> None:
            for number in left:
                await ask(number)

        await asyncio.gather(*(work() for _ in range(CLIENTS)))

    async def patch_web(self, number: int, patch: Mapping[str, Any]) -> None:
        """Merge-patch one Web."""
        path = f"{WEBS}/{web_name(number)}"
        body = msgspec.json.encode(patch)
        await self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout=PATIENCE)

    async def statuses(self, most: int = 0) -> dict[str, int | None]:
        """`status.replicas` of each Web, or of so many, by its name."""
        answer = await self.client.request("GET", WEBS, query={"limit": str(most)}, timeout=PATIENCE)
        return {web.metadata.name: web.status.replicas for web in _webs.decode(answer.body).items}

    async def status(self, number: int) -> int | None:
        """`status.replicas` of one Web."""
        answer = await self.client.request("GET", f"{WEBS}/{web_name(number)}", timeout=PATIENCE)
        return msgspec.json.decode(answer.body, type=_Web).status.replicas

    async def writes(self) -> Counter[str]:
        """Requests on Webs other than reads that the API server counted, as `PATCH 200` and `PATCH status 200`."""
        found: Counter[str] = Counter()
        for labels, value in await self._metric("apiserver_request_total"):
            if labels["verb"] in ("POST", "PUT", "PATCH", "APPLY", "DELETE"):
                found[" ".join(filter(None, (labels["verb"], labels["subresource"], labels["code"])))] += int(value)
        return found

    async def watches(self) -> int:
        """Watches of Webs that are open."""
        found = await self._metric("apiserver_longrunning_requests")
        return sum(int(value) for labels, value in found if labels["verb"] == "WATCH")

    async def _metric(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of a metric that is about Webs."""
        answer = await self.client.request("GET", "/metrics", timeout=PATIENCE)
        found: list[tuple[dict[str, str], float]] = []
        for line in answer.body.decode().splitlines():
            if line.startswith(name + "{") and 'resource="webs"' in line:
                pairs = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.index("}")].split(","))
                labels = {label: value.strip('"') for label, value in pairs.items()}
                found.append((labels, float(line.rpartition(" ")[2])))
        return found

    async def _install_crd(self) -> None:
        manifest = yaml.safe_load(CRD.read_text())
        for version in manifest["spec"]["versions"]:  # else fields that its schema does not name would not be stored
            version["schema"]["openAPIV3Schema"]["properties"]["status"][PRESERVED] = True
        await self.client.request(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=msgspec.json.encode(manifest)
        )

        async def is_served() -> bool:
            try:
                await self.client.request("GET", WEBS)
            except ApiError:  # 404, then 429 until its storage is ready
                return False
            return True

        await until(is_served, "the API of webs.example.com")
