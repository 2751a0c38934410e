"""The servers and processes of one run, each in its own process, and what they use."""

import asyncio
import os
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml

from levelog_kube.client import KubeClient, connect
from levelog_kube.discovery import resolve
from rigs.binaries import find_binaries
from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog, Running
from rigs.nats import NatsServer
from rigs.postgres import PostgresServer
from rigs.waiting import until

OPERATOR = Path(__file__).parent / "statuses.py"
CRD = Path(__file__).parents[1] / "examples/webs/crd.yaml"
WEBS = "/apis/example.com/v1/namespaces/default/webs"
OBJECT_BYTES = 3000
_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct):
    """What a process has used so far."""

    cpu_seconds: float
    memory_mb: float


def usage_of(pid: int) -> Usage:
    """CPU time and resident memory, from Linux's /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory_mb=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )


class Servers:
    """kube-apiserver with etcd, PostgreSQL that syncs to disk, nats-server; used as `async with Servers()`."""

    def __init__(self) -> None:
        self.control_plane = ControlPlane(find_binaries(print), is_audited=False)
        self.postgres = PostgresServer(is_durable=True)
        self.nats = NatsServer()
        self.processes: dict[str, Running] = {}
        self.client: KubeClient
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for server in (self.control_plane, self.postgres, self.nats):
                await stack.enter_async_context(server)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="levelog-bench-")))
            self._levelog = Levelog(folder, self.control_plane.kubeconfig)
            self._levelog.env |= {
                "LEVELOG_NATS_URL": self.nats.url,
                "LEVELOG_DATABASE_URL": self.postgres.url_of(await self.postgres.create_database()),
                "LEVELOG_LOG_LEVEL": "debug",
            }
            self.database_url = self._levelog.env["LEVELOG_DATABASE_URL"]
            self.client = await stack.enter_async_context(await connect(self.control_plane.kubeconfig))
            await self._install_crd()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.stop()
        await self._stack.aclose()

    async def migrate(self) -> None:
        """Bring the database to this code's revision."""
        ended = await self._levelog.ends("migrate")
        if ended.status:
            raise RuntimeError(ended.stderr)

    def start(self, *roles: str) -> None:
        """Start levelog processes: ingest, process, actuate."""
        for role in roles:
            self.processes[role] = self._levelog.start(role, OPERATOR)

    def usage(self) -> dict[str, Usage]:
        """Usage of each levelog process."""
        return {role: usage_of(process.pid) for role, process in self.processes.items()}

    def log_lines(self, role: str) -> list[dict[str, Any]]:
        """Lines that a process has logged so far."""
        return [msgspec.json.decode(line) for line in self.processes[role].log.read_bytes().splitlines() if line]

    async def create_webs(self, count: int) -> float:
        """Create Webs of about 3 KB; returns the seconds that took."""
        started = time.monotonic()
        padding = "x" * (OBJECT_BYTES - 700)
        numbers = iter(range(count))

        async def create() -> None:
            for number in numbers:
                web = {
                    "apiVersion": "example.com/v1",
                    "kind": "Web",
                    "metadata": {"name": f"web-{number:05}", "annotations": {"example.com/padding": padding}},
                    "spec": {"image": "nginx", "replicas": 1},
                }
                await self.client.request("POST", WEBS, body=msgspec.json.encode(web))

        await asyncio.gather(*(create() for _ in range(16)))
        return time.monotonic() - started

    async def set_replicas(self, number: int, replicas: int) -> None:
        """Change one Web's spec."""
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        await self.client.request(
            "PATCH", f"{WEBS}/web-{number:05}", body=body, content_type="application/merge-patch+json"
        )

    async def writes(self) -> dict[str, int]:
        """Requests that the API server counted on the status of Webs, by verb and code."""
        answer = await self.client.request("GET", "/metrics", timeout=timedelta(seconds=30))
        found: dict[str, int] = {}
        for line in answer.body.decode().splitlines():
            if line.startswith("apiserver_request_total{") and 'resource="webs"' in line:
                labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.index("}")].split(","))
                if labels["subresource"].strip('"') == "status":
                    name = f"{labels['verb'].strip(chr(34))} {labels['code'].strip(chr(34))}"
                    found[name] = found.get(name, 0) + int(float(line.rpartition(" ")[2]))
        return found

    async def _install_crd(self) -> None:
        manifest = yaml.safe_load(CRD.read_text())
        await self.client.request(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=msgspec.json.encode(manifest)
        )

        async def is_served() -> bool:
            return await resolve(self.client, "example.com", "v1", "webs") is not None

        await until(is_served, "the API of webs.example.com")
