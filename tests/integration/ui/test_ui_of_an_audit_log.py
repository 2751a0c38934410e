"""`levelog ui --audit`: the page says what `levelog wakes` says, alone or beside the pages of a bundle."""

import re
from html import unescape
from pathlib import Path

import aiohttp
import pytest

from rigs.auditlogs import ready_sets
from rigs.levelog import Levelog, Running
from rigs.preloaded import PROGRAM

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize("level", ["RequestResponse", "Metadata"])
async def test_the_page_says_what_the_command_says(tmp_path: Path, level: str) -> None:
    levelog, log = Levelog(tmp_path), ready_sets(level)
    file, bundle = tmp_path / "audit.log", tmp_path / "shop.jsonl"
    file.write_text("\n".join(log.lines()).replace("kubelet/v1", f"{HOSTILE}/v1"))
    log.write_bundle(bundle)
    given = ["--bundle", str(bundle)] if level == "Metadata" else []
    printed = (await levelog.ends("wakes", file, *given, env={"COLUMNS": "400"})).stdout
    argv: list[str | Path] = [PROGRAM, "ui", "--audit", file, *given, "--address", "127.0.0.1:0"]
    running = Running(argv, tmp_path / "ui.log", env=levelog.env, folder=tmp_path)
    try:
        url = (await running.says("pages of ")).rpartition(" ")[2]
        async with aiohttp.ClientSession() as session:
            async with session.get(url) as root:
                assert root.url.path == ("/levels" if given else "/wakes")
            async with session.get(f"{url}/wakes") as asked:
                page = await asked.text()
            async with session.get(f"{url}/levels") as levels:
                assert levels.status == (200 if given else 404)
    finally:
        running.stop()
    assert "<script" not in page
    told = " ".join(unescape(re.sub(r"<details>.*?</details>|<[^>]+>", " ", page, flags=re.DOTALL)).split())
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert "waits for status.readyReplicas of the statefulsets.apps that it owns" in told
    shown = [line for line in lines[1:] if line and "), " not in line]
    assert [line for line in shown if line not in told] == []


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    assert "nowhere.log cannot be read" in await levelog.refused("ui", "--audit", "nowhere.log", status=2)
