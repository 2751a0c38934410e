"""Ingest, processor and actuator as processes, each server away for a while: few log lines, then work goes on soon."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest
import yaml

from levelog_sandbox import Sandbox
from rigs.kubeconfig import write_kubeconfig
from rigs.levelog import WEBS, WEBS_FILE, Levelog, Running, define_webs
from rigs.nats import NatsServer
from rigs.tcpproxy import TcpProxy
from rigs.waiting import until

MOST_LINES: Final = 4
IDLE: Final = {("api", "actuate"), ("api", "process"), ("database", "ingest")}
"""Who does not talk to the server when nothing happens."""
AWAY_SECONDS: Final = 10
"""Until the first reminder."""
MOST_SECONDS: Final = 15.0
"""Half of what a wait may come to that is doubled each time."""


def told(process: Running, after: int) -> list[dict[str, Any]]:
    """Lines since then that are not about a decision or an intent."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines()[after:]]
    return [line for line in lines if not {"object", "intent"} & line.keys()]


@pytest.mark.long  # until the first reminder; actuator/test_outages.py has one process, unit/test_absence.py the lines
@pytest.mark.parametrize("server", ["database", "nats", "api"])
async def test_a_server_that_is_away_is_a_few_lines_of_each_process_and_work_goes_on_soon_after(
    nats_server: NatsServer,
    postgres_url: str,
    tmp_path: Path,
    server: Literal["database", "nats", "api"],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(pods_run=True))
        await define_webs(sandbox)
        sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        urls = {"database": postgres_url, "nats": nats_server.url, "api": sandbox.url}
        ports = {name: urlsplit(url).port or 5432 for name, url in urls.items()}
        doors = {name: await stack.enter_async_context(TcpProxy(port)) for name, port in ports.items()}
        through = {name: door.url(urls[name]) for name, door in doors.items()}
        config = write_kubeconfig(tmp_path / "kubeconfig", url=through["api"], user="levelog", token="none")
        levelog = Levelog(tmp_path, config)
        levelog.env |= {"LEVELOG_NATS_URL": through["nats"], "LEVELOG_DATABASE_URL": through["database"]}
        assert (await levelog.ends("migrate")).status == 0
        processes = {part: levelog.start(part, WEBS_FILE) for part in ("ingest", "process", "actuate")}
        try:
            await levelog.in_sync()
            before = {part: len(process.log.read_text().splitlines()) for part, process in processes.items()}
            doors[server].refuse()
            doors[server].cut()
            sandbox.user.delete("pods", "shop-1")
            for part, process in processes.items():
                if (server, part) not in IDLE:
                    await process.says(f"has been away for {AWAY_SECONDS // 10}")
            for part, process in processes.items():
                said = process.log.read_text().splitlines()[before[part] :]
                assert len(said) <= MOST_LINES, "\n".join(said)
            await doors[server].accept()
            loop = asyncio.get_running_loop()
            back_at = loop.time()
            await until(
                lambda: len(sandbox.user.list("pods")) == 3, "the pod that was deleted meanwhile", seconds=MOST_SECONDS
            )
            took = f"seconds from {server} being back after {AWAY_SECONDS} s to the pod that was missing"
            print(f"{took}: {loop.time() - back_at:.1f}")
            record_testsuite_property(took, round(loop.time() - back_at, 1))
            for part, process in processes.items():
                if (server, part) not in IDLE:
                    await process.says("is back after")
            await levelog.in_sync(2)
            for part, process in processes.items():
                lines = told(process, before[part])
                assert len(lines) <= MOST_LINES, "\n".join(f"{line['level']} {line['message']}" for line in lines)
        finally:
            for process in processes.values():
                process.kill()
