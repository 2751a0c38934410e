"""What takes long shows how far it is: on a terminal by bars on stderr, elsewhere by lines of the log."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from levelog_processors import waiting
from levelog_processors.health import WorkProgress
from levelog_processors.processor import Processor
from rigs.nats import NatsServer
from rigs.processing import Processing
from rigs.tty import on_terminal
from rigs.waiting import until
from rigs.webs import web

BAR = "━"
"""Webs that want no pods."""


async def is_over(processor: Processor) -> bool:
    """Whether nothing holds its decisions up."""
    return processor.progress == []


async def test_a_processor_tells_how_far_it_has_folded_what_was_there_before(
    nats_server: NatsServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "AT_ONCE", timedelta(minutes=1))  # the log says where it ends before it is folded
    async with Processing(nats_server.url, database_url) as stack:
        webs = [web(f"w{n}", n + 1, replicas=0) for n in range(2_500)]
        await asyncio.gather(*(stack.tell(*webs[start::50]) for start in range(50)))
        last = await stack.listed(version=10_000)
        seen: list[WorkProgress] = []
        processor = stack.start()
        processor.health.on_turn = lambda _: seen.extend(processor.progress)
        await stack.folded(last)
        assert seen
        assert {(each.what, each.unit, each.total) for each in seen} == {("the log", "records", last)}
        done = [each.done for each in seen]  # a turn that comes to nothing tells the same again
        assert done == sorted(done)
        assert done[0] < last // 2 < done[-1]
        await until(lambda: is_over(processor), "the end of it")


async def test_what_keeps_the_event_loop_busy_shows_a_bar_too_and_takes_it_away(tmp_path: Path) -> None:
    script = """
import asyncio
from levelog_cli.printing.bars import Bars

async def work():
    with Bars().meanwhile("migrate") as tell:
        tell(1, 3)
        input()
    print("is done", flush=True)

asyncio.run(work())
"""
    (tmp_path / "works.py").write_text(script)
    async with on_terminal([sys.executable, "-m", "works"], tmp_path, {"COLUMNS": "80"}) as tty:
        await tty.says("migrate")
        assert BAR in await tty.says("1/3")
        tty.types("\n")
        rest = await tty.says("is done")
        assert "migrate" not in rest.rpartition("\x1b[2K")[2], "the last line is cleared"
        assert await tty.ends() == 0
