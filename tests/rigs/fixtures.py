"""Fixtures that start real servers; where one cannot be had, its tests are skipped, or fail if CI is set."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
import pytest_asyncio

from rigs.binaries import Binaries, BinariesMissing, find_binaries, find_helm
from rigs.controlplane import ControlPlane
from rigs.migrated import migrated_sqlite, migrated_template
from rigs.nats import NatsServer
from rigs.postgres import PostgresDatabases, PostgresMissing, PostgresServer, given_databases
from rigs.postgrespair import PostgresPair

T = TypeVar("T")
SANDBOX, KUBE_APISERVER = "sandbox", "kube-apiserver"

_found = pytest.StashKey[Binaries | BinariesMissing]()
_found_helm = pytest.StashKey[Path | BinariesMissing]()


def prepare_binaries(session: pytest.Session) -> None:
    """Find or build the control plane and Helm when a collected test needs them: a build takes longer than a test may.

    A test that asks by `getfixturevalue` is seen here by a parameter KUBE_APISERVER alone; others get a build too, but
    within their own time limit.
    """
    is_helm_needed = any(isinstance(i, pytest.Function) and "helm" in i.fixturenames for i in session.items)
    is_needed = any(map(_needs_binaries, session.items))
    if not (is_needed or is_helm_needed) or session.config.option.collectonly:
        return
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")  # pytest does not publish its type

    def announce(message: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"\n{message}", file=sys.stderr, flush=True)

    if is_needed:
        session.config.stash[_found] = _found_by(find_binaries, announce)
    if is_helm_needed:
        session.config.stash[_found_helm] = _found_by(find_helm, announce)


def _needs_binaries(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return "control_plane_binaries" in item.fixturenames or KUBE_APISERVER in params.values()


@pytest.fixture(scope="session")
def control_plane_binaries(request: pytest.FixtureRequest) -> Binaries:
    """Of etcd, kube-apiserver and perhaps kube-controller-manager."""
    found = request.config.stash.get(_found, None)
    if found is None:
        found = _found_by(find_binaries, print)
    if isinstance(found, BinariesMissing):
        _miss(found)
    return found


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest) -> Path:
    """The program."""
    found = request.config.stash.get(_found_helm, None)
    if found is None:
        found = _found_by(find_helm, print)
    if isinstance(found, BinariesMissing):
        _miss(found)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """An API server that tests share, one after the other: they use namespaces and API groups of their own.

    It may be killed, restarted and compacted, if it runs again at the end.
    """
    async with ControlPlane(control_plane_binaries) as started:
        yield started


@pytest.fixture(params=[SANDBOX, KUBE_APISERVER])
def control_plane_or_none(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The control plane that tests share, or None for the sandbox."""
    return request.getfixturevalue("control_plane") if request.param == KUBE_APISERVER else None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def emptied_control_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """The API server behind `private_control_plane`."""
    async with ControlPlane(control_plane_binaries) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def private_control_plane(emptied_control_plane: ControlPlane) -> ControlPlane:
    """An API server on which nothing was made yet, for one test, which may kill, restart and compact it."""
    await emptied_control_plane.empty()
    return emptied_control_plane


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres() -> AsyncIterator[PostgresDatabases]:
    """Databases on a server that all tests of this worker share, or on the one that the environment names."""
    given = given_databases()
    server = _postgres_server(has_identity=True) if given is None else nullcontext(given)
    async with server as databases, databases.held():
        yield databases


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_template(postgres: PostgresDatabases) -> AsyncIterator[str]:
    """The name of a migrated database that nobody is connected to."""
    async with migrated_template(postgres) as name:
        yield name


@pytest_asyncio.fixture(loop_scope="session")
async def postgres_url(postgres: PostgresDatabases, postgres_template: str) -> AsyncIterator[str]:
    """The SQLAlchemy URL of a fresh database at the newest revision."""
    async with postgres.database(template=postgres_template) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def empty_postgres_url(postgres: PostgresDatabases) -> AsyncIterator[str]:
    """The SQLAlchemy URL of a fresh database without tables."""
    async with postgres.database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database of each kind, at the newest revision."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return migrated_sqlite(tmp_path)


@pytest_asyncio.fixture
async def private_postgres() -> AsyncIterator[PostgresServer]:
    """A server for one test, which may kill and start it."""
    async with _postgres_server() as started:
        yield started


@pytest_asyncio.fixture
async def postgres_pair() -> AsyncIterator[PostgresPair]:
    """A primary and its standby for one test, which may have them change places."""
    try:
        async with PostgresPair() as started:
            yield started
    except PostgresMissing as reason:
        _miss(reason)


@pytest_asyncio.fixture
async def nats_server() -> AsyncIterator[NatsServer]:
    """A nats-server with JetStream and nothing stored, for one test, which may kill and start it."""
    async with NatsServer() as started:
        yield started


def _found_by(find: Callable[[Callable[[str], None]], T], announce: Callable[[str], None]) -> T | BinariesMissing:
    try:
        return find(announce)
    except BinariesMissing as reason:
        return reason


def _postgres_server(*, has_identity: bool = False) -> PostgresServer:
    try:
        return PostgresServer(has_identity=has_identity)
    except PostgresMissing as reason:
        _miss(reason)


def _miss(reason: Exception) -> NoReturn:
    if os.environ.get("CI"):
        raise reason
    pytest.skip(str(reason))
