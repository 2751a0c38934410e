"""Databases at the newest revision; every test that asks for one runs on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_migrations import upgrade
from levelog_store.database import Database


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/levelog.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await upgrade(database_url)
    async with await Database.open(database_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def shared_url(postgres_url: str) -> str:
    """Of a database that several processes may use."""
    await upgrade(postgres_url)
    return postgres_url


@pytest_asyncio.fixture
async def shared(shared_url: str) -> AsyncIterator[Database]:
    async with await Database.open(shared_url) as opened:
        yield opened
