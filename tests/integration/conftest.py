"""A cluster in memory and the command for it; tests may have another one.

What differs between the databases is the subject of `tests/contract/store`; here one is enough in `make test`.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.levelog import Levelog
from rigs.migrated import migrated_sqlite
from rigs.nats import NatsServer
from rigs.processing import Processing


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database, at the newest revision; of each kind in `make test-all`."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return migrated_sqlite(tmp_path)


@pytest.fixture
def processing(nats_server: NatsServer, database_url: str) -> partial[Processing]:
    """Makes processors, to be entered."""
    return partial(Processing, nats_server.url, database_url)


@pytest_asyncio.fixture
async def stack(processing: partial[Processing]) -> AsyncIterator[Processing]:
    """Processors of the operator webs."""
    async with processing() as opened:
        yield opened


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as started:
        yield started


@pytest.fixture
def levelog(sandbox: Sandbox, tmp_path: Path) -> Levelog:
    return Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
