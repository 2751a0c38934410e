"""Every test here runs against the sandbox and a real kube-apiserver: where they differ, the sandbox is wrong."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.clusterclient import ClusterClient
from rigs.controlplane import ControlPlane
from rigs.customresources import Webs, webs_of
from rigs.fixtures import KUBE_APISERVER, SANDBOX
from rigs.waiting import until


def client_of(server: ControlPlane | Sandbox) -> ClusterClient:
    if isinstance(server, Sandbox):
        return ClusterClient(server.url)
    return ClusterClient(server.url, ca_file=server.ca_file, token=server.admin_token)


@pytest_asyncio.fixture
async def api(control_plane_or_none: ControlPlane | None) -> AsyncIterator[ClusterClient]:
    """A client of the server under test. No controllers run."""
    if control_plane_or_none is not None:
        async with client_of(control_plane_or_none) as client:
            yield client
        return
    async with Sandbox(collects_garbage=False) as sandbox, client_of(sandbox) as client:
        yield client


@pytest_asyncio.fixture
async def namespace(api: ClusterClient) -> str:
    """A namespace of the test's own."""
    return await new_namespace(api)


async def new_namespace(api: ClusterClient) -> str:
    name = f"t-{secrets.token_hex(4)}"
    answer = await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.code == 201, answer.body
    return name


@pytest_asyncio.fixture
async def webs(api: ClusterClient, namespace: str) -> Webs:
    """A custom resource with lists and maps of every kind, and a status subresource."""
    return await webs_of(api, namespace)


@pytest.fixture
def config_maps(namespace: str) -> str:
    """The path of the config maps of the test's namespace."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@dataclass(frozen=True)
class Forgetful:
    """A server that can be made to forget its history."""

    api: ClusterClient
    forget: Callable[[], Awaitable[int]]


@pytest_asyncio.fixture
async def forgetful(control_plane_or_none: ControlPlane | None) -> AsyncIterator[Forgetful]:
    """A server that can be made to forget."""
    if control_plane_or_none is not None:
        async with client_of(control_plane_or_none) as client:

            async def expire() -> int:
                now = await control_plane_or_none.expire_history()
                await until(is_initialized, "the caches of a restarted server")
                return now

            async def is_initialized() -> bool:
                # Until a restarted server has filled its caches, it answers 429.
                listed = await client.get("/apis/contract.example.com/v1/webs", resourceVersion="0")
                return listed.code == 200

            yield Forgetful(client, expire)
        return
    async with Sandbox() as sandbox, client_of(sandbox) as client:

        async def forget() -> int:
            return sandbox.compact()

        yield Forgetful(client, forget)


@pytest.fixture(scope="module", params=[SANDBOX, KUBE_APISERVER])
def controlled_server(request: pytest.FixtureRequest) -> Iterator[ControlPlane | None]:
    """A control plane whose controllers delete what others left, for the tests of one file; None for the sandbox."""
    if request.param == SANDBOX:
        yield None
        return
    server = ControlPlane(request.getfixturevalue("control_plane_binaries"))

    async def start() -> None:
        await server.start()
        async with client_of(server) as client:
            await webs_of(client, "default")  # defined later, it would be noticed half a minute later
        await server.start_controller_manager(["garbage-collector-controller", "namespace-controller"])

    try:
        asyncio.run(start())
        yield server
    finally:
        server.stop()


@pytest_asyncio.fixture
async def controlled(controlled_server: ControlPlane | None) -> AsyncIterator[ClusterClient]:
    """A client of a server that collects garbage and empties namespaces."""
    if controlled_server is not None:
        async with client_of(controlled_server) as client:
            yield client
        return
    async with Sandbox() as sandbox, client_of(sandbox) as client:
        yield client
