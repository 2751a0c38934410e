"""`max_concurrency=`: how many calls of one handler run at a time in a process, and that it holds up nobody else."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from levelog import Operator, Retry
from levelog_log.notifications import Listener, Topic
from levelog_sandbox import Sandbox
from rigs.acting import QUICK, WITHOUT_RESYNC, Acting
from rigs.api import Api
from rigs.crowd import Crowd
from rigs.intents import calls
from rigs.nats import NatsServer
from rigs.processes import Forked, Process
from rigs.waiting import until

TESTS = Path(__file__).parents[2]
PATIENT = timedelta(minutes=5)
"""However busy the machine is."""


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both in `make test`: what tells handlers apart is written in SQL."""
    is_shared = request.param == "postgresql"
    return str(request.getfixturevalue("postgres_url")) if is_shared else f"sqlite:///{tmp_path}/levelog.db"


@pytest_asyncio.fixture
async def acting(sandbox: Sandbox, nats_server: NatsServer, database_url: str, tmp_path: Path) -> AsyncIterator[Acting]:
    async with Acting(Api(sandbox.url), nats_server.url, database_url, tmp_path) as started:
        yield started


def limited(crowd: Crowd, kind: str, max_concurrency: int) -> Operator:
    """An operator with an effect `slow`, which stands in the crowd, and one without a limit."""
    op = Operator("webs")

    def stand(request: str) -> None:
        crowd.stand()

    async def stand_in_loop(request: str) -> None:
        await crowd.stand_in_loop()

    function = stand if kind == "plain" else stand_in_loop
    function.__name__ = "slow"
    op.effect(max_concurrency=max_concurrency, timeout=PATIENT)(function)

    @op.effect
    def quick(request: str) -> None:
        pass

    return op


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_no_more_calls_run_than_the_limit_and_the_next_begins_when_one_ends(acting: Acting, kind: str) -> None:
    crowd = Crowd()
    async with acting.running(WITHOUT_RESYNC, limited(crowd, kind, 3)):
        keys = await acting.decide(*calls("slow", 12))
        for ended in range(12):
            left = 12 - ended
            await crowd.come_to(running=min(3, left), came=min(12, ended + 3))
            states = [row["state"] for row in (await acting.rows()).values()]
            assert states.count("pending") == max(0, left - 3)  # what waits is free for other processes
            crowd.let_out()
        receipts = await acting.receipts_of(keys)
    assert {each.outcome for each in receipts} == {"written"}
    assert (crowd.most, crowd.came) == (3, 12)


@pytest.mark.parametrize("waiting", [100, 10_000])
async def test_a_handler_that_is_full_holds_up_no_other_however_many_of_its_calls_wait(
    acting: Acting, waiting: int
) -> None:
    crowd = Crowd()
    await acting.decide(*calls("slow", waiting), is_notified=False)
    async with acting.running(WITHOUT_RESYNC, limited(crowd, "plain", 2)):
        await crowd.come_to(running=2, came=2)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        written = acting.intent("apply", target=f"configmaps/{acting.namespace}/a", body=body)
        receipts = await acting.carried_out(*calls("quick", 5), written)
        assert {each.outcome for each in receipts} == {"written"}
        assert (crowd.running, crowd.came) == (2, 2)
        crowd.let_out()
        await crowd.come_to(running=2, came=3)
        crowd.let_out(4)
        await crowd.come_to(running=2, came=7)
        crowd.let_out(2 * QUICK.claimed)
    assert crowd.most == 2


