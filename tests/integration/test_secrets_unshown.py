"""Passwords, tokens and seeds of settings are in nothing that a command prints, whatever fails."""

from pathlib import Path

import pytest

from rigs.levelog import WEBS_FILE, Levelog
from rigs.natsusers import new_seed
from rigs.ports import free_port

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
