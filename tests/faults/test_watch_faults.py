"""What goes wrong on the way to the API server, and what ingest makes of it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from levelog_kube.client import REQUEST_TIMEOUT
from rigs.apirequests import asks
from rigs.faults import Action, CutLine, DropWatch, ExpireWatch, FailAfter, FailBefore, Hold, Refuse, StallWatch
from rigs.ingesting import gaps, ingesting, lists, state_of, until_recorded, until_watching
from rigs.nats import NatsServer
from rigs.routes import WATCHES, Route, route_of


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