async def test_who_has_no_limit_listens_once(acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    listening = list[Topic]()

    def listen(topic: Topic) -> Listener:
        listening.append(topic)
        return Listener()

    monkeypatch.setattr(acting.notifier, "listen", listen)
    acting.actuator(WITHOUT_RESYNC)
    assert listening.count(Topic.INTENT) == 1
    acting.actuator(WITHOUT_RESYNC, limited(Crowd(), "plain", 1))
    assert listening.count(Topic.INTENT) == 1 + 2


async def test_a_handler_goes_on_while_those_without_a_limit_have_no_room(acting: Acting) -> None:
    limit, full = Crowd(), Crowd()
    op = limited(limit, "async", 1)

    @op.effect(timeout=PATIENT)
    async def fills(request: str) -> None:
        await full.stand_in_loop()

    async with acting.running(WITHOUT_RESYNC, op):
        await acting.decide(*calls("fills", 2 * WITHOUT_RESYNC.few))
        await full.come_to(running=128, came=128)
        full.let_out(28)
        await full.come_to(running=100, came=128)  # fewer than may run, and more than others of them are claimed beside
        keys = await acting.decide(*calls("slow", 3))
        await limit.come_to(running=1, came=1)
        limit.let_out(3)
        await acting.receipts_of(keys)
        assert full.running == 100
        full.let_out(100)
    assert limit.most == 1


async def test_a_call_that_is_tried_again_counts_again_and_leaves_its_place_meanwhile(acting: Acting) -> None:
    crowd, op, called = Crowd(), Operator("webs"), list[str]()

    @op.effect(max_concurrency=1)
    async def slow(request: str) -> None:
        crowd.enter()
        called.append(request)
        try:
            await asyncio.sleep(0)
            if called.count(request) == 1:
                raise Retry("busy", delay=timedelta(seconds=1) if request == "0" else timedelta(milliseconds=1))
        finally:
            crowd.leave()

    async with acting.running(WITHOUT_RESYNC, op):
        receipts = await acting.carried_out(*calls("slow", 4))
    assert [each.attempts for each in receipts] == [2] * 4
    assert (crowd.most, crowd.came, called[-1]) == (1, 8, "0")


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_function_that_outlasts_its_time_keeps_its_place_until_it_has_returned(
    acting: Acting, kind: str
) -> None:
    crowd, op, ends = Crowd(), Operator("webs"), threading.Event()

    def hang(request: str) -> None:
        crowd.enter()
        if request == "0":
            ends.wait(60)
        crowd.leave()

    async def resist(request: str) -> None:
        crowd.enter()
        while request == "0" and not ends.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        crowd.leave()

    function = hang if kind == "plain" else resist

    @op.effect
    def quick(request: str) -> None:
        pass

    function.__name__ = "slow"
    op.effect(max_concurrency=1, timeout=timedelta(milliseconds=50))(function)
    async with acting.running(WITHOUT_RESYNC, op):
        first, *others = keys = await acting.decide(*calls("slow", 3))

        async def is_late() -> bool:
            return "goes on" in (await acting.rows())[first]["error"]

        try:
            await until(is_late, "a call whose time is over")
            for _ in range(3):
                await acting.carried_out(*calls("quick", 1))
            assert (crowd.running, crowd.came) == (1, 1)
            rows = await acting.rows()
            assert [rows[key]["state"] for key in others] == ["pending"] * 2  # another actuator may claim them
        finally:
            ends.set()
        receipts = await acting.receipts_of(keys)
    assert crowd.most == 1
    assert {each.outcome for each in receipts} == {"written"}


async def test_calls_that_a_stop_cut_short_are_made_again_no_more_at_a_time(acting: Acting) -> None:
    crowd = Crowd()
    hasty = replace(
        WITHOUT_RESYNC, request=timedelta(seconds=0.3), brief=timedelta(seconds=0.3), lease=timedelta(seconds=1)
    )
    async with acting.running(hasty, limited(crowd, "async", 2)):
        keys = await acting.decide(*calls("slow", 5))
        await crowd.come_to(running=2, came=2)
    async with acting.running(hasty, limited(crowd, "async", 2)):
        await crowd.come_to(running=2, came=4)
        crowd.let_out(5)
        receipts = await acting.receipts_of(keys)
    assert {each.outcome for each in receipts} == {"written"}
    assert (crowd.most, crowd.came) == (2, 7)


async def test_after_a_kill_the_calls_are_taken_over_no_more_at_a_time(
    shared: Acting, nats_server: NatsServer, tmp_path: Path
) -> None:
    """On PostgreSQL, as the test itself looks into the database."""
    folder = tmp_path / "outside"
    folder.mkdir()
    log = folder / "stood"
    keys = await shared.decide(*calls("stand", 6))
    argv: list[str | Path] = [sys.executable, "-m", "rigs.actuatorprocess", nats_server.url, shared.database_url]

    def started() -> Process:
        given = [*argv, shared.kubeconfig, folder]
        return Forked(given, tmp_path / "actuator.log", env={"PYTHONPATH": str(TESTS)})

    def lines(word: str) -> list[str]:
        return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []

    def stand(count: int) -> Callable[[], Any]:
        async def they_do() -> bool:
            return len(lines("begins")) >= count

        return they_do

    first = started()
    try:
        await until(stand(2), "two calls", seconds=60)
        first.kill()
        second = started()
        try:
            await until(stand(4), "two calls of the next process", seconds=60)
            (folder / "go").touch()
            receipts = await shared.receipts_of(keys, seconds=60)
        finally:
            second.kill()
    finally:
        first.kill()
    assert {each.outcome for each in receipts} == {"written"}
    assert len(lines("begins")) == 8  # two were killed
    running, most = dict[str, int](), dict[str, int]()
    for line in log.read_text().splitlines():
        word, process = line.split()[:2]
        running[process] = running.get(process, 0) + (1 if word == "begins" else -1)
        most[process] = max(most.get(process, 0), running[process])
    assert list(most.values()) == [2, 2]
