"""What goes wrong on the way to the API server, and what ingest makes of it."""

import time
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.stream import LogStream, ensure_stream
from levelog_log.transport.connection import connect
from levelog_sandbox.sandbox import Sandbox
from rigs.apirequests import asks
from rigs.faultproxy import FaultProxy
from rigs.faults import (
    Action,
    CutLine,
    DropBookmarks,
    DropWatch,
    ExpireWatch,
    FailAfter,
    FailBefore,
    Hold,
    Refuse,
    StallWatch,
)
from rigs.ingesting import gaps, ingesting, lists, state_of, until_recorded, until_watching
from rigs.nats import NatsServer
from rigs.waiting import until

WATCHES = asks("watch", "configmaps")


class Route:
    """A sandbox behind a fault proxy, and the log of that cluster."""

    def __init__(self, sandbox: Sandbox, proxy: FaultProxy, kubeconfig: Path, stream: LogStream) -> None:
        self.sandbox, self.proxy, self.kubeconfig, self.stream = sandbox, proxy, kubeconfig, stream

    def create(self, *names: str) -> None:
        for name in names:
            metadata = {"name": name, "namespace": "default"}
            self.sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async def watch_anew(self) -> None:
        """End the watch, and wait until there is another one."""
        before = self._watches()
        self.sandbox.end_watches()

        async def is_asked() -> bool:
            return self._watches() > before

        await until(is_asked, "another watch")

    def _watches(self) -> int:
        return sum(WATCHES(exchange.request) for exchange in self.proxy.log)


@pytest.fixture
async def route(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[Route]:
    async with Sandbox() as sandbox, FaultProxy(sandbox.url) as proxy, await connect(nats_server.url) as connection:
        kubeconfig = proxy.kubeconfig(tmp_path / "config")
        async with await connect_kube(kubeconfig) as client:
            stream = await ensure_stream(connection, await cluster_uid(client), partitions=2)
        yield Route(sandbox, proxy, kubeconfig, stream)


def holds(*names: str) -> Callable[[Any], bool]:
    return lambda records: state_of(records).keys() == set(names) and lists(records) > 0


@pytest.mark.parametrize(
    "action",
    [
        CutLine(after_lines=2),
        CutLine(after_lines=2, how="reset"),
        DropWatch(after_lines=2),
        DropWatch(after_lines=2, how="fin"),
        DropWatch(after_lines=2, how="reset"),
        Refuse(code=500),
        Refuse(code=503),
        Refuse(code=504),
        FailBefore(),
        FailAfter(),
    ],
)
async def test_a_list_that_breaks_off_is_made_again_and_a_broken_watch_is_resumed(route: Route, action: Action) -> None:
    route.create("a", "b", "c")
    route.proxy.add(action, WATCHES, times=2)
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        await until_recorded(route.stream, holds("a", "b", "c"))
        rule = route.proxy.add(action, WATCHES)
        await route.watch_anew()
        route.create("d", "e", "f")
        route.sandbox.user.delete("configmaps", "a")
        await rule.until_applied()
        records = await until_recorded(route.stream, holds("b", "c", "d", "e", "f"))
    assert (lists(records), gaps(records)) == (1, [])


async def test_what_is_deleted_while_a_list_is_begun_anew_is_not_there_after_it(route: Route) -> None:
    route.create("a", "b", "c")
    route.proxy.add(DropWatch(after_lines=2), WATCHES)
    again = route.proxy.add(Hold(stage="request"), WATCHES)
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await again.until_applied()
        route.sandbox.user.delete("configmaps", "a")
        again.release()
        await until_watching(ingest)
        records = await until_recorded(route.stream, lists)
    assert state_of(records).keys() == {"b", "c"}


async def test_history_that_expires_within_a_watch_is_a_gap_and_a_list(route: Route) -> None:
    route.create("a", "b")
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        route.proxy.add(ExpireWatch(after_lines=1), WATCHES)
        await route.watch_anew()
        route.create("c", "d")
        records = await until_recorded(route.stream, lambda records: lists(records) == 2)
    assert len(gaps(records)) == 1
    assert state_of(records).keys() == {"a", "b", "c", "d"}


async def test_a_watch_that_went_silent_is_made_anew(route: Route) -> None:
    rule = route.proxy.add(StallWatch(after_lines=3), WATCHES)
    route.create("a")
    async with ingesting(route.kubeconfig, route.stream, silence=timedelta(seconds=0.5)):
        await until_recorded(route.stream, holds("a"))
        route.create("b", "c", "d")
        await rule.until_applied()
        records = await until_recorded(route.stream, holds("a", "b", "c", "d"))
    assert lists(records) == 1


async def test_without_bookmarks_everything_is_recorded_too(route: Route) -> None:
    route.proxy.add(DropBookmarks(), WATCHES, times=None)
    route.create("a")
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
        route.create("b")
        await until_recorded(route.stream, holds("a", "b"))


async def test_a_server_that_is_overloaded_is_left_alone_as_long_as_it_asks(route: Route) -> None:
    route.proxy.add(Refuse(code=429, retry_after=2), WATCHES)
    began = time.monotonic()
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
    assert time.monotonic() - began >= 2
    assert sum(exchange.request.verb == "watch" for exchange in route.proxy.log) == 2


async def test_after_a_page_that_is_continued_too_late_the_list_is_asked_for_in_one_piece(route: Route) -> None:
    route.create(*(f"c-{number}" for number in range(510)))
    route.proxy.add(Refuse(code=422), WATCHES)  # this server cannot stream lists
    continues = asks("list", "configmaps")
    rule = route.proxy.add(Refuse(code=410), lambda request: continues(request) and "continue" in request.query)
    async with ingesting(route.kubeconfig, route.stream):
        records = await until_recorded(route.stream, lists)
    assert rule.applied
    assert (lists(records), gaps(records)) == (1, [])
    assert len(state_of(records)) == 510
