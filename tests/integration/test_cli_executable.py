"""Each command as users start it: with nothing loaded but what it loads itself."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rigs.levelog import WEBS, WEBS_FILE
from rigs.nats import NatsServer
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
        (["why", SHOP], 0, "webs/pods"),
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
