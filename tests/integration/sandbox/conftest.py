"""A sandbox with controllers, a client of it, and Webs to play with."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs, webs_of

Json = dict[str, Any]


@pytest_asyncio.fixture
async def api(sandbox: Sandbox) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(sandbox.url, user_agent="operator/1.0") as client:
        yield client


@pytest_asyncio.fixture
async def webs(api: ClusterClient) -> Webs:
    return await webs_of(api, "default")
