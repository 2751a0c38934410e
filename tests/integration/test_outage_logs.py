"""Ingest, processor and actuator as processes, each server away for a while: few log lines, and work goes on."""

import json
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

MOST_LINES: Final = 4
IDLE: Final = {("api", "actuate"), ("api", "process"), ("database", "ingest")}
"""Who does not talk to the server when nothing happens."""


def told(process: Running, after: int) -> list[dict[str, Any]]:
    """Lines since then that are not about a decision or an intent."""
    lines = [json.loads(line) for line in process.log.read_text().splitlines()[after:]]
    return [line for line in lines if not {"object", "intent"} & line.keys()]


@pytest.mark.parametrize("server", ["database", "nats", "api"])
async def test_a_server_that_is_away_is_a_few_lines_of_each_process(
    nats_server: NatsServer, postgres_url: str, tmp_path: Path, server: Literal["database", "nats", "api"]
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
            for part, process in processes.items():
                if (server, part) not in IDLE:
                    await process.says("has been away for 1")
            await doors[server].accept()
            for part, process in processes.items():
                if (server, part) not in IDLE:
                    await process.says("is back after")
            sandbox.user.delete("pods", "shop-1")
            await levelog.in_sync(2)
            for part, process in processes.items():
                lines = told(process, before[part])
                assert len(lines) <= MOST_LINES, "\n".join(f"{line['level']} {line['message']}" for line in lines)
        finally:
            for process in processes.values():
                process.kill()
