"""Two data directories that act for one application in one cluster are told of each other."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from levelog_base.wire.objects import Application
from levelog_cli.deployment.accounts import dns_name
from levelog_cli.servers.data_dir import DataDir
from levelog_cli.wiring.runlease import NAMESPACE, RunLease
from levelog_kube.client import KubeClient, connect
from levelog_sandbox import Denial, Sandbox
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS, WEBS_FILE, Levelog, Running, define_webs
from rigs.waiting import until

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SHORT = timedelta(milliseconds=50)
MINUTE = timedelta(minutes=1)


class Cluster:
    """A cluster and the Lease of one application in it."""

    def __init__(self, api: Api, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.application = Application(f"Shop_{id(self):x}")
        self.name = f"levelog-run-{dns_name(self.application)}"
        self.path = f"{LEASES}/{self.name}"

    async def holder(self) -> str | None:
        status, lease = await self.api.request("GET", self.path)
        return lease["spec"]["holderIdentity"] if status == 200 else None

    async def hold(self, *, renewed: timedelta) -> None:
        """Hold the Lease for another directory, by a clock that is so far from this one's."""
        spec = {"holderIdentity": "elsewhere:/data", "leaseDurationSeconds": 60, "renewTime": stamp(renewed)}
        body: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}

        async def is_held() -> bool:
            status, held = await self.api.request("GET", self.path)
            body["metadata"] = held["metadata"] if status == 200 else {"name": self.name}
            method, path = ("PUT", self.path) if status == 200 else ("POST", LEASES)
            return (await self.api.request(method, path, body))[0] in {200, 201}

        await until(is_held, "a lease that is somebody else's")

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncGenerator[None]:
        """Keep the Lease for a data directory."""
        lease = RunLease(self.client, self.application, DataDir(folder), period=SHORT)
        keeping = asyncio.create_task(lease.keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
        assert keeping.cancelled() or keeping.result() is None


def stamp(distance: timedelta) -> str:
    return (datetime.now(UTC) + distance).isoformat(timespec="microseconds").replace("+00:00", "Z")


@asynccontextmanager
async def cluster_at(api: Api, kubeconfig: Path) -> AsyncGenerator[Cluster]:
    async with await connect(kubeconfig) as client:
        yield Cluster(api, client)


@pytest_asyncio.fixture
async def sandboxed(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Sandbox() as sandbox, cluster_at(Api(sandbox.url), sandbox.kubeconfig(tmp_path / "config")) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def real(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with cluster_at(control_plane.admin, control_plane.kubeconfig) as cluster:
        yield cluster


@pytest.fixture(params=["sandboxed", "real"], ids=["sandbox", "kube-apiserver"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


def said(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


async def warned(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> None:
    await until(lambda: bool(said(caplog, level)), "a line of the log")


async def test_the_second_directory_warns_once_and_takes_the_lease_when_the_first_has_ended(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (f"{socket.gethostname()}:{tmp_path / name}" for name in ("first", "second"))

    async def is_first() -> bool:
        return await cluster.holder() == first

    async with cluster.running(tmp_path / "first"):
        await until(is_first, "the lease of the first")
    assert await cluster.holder() is None, "given back"

    async with cluster.running(tmp_path / "first"):
        await until(is_first, "the lease of the first")
        async with cluster.running(tmp_path / "second"):
            await warned(caplog)
            assert await is_first()
        assert await is_first(), "only its holder gives it back"
        assert said(caplog) == [
            f"application {cluster.application} is run from another data directory too, {first}: both write. "
            "Stop one, or give both the same --nats-url and --database-url"
        ]
    async with cluster.running(tmp_path / "second"):
        await until(cluster.holder, "the lease of the second", accept=lambda found: found == second)
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("clock", [-60 * MINUTE, 60 * MINUTE], ids=["an hour behind", "an hour ahead"])
async def test_a_holder_that_renews_is_seen_whatever_its_clock(
    sandboxed: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: timedelta
) -> None:
    """One an hour behind loses the Lease at first, and then takes it again as soon as it renews it."""
    renewed_after = 0
    async with sandboxed.running(tmp_path):
        await sandboxed.hold(renewed=clock)

        async def is_warned() -> bool:
            nonlocal renewed_after
            await sandboxed.hold(renewed=clock)
            renewed_after += bool(said(caplog))
            return renewed_after > 10

        await until(is_warned, "a warning", pause=SHORT.total_seconds())
    assert len(said(caplog)) == 1


async def test_a_lease_whose_holder_was_killed_is_taken_over(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.hold(renewed=-2 * MINUTE)
    async with cluster.running(tmp_path):
        await until(cluster.holder, "the lease", accept=lambda found: found == f"{socket.gethostname()}:{tmp_path}")
    assert said(caplog) == []


async def test_without_the_right_to_it_one_line_says_that_nothing_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Sandbox() as sandbox:
        sandbox.access.denials.append(Denial("*", "leases.coordination.k8s.io"))
        kubeconfig = sandbox.kubeconfig(tmp_path / "config")
        async with cluster_at(Api(sandbox.url), kubeconfig) as cluster, cluster.running(tmp_path):
            await warned(caplog, logging.INFO)
    [line] = [text for text in said(caplog, logging.INFO) if "levelog run" in text]
    assert line.startswith(f"not looked whether another `levelog run` acts for application {cluster.application}, ")
    assert "403 Forbidden" in line


async def test_two_runs_with_two_data_directories_say_so(tmp_path: Path) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        folders = [tmp_path / "first", tmp_path / "second"]
        running: list[Running] = []
        try:
            for folder in folders:
                folder.mkdir()
                levelog = Levelog(folder, sandbox.kubeconfig(folder / "kubeconfig"))
                running.append(levelog.start("run", WEBS_FILE))
                await until(lambda: bool(sandbox.user.list("leases.coordination.k8s.io")), "the lease of the first")
            first, second = running
            await until(lambda: "both write" in second.log.read_text(), "the warning of the second")
            assert str(folders[0]) in second.log.read_text()
            assert "both write" not in first.log.read_text()
            assert [await one.stops() for one in running] == [0, 0]
        finally:
            for one in running:
                one.kill()
        assert sandbox.user.list("leases.coordination.k8s.io") == []
