"""What takes long shows how far it is: on a terminal by bars on stderr, elsewhere by lines of the log."""

import asyncio
import sys
from pathlib import Path

import yaml

from levelog_processors.headway import Headway
from levelog_processors.processor import Processor
from levelog_sandbox import Sandbox
from rigs.levelog import WEBS, WEBS_FILE, Levelog, define_webs
from rigs.nats import NatsServer
from rigs.preloaded import PROGRAM
from rigs.processing import Processing
from rigs.tty import on_terminal
from rigs.versions import Versions
from rigs.waiting import until
from rigs.webs import web

BAR = "━"
MORE = ("desired=web.spec.replicas", "desired=web.spec.replicas + 1")
IDLE = 120
"""Webs that want no pods."""


async def is_over(processor: Processor) -> bool:
    """Whether nothing holds its decisions up."""
    return processor.headway == []


async def test_a_processor_tells_how_far_it_has_folded_what_was_there_before(
    nats_server: NatsServer, database_url: str
) -> None:
    async with Processing(nats_server.url, database_url) as stack:
        webs = [web(f"w{n}", n + 1, replicas=0) for n in range(2_500)]
        await asyncio.gather(*(stack.tell(*webs[start::50]) for start in range(50)))
        last = await stack.listed(version=10_000)
        seen: list[Headway] = []
        processor = stack.start()
        processor.pulse.on_turn = lambda _: seen.extend(processor.headway)
        await stack.folded(last)
        assert seen
        assert {(each.what, each.unit, each.total) for each in seen} == {("the log", "records", last)}
        done = [each.done for each in seen]  # a turn that comes to nothing tells the same again
        assert done == sorted(done)
        assert done[0] < last // 2 < done[-1]
        await until(lambda: is_over(processor), "the end of it")


async def test_a_processor_tells_how_far_it_is_with_changed_code_also_after_a_restart(
    nats_server: NatsServer, database_url: str, tmp_path: Path
) -> None:
    versions = Versions(tmp_path)
    async with Processing(nats_server.url, database_url, [versions.load()]) as stack:
        stack.start()
        await stack.folded(await stack.listed(*(web(f"w{n}", n + 1, replicas=0) for n in range(IDLE)), version=1_000))
    seen: list[Headway] = []
    async with Processing(nats_server.url, database_url, [versions.load(MORE)]) as stack:
        first = stack.start("first", backfill_rate=100)

        async def is_begun() -> bool:
            seen[:] = [each for each in first.headway if each.unit == "objects"]
            return bool(seen) and seen[0].done > 0

        await until(is_begun, "a page of objects")
        await stack.stop("first")
        [before] = seen
        assert (before.what, before.unit, before.total) == ("view webs/counted", "objects", IDLE)
        second = stack.start("second", backfill_rate=100)

        async def goes_on() -> bool:
            seen[:] = [each for each in second.headway if each.unit == "objects"]
            return bool(seen)

        await until(goes_on, "another page of objects")
        assert seen[0].done >= before.done
        await stack.folded(0)
        await until(lambda: is_over(second), "the end of it")


async def test_on_a_terminal_changed_code_shows_a_bar_and_in_a_pipe_a_line(tmp_path: Path) -> None:
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        shop = yaml.safe_load((WEBS / "shop.yaml").read_text())
        for n in range(IDLE):
            sandbox.user.create(
                {**shop, "metadata": {"name": f"w{n}", "namespace": "default"}, "spec": {**shop["spec"], "replicas": 0}}
            )
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        operator = tmp_path / "webs.py"
        operator.write_text(WEBS_FILE.read_text())

        async def are_in_sync() -> bool:
            return (await levelog.ends("levels", "--output", "name")).stdout.count("\n") == IDLE

        running = levelog.start("run", operator)
        await until(are_in_sync, f"{IDLE} levels")
        assert await running.stops() == 0
        operator.write_text(operator.read_text().replace("wanted = {", "wanted: dict[str, str] = {"))
        command = [str(PROGRAM), "run", str(operator), "--backfill-rate", "40"]
        async with on_terminal(command, tmp_path, levelog.env) as tty:
            await tty.says("recomputes view webs/pods")
            assert BAR in await tty.says(f"/{IDLE}")
            await tty.says("has recomputed view webs/pods")  # the lines are folded to the terminal
            tty.types("\x03")
            assert await tty.ends() == 0
        operator.write_text(operator.read_text().replace("wanted: dict[str, str] = {", "wanted = {"))
        piped = levelog.start("run", operator, "--backfill-rate", "1000")
        await piped.says(f"{IDLE} objects by this processor")
        assert await piped.stops() == 0
        assert BAR not in piped.log.read_text()


async def test_what_keeps_the_event_loop_busy_shows_a_bar_too_and_takes_it_away(tmp_path: Path) -> None:
    script = """
import asyncio
from levelog_cli.printing.progress import Bars

async def work():
    with Bars().meanwhile("migrate") as tell:
        tell(1, 3)
        input()
    print("is done", flush=True)

asyncio.run(work())
"""
    async with on_terminal([sys.executable, "-c", script], tmp_path, {"COLUMNS": "80"}) as tty:
        await tty.says("migrate")
        assert BAR in await tty.says("1/3")
        tty.types("\n")
        rest = await tty.says("is done")
        assert "migrate" not in rest.rpartition("\x1b[2K")[2], "the last line is cleared"
        assert await tty.ends() == 0
