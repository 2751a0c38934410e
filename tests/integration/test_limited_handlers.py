"""`max_concurrency=` of edge handlers and timers, beside a processor and an actuator."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from levelog import Operator
from levelog_base.wire.objects import Application
from levelog_processors.program import Program
from levelog_sandbox import Sandbox
from levelog_store.look.levelpages import LevelQuery, read_level_lines
from levelog_store.look.overview import LevelLine
from rigs.crowd import Crowd
from rigs.kinds import manifest
from rigs.levelog import Levelog, define_webs
from rigs.nats import NatsServer
from rigs.together import together
from rigs.typed import Web
from rigs.waiting import until


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

    async def are_noted() -> bool:
        return len(noted) == 6

    levelog = Levelog(tmp_path)
    levelog.env |= {"LEVELOG_NATS_URL": nats_server.url, "LEVELOG_DATABASE_URL": database_url, "COLUMNS": "200"}
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        kubeconfig, name = sandbox.kubeconfig(tmp_path / "kubeconfig"), Application("limits")
        async with together(kubeconfig, nats_server.url, database_url, name, Program([op]), [Web]) as running:
            for number in range(6):
                body = manifest("Web", f"web-{number}", image="a")
                sandbox.user.create(body)
            await until(are_noted, "the objects that the handler without a limit was called for")
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
