"""`levelog wakes` as people run it: on files, and as a webhook."""

import asyncio
import json
from pathlib import Path

import aiohttp
from typer.testing import CliRunner

from levelog_cli.main import app
from levelog_wakes.audit import AuditReader, Remarks
from levelog_wakes.webhook import heard
from rigs.auditlogs import PlantedLog


def beating() -> list[str]:
    log = PlantedLog()
    log.exists("shops.example.com", "s", status={})
    for beat in range(20):
        log.get("op", 15.0 * beat, "shops.example.com", "s")
    return log.lines()


def test_a_file_gives_a_table_or_json(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text("\n".join(beating()))
    shown = CliRunner().invoke(app, ["wakes", str(file)], env={"COLUMNS": "200"})
    assert "15 s ± 0.00 s" in shown.output, shown.output
    assert "none of its wakes changed anything" in shown.output
    told = json.loads(CliRunner().invoke(app, ["wakes", str(file), "--json"]).output)
    assert [each["wakes"] for each in told["woken"]] == [20]


def test_neither_file_nor_address_is_misuse() -> None:
    assert CliRunner().invoke(app, ["wakes"]).exit_code == 2
    assert CliRunner().invoke(app, ["wakes", "/nowhere/audit.log"]).exit_code == 2


async def test_a_webhook_takes_lists_until_it_is_stopped() -> None:
    reader, address = AuditReader(Remarks()), asyncio.get_running_loop().create_future()
    listening = asyncio.create_task(heard("127.0.0.1", 0, reader, told=address.set_result))
    events = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [*map(json.loads, beating())]}
    async with aiohttp.ClientSession() as session, session.post(await address, json=events) as answer:
        assert answer.status == 200
    listening.cancel()
    found = await listening
    assert [each.wakes for each in found.woken] == [20]
