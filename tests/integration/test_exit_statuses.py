"""The exit statuses that `docs/configuration.md` lists, each by a command that ends so."""

import os
import subprocess
import sys
from pathlib import Path

from rigs.levelog import WEBS, Levelog
from rigs.ports import free_port

NARROWER = (WEBS / "crd.yaml").read_text().replace("type: integer", "type: string")


async def test_each_status_is_that_of_a_command(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    assert (await levelog.ends("migrate")).status == 0
    assert (await levelog.ends("levels", "--no-such-option")).status == 2
    assert "holds no application yet" in await levelog.refused("levels", status=2)
    (tmp_path / "earlier.yaml").write_text(NARROWER)
    assert (await levelog.ends("crd", WEBS / "webs.py", "--against", tmp_path / "earlier.yaml")).status == 1
    away = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    await levelog.refused("levels", "--database-url", away, status=1)


def test_a_command_whose_reader_is_gone_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [Path(sys.executable).with_name("levelog"), "crd", WEBS / "webs.py"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "")


async def test_a_signal_ends_a_command_at_once_while_it_prints_definitions(tmp_path: Path) -> None:
    levelog = Levelog(tmp_path)
    (tmp_path / "long.py").write_text("print('begun', flush=True)\nwhile True:\n    pass\n")
    with levelog.start("crd", "long.py") as running:
        await running.says("begun")
        assert await running.stops(seconds=10) == 0
