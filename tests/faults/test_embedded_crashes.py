"""`levelog run`, with its embedded NATS and SQLite, is killed around each write, and started again."""

import itertools
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.apirequests import ApiRequest
from rigs.faultproxy import FaultProxy
from rigs.faults import Stage, Strike
from rigs.levelog import WEBS_FILE, Levelog, Running
from rigs.shop import Shop, Written, count_in_sandbox
from rigs.waiting import until


class Stack:
    """One process that does everything, behind a fault proxy."""

    def __init__(self, shop: Shop, proxy: FaultProxy, levelog: Levelog) -> None:
        self.shop = shop
        self.proxy = proxy
        self.running: Running = levelog.start("run", WEBS_FILE)
        self._levelog = levelog

    def start(self) -> None:
        """Start it again, after it was killed, on the data that it left; its leases end now, not in 15 seconds."""
        with closing(sqlite3.connect(self._levelog.data / "levelog.db")) as connection, connection:
            for table in ("leases", "processors"):
                connection.execute(f"UPDATE {table} SET expires_at = '2000-01-01 00:00:00.000000'")
        self.running = self._levelog.start("run", WEBS_FILE)

    async def converges(self) -> None:
        async def has_converged() -> bool:
            self.running.check()
            return await self.shop.is_as_wanted()

        await until(has_converged, f"{self.shop.wanted}", seconds=60)


@pytest_asyncio.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with Sandbox() as sandbox, FaultProxy(sandbox.url) as proxy:
        shop = Shop(Api(sandbox.url), count_in_sandbox(sandbox))
        await shop.open()
        stack = Stack(shop, proxy, Levelog(tmp_path, proxy.kubeconfig(tmp_path / "kubeconfig")))
        try:
            await stack.converges()
            yield stack
        finally:
            stack.running.kill()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["request", "answer"])
async def test_it_goes_on_after_being_killed_around_a_write_and_writes_nothing_twice(
    stack: Stack, stage: Stage
) -> None:
    points = 0
    for nth in itertools.count(1):
        strike = Strike(call=stack.running.kill, stage=stage, is_last=True)
        rule = stack.proxy.add(strike, _is_write_of_a_pod, nth=nth)
        await stack.shop.change(f"image-{nth}")

        async def is_decided() -> bool:
            return not stack.running.is_running or await stack.shop.is_as_wanted()

        await until(is_decided, "the end of levelog, or convergence", seconds=60)
        stack.proxy.remove(rule)
        if not rule.applied:
            break
        points += 1
        stack.start()
        await stack.converges()
        assert await stack.shop.written() == stack.shop.one_of_each, f"{stage} number {nth}"
    assert points == 2 * len(stack.shop.names)
    assert await stack.running.stops() == 0
    # Whatever was still to come has come: nothing more was written.
    assert await stack.shop.written() == stack.shop.one_of_each
    assert stack.shop.counted + stack.shop.one_of_each == Written(
        {(verb, name): points + 1 + (verb == "apply") for verb in ("apply", "delete") for name in stack.shop.names}
    )


def _is_write_of_a_pod(request: ApiRequest) -> bool:
    return request.is_write and request.point.resource == "pods"
