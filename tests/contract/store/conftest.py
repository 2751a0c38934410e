"""Databases at the newest revision; every test that asks for one runs on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest_asyncio

from levelog_store.connect.database import Database
from levelog_store.rows import Scope
from rigs.leasing import scope_of


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with await Database.open(database_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def scope(database: Database) -> Scope:
    return await scope_of(database)


@pytest_asyncio.fixture
async def shared_url(postgres_url: str) -> str:
    """Of a database that several processes may use."""
    return postgres_url


@pytest_asyncio.fixture
async def shared(shared_url: str) -> AsyncIterator[Database]:
    async with await Database.open(shared_url) as opened:
        yield opened
