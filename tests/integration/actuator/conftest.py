"""An actuator on a real log and database; tests that ask for `acting` run on the sandbox and on kube-apiserver."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.acting import Acting
from rigs.actuatorprocess import ActuatorProcess
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.nats import NatsServer


@pytest_asyncio.fixture
async def server(control_plane_or_none: ControlPlane | None) -> AsyncIterator[Api]:
    """An API with the resource webs.example.com."""
    if control_plane_or_none is not None:
        admin = control_plane_or_none.admin
        await serve_webs(admin)
        yield admin
        return
    async with Sandbox() as sandbox:
        api = Api(sandbox.url)
        await serve_webs(api)
        yield api


@pytest_asyncio.fixture
async def acting(server: Api, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Acting]:
    """On SQLite."""
    async with Acting(server, nats_server.url, f"sqlite:///{tmp_path}/levelog.db", tmp_path) as started:
        yield started


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as started:
        await serve_webs(Api(started.url))
        yield started


@pytest_asyncio.fixture
async def on_sandbox(sandbox: Sandbox, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Acting]:
    """On the sandbox alone, with SQLite."""
    async with Acting(Api(sandbox.url), nats_server.url, f"sqlite:///{tmp_path}/levelog.db", tmp_path) as started:
        yield started


@pytest_asyncio.fixture
async def shared(sandbox: Sandbox, nats_server: NatsServer, postgres_url: str, tmp_path: Path) -> AsyncIterator[Acting]:
    """On the sandbox, with PostgreSQL."""
    async with Acting(Api(sandbox.url), nats_server.url, postgres_url, tmp_path) as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def either_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both in `make test`, too."""
    is_shared = request.param == "postgresql"
    return str(request.getfixturevalue("postgres_url")) if is_shared else f"sqlite:///{tmp_path}/levelog.db"


@pytest_asyncio.fixture
async def on_either(
    sandbox: Sandbox, nats_server: NatsServer, either_url: str, tmp_path: Path
) -> AsyncIterator[Acting]:
    """On the sandbox, with each database: where what is tested is written in SQL."""
    async with Acting(Api(sandbox.url), nats_server.url, either_url, tmp_path) as started:
        yield started


async def serve_webs(api: Api) -> None:
    """Make the CRD unless the server, which tests share, has it."""
    if not await api.is_ok("/apis/example.com/v1/webs"):
        await api.create_crd("Web")


@pytest.fixture
def actuator(shared: Acting, nats_server: NatsServer, tmp_path: Path) -> Iterator[ActuatorProcess]:
    process = ActuatorProcess(shared, nats_server, tmp_path)
    yield process
    process.kill()
