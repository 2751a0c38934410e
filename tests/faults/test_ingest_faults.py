"""What goes wrong on the way to the API server and to the log, and what ingest makes of it."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog_base.wire.records import ObjectSeen
from levelog_kube.client import REQUEST_TIMEOUT
from levelog_log.stream import open_stream
from levelog_log.transport.connection import connect
from rigs.apirequests import asks
from rigs.faults import Action, CutLine, DropWatch, ExpireWatch, FailAfter, FailBefore, Hold, Refuse, StallWatch
from rigs.ingesting import gaps, ingesting, lists, state_of, until_recorded, until_watching
from rigs.logs import change_settings
from rigs.nats import NatsServer
from rigs.routes import WATCHES, Route, route_of
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until


@pytest.fixture
async def route(tmp_path: Path, nats_server: NatsServer) -> AsyncGenerator[Route]:
    async with route_of(tmp_path, nats_server) as opened:
        yield opened


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


async def test_a_server_that_is_overloaded_is_left_alone_as_long_as_it_asks(route: Route) -> None:
    route.proxy.add(Refuse(code=429, retry_after=2), WATCHES)
    began = time.monotonic()
    async with ingesting(route.kubeconfig, route.stream) as ingest:
        await until_watching(ingest)
    assert time.monotonic() - began >= 2
    assert sum(exchange.request.verb == "watch" for exchange in route.proxy.log) == 2


@pytest.mark.parametrize("seconds", [0, pytest.param(REQUEST_TIMEOUT.total_seconds() + 1, marks=pytest.mark.long)])
async def test_after_a_page_that_is_continued_too_late_the_list_is_asked_for_in_one_piece(
    route: Route, seconds: float
) -> None:
    """It may take longer than other requests: a list that needs as many pages is large."""
    route.create(*(f"c-{number}" for number in range(510)))
    route.proxy.add(Refuse(code=422), WATCHES)  # this server cannot stream lists
    continues = asks("list", "configmaps")
    rule = route.proxy.add(Refuse(code=410), lambda request: continues(request) and "continue" in request.query)
    whole = route.proxy.add(
        Hold(stage="answer"), lambda request: continues(request) and "limit" not in request.query, times=None
    )
    async with ingesting(route.kubeconfig, route.stream):
        await whole.until_applied()
        asyncio.get_running_loop().call_later(seconds, whole.release)
        records = await until_recorded(route.stream, lists)
    assert rule.applied
    assert len(whole.applied) == 1
    assert (lists(records), gaps(records)) == (1, [])
    assert len(state_of(records)) == 510


async def test_invariant_1_a_full_log_is_told_once_and_goes_on_by_itself_when_there_is_room(
    route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "levelog_log"):
        async with ingesting(route.kubeconfig, route.stream) as ingest:
            await until_watching(ingest)
            await change_settings(route.stream, max_bytes=100_000, discard="new")
            names = [f"c-{number}" for number in range(40)]
            route.create(*names, value="x" * 5000)
            await until(
                lambda: ingest.snapshot()[0].phase == "retrying" and "NATS is full" in ingest.snapshot()[0].detail,
                "the full log to be noticed",
            )
            route.delete("c-0")
            route.sandbox.end_watches()
            await change_settings(route.stream, max_bytes=-1)
            records = await until_recorded(route.stream, lambda records: state_of(records).keys() == set(names[1:]))
            await until(lambda: "NATS has room again" in caplog.messages, "the end to be told")
    told = [message for message in caplog.messages if message.startswith("NATS is full")]
    assert len(told) == 1
    assert "maximum bytes exceeded" in told[0]
    assert "max_bytes" in told[0]
    assert (lists(records), gaps(records)) == (1, [])


async def test_invariant_1_while_nats_stands_still_reading_waits_and_nothing_is_lost(
    route: Route, nats_server: NatsServer
) -> None:
    async with (
        TcpProxy(nats_server.port) as proxy,
        await connect(proxy.url(nats_server.url)) as connection,
        ingesting(route.kubeconfig, await open_stream(connection, route.stream.cluster)) as ingest,
    ):
        await until_watching(ingest)
        proxy.pause()
        names = [f"c-{number}" for number in range(60)]
        # More than what waits and the batch under way may hold together, so that the watch itself is held up.
        route.create(*names, value="x" * 500_000)
        last = route.user.get("configmaps", names[-1])["metadata"]["resourceVersion"]
        listed = ingest.snapshot()[0].version or 0
        await until(lambda: (ingest.snapshot()[0].version or 0) > listed, "the watch to be read")
        assert (ingest.snapshot()[0].version or 0) < int(last)
        proxy.resume()
        records = await until_recorded(route.stream, lambda records: state_of(records).keys() == set(names))
    order = [record.record.key.name for record in records if isinstance(record.record, ObjectSeen)]
    assert list(dict.fromkeys(order)) == names
    assert (lists(records), gaps(records)) == (1, [])
