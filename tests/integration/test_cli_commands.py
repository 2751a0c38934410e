"""What holds for each command: it loads what it needs, ends with a status that is documented, and shows no secret."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rigs.levelog import WEBS, WEBS_FILE, Levelog
from rigs.nats import NatsServer
from rigs.natsusers import new_seed
from rigs.ports import free_port
from rigs.recorded import Recorded, record_webs

long, param = pytest.mark.long, pytest.param
SHOP = "webs.example.com/default/shop"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Recorded]:
    async with NatsServer() as server:
        yield await record_webs(server.url, tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        param(["why", SHOP], 0, "webs/pods", marks=long),
        (["replay", str(WEBS_FILE)], 0, "SAME"),
        (["run", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none"),
        param(["migrate"], 0, "is at revision", marks=long),
        param(["levels", "shop"], 0, "webs/pods", marks=long),
        param(["retry", "shop"], 2, "shop", marks=long),
        param(["history", SHOP], 0, "spec.replicas", marks=long),
        param(["writers", SHOP], 0, "WRITER", marks=long),
        param(["export", "all.jsonl"], 0, "5 decisions", marks=long),
        param(["doctor", str(WEBS_FILE), "--kubeconfig", "none"], 1, "none", marks=long),
        param(["crd", str(WEBS_FILE)], 0, "CustomResourceDefinition", marks=long),
        param(["import-crd", str(WEBS / "crd.yaml")], 0, "class Web(", marks=long),
        param(["rbac", str(WEBS_FILE)], 0, "ClusterRole", marks=long),
        param(["ingest", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none", marks=long),
        param(["actuate", str(WEBS_FILE), "--kubeconfig", "none"], 2, "none", marks=long),
        param(["process", "none.py"], 2, "none.py does not exist", marks=long),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
async def test_it_loads_what_it_needs(recorded: Recorded, arguments: list[str | Path], status: int, words: str) -> None:
    ended = await recorded.levelog.ends(*arguments, env=recorded.env, is_preloaded=False)
    assert (ended.status, words in ended.stdout + ended.stderr) == (status, True), ended
    assert "Traceback" not in ended.stderr, ended


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
        assert await running.stops() == 0


CANARY = "canary5ecret"
COMMANDS = ("run", "ingest", "process", "actuate", "doctor", "migrate", "levels", "history")


@pytest.mark.parametrize("secret", [f"p@{CANARY}", f"a,/{CANARY}?#"])
async def test_no_command_shows_a_secret_of_a_url_or_a_file(tmp_path: Path, secret: str) -> None:
    levelog = Levelog(tmp_path)
    seed = tmp_path / "seed.nk"
    seed.write_text(new_seed() + CANARY)
    env = {
        "LEVELOG_NATS_URL": f"nats://me:{secret}@127.0.0.1:{free_port()}",
        "LEVELOG_DATABASE_URL": f"postgresql://me:{secret}@127.0.0.1:{free_port()}/x",
        "LEVELOG_LOG_LEVEL": "debug",
        "LEVELOG_DEBUG": "1",
    }
    for command in COMMANDS:
        file = [WEBS_FILE] if command in {"run", "ingest", "process", "actuate", "doctor"} else []
        named = ["webs.example.com/default/shop"] if command == "history" else []
        ended = await levelog.ends(command, *file, *named, env=env)
        assert ended.status != 0, (command, ended)
        assert CANARY not in ended.stdout + ended.stderr, (command, ended)
    ended = await levelog.ends(
        "doctor", "--nats-nkey-file", seed, env={**env, "LEVELOG_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    )
    assert f"{seed} (--nats-nkey-file) cannot be used" in ended.stdout, ended
    assert seed.read_text()[:10] not in ended.stdout + ended.stderr
    assert CANARY not in ended.stdout + ended.stderr
