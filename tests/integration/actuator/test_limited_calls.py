"""max_concurrency=: how many calls of one handler run at a time in a process, and that it holds up nobody else."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from levelog import Operator, Retry
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.look.overview import LevelLine
from rigs.acting import QUICK, WITHOUT_RESYNC, Acting
from rigs.crowd import Crowd
from rigs.intents import calls
from rigs.kinds import manifest
from rigs.levelog import Levelog, define_webs
from rigs.nats import NatsServer
from rigs.together import together
from rigs.typed import Web
from rigs.waiting import until

PATIENT = timedelta(minutes=5)
"""However busy the machine is."""


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
async def test_no_more_calls_run_than_the_limit_and_the_next_begins_when_one_ends(on_either: Acting, kind: str) -> None:
    crowd = Crowd()
    async with on_either.running(WITHOUT_RESYNC, limited(crowd, kind, 3)):
        keys = await on_either.decide(*calls("slow", 12))
        for ended in range(12):
            left = 12 - ended
            await crowd.come_to(running=min(3, left), came=min(12, ended + 3))
            states = [row["state"] for row in (await on_either.rows()).values()]
            assert states.count("pending") == max(0, left - 3)  # what waits is free for other processes
            crowd.let_out()
        receipts = await on_either.receipts_of(keys)
    assert {each.outcome for each in receipts} == {"written"}
    assert (crowd.most, crowd.came) == (3, 12)


@pytest.mark.parametrize("waiting", [100, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_handler_that_is_full_holds_up_no_other_however_many_of_its_calls_wait(
    on_either: Acting, waiting: int
) -> None:
    crowd = Crowd()
    await on_either.decide(*calls("slow", waiting), is_notified=False)
    async with on_either.running(WITHOUT_RESYNC, limited(crowd, "plain", 2)):
        await crowd.come_to(running=2, came=2)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        written = on_either.intent("apply", body=body)
        receipts = await on_either.carried_out(*calls("quick", 5), written)
        assert {each.outcome for each in receipts} == {"written"}
        assert (crowd.running, crowd.came) == (2, 2)
        crowd.let_out()
        await crowd.come_to(running=2, came=3)
        crowd.let_out(4)
        await crowd.come_to(running=2, came=7)
        crowd.let_out(2 * QUICK.claimed)
    assert crowd.most == 2


async def test_a_handler_goes_on_while_those_without_a_limit_have_no_room(on_either: Acting) -> None:
    limit, full = Crowd(), Crowd()
    op = limited(limit, "async", 1)

    @op.effect(timeout=PATIENT)
    async def fills(request: str) -> None:
        await full.stand_in_loop()

    async with on_either.running(WITHOUT_RESYNC, op):
        await on_either.decide(*calls("fills", 2 * WITHOUT_RESYNC.few))
        await full.come_to(running=128, came=128)
        full.let_out(28)
        await full.come_to(running=100, came=128)  # fewer than may run, and more than others of them are claimed beside
        keys = await on_either.decide(*calls("slow", 3))
        await limit.come_to(running=1, came=1)
        limit.let_out(3)
        await on_either.receipts_of(keys)
        assert full.running == 100
        full.let_out(100)
    assert limit.most == 1


async def test_a_call_that_is_tried_again_counts_again_and_leaves_its_place_meanwhile(on_either: Acting) -> None:
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

    async with on_either.running(WITHOUT_RESYNC, op):
        receipts = await on_either.carried_out(*calls("slow", 4))
    assert [each.attempts for each in receipts] == [2] * 4
    assert (crowd.most, crowd.came, called[-1]) == (1, 8, "0")


async def test_calls_that_a_stop_cut_short_are_made_again_no_more_at_a_time(on_either: Acting) -> None:
    crowd = Crowd()
    hasty = replace(
        WITHOUT_RESYNC, request=timedelta(seconds=0.3), brief=timedelta(seconds=0.3), lease=timedelta(seconds=1)
    )
    async with on_either.running(hasty, limited(crowd, "async", 2)):
        keys = await on_either.decide(*calls("slow", 5))
        await crowd.come_to(running=2, came=2)
    async with on_either.running(hasty, limited(crowd, "async", 2)):
        await crowd.come_to(running=2, came=4)
        crowd.let_out(5)
        receipts = await on_either.receipts_of(keys)
    assert {each.outcome for each in receipts} == {"written"}
    assert (crowd.most, crowd.came) == (2, 7)


async def test_each_handler_and_timer_runs_as_often_at_a_time_as_it_says_and_the_others_are_not_held_up(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    op = Operator("limits")
    provisioning, rotating, noted = Crowd(), Crowd(), set[str]()

    @op.on.create(of=Web, max_concurrency=2, timeout=timedelta(minutes=5))
    @op.on.update(Web)
    def provision(web: Mapping[str, Any]) -> None:
        provisioning.stand()

    @op.timer(every=timedelta(hours=1), max_concurrency=1, timeout=timedelta(minutes=5))
    async def rotate(web: Web) -> None:
        await rotating.stand_in_loop()

    @op.on.create
    def note(web: Web) -> None:
        noted.add(web.metadata.name)

    levelog = Levelog(tmp_path)
    levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": database_url, "COLUMNS": "200"}
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, name = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("limits")
        async with together(kubeconfig, nats_server.url, database_url, name, Program([op]), [Web]) as running:
            for number in range(6):
                body = manifest("Web", f"web-{number}", image="a")
                sandbox.user.create(body)
            await until(lambda: len(noted) == 6, "the objects that the handler without a limit was called for")
            await provisioning.come_to(running=2, came=2)
            await rotating.come_to(running=1, came=1)
            waits = "2 such calls are under way, 4 wait"

            async def those_that_wait() -> list[LevelLine]:
                async with running.database.reading() as connection:
                    told = await read_level_lines(connection, running.scope, LevelQuery(view="provision"))
                return [line for line in told if line.told_reason.endswith(f" waits: {waits}")]

            waiting = await until(those_that_wait, "four that wait", accept=lambda found: len(found) == 4)
            for options in ((), ("--full",)):
                shown = await levelog.ends("why", waiting[0].parent, "--view", "provision", *options)
                assert f": pending: {waits}" in shown.stdout, shown
            for ended in range(1, 7):
                provisioning.let_out()
                rotating.let_out()
                await provisioning.come_to(running=min(2, 6 - ended), came=min(6, 2 + ended))
                await rotating.come_to(running=min(1, 6 - ended), came=min(6, 1 + ended))
            running.check()
    assert (provisioning.most, rotating.most) == (2, 1)
