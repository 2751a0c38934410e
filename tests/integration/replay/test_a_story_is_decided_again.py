"""A story with faults, recorded by several processes on PostgreSQL, and decided again by `levelog replay`."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database
from levelog_store.tables import decisions, leases, levels, metadata
from rigs.levelog import WEBS_FILE, Levelog, Running, define_webs
from rigs.nats import NatsServer
from rigs.waiting import until

NAMES = [f"shop{number}" for number in range(6)]
OWN = {"actuators", "leases", "processors"}
"""Tables of processes that live, which they renew while nothing happens."""

TELLTALE = """
import atexit, sys
KINDS = ("kubernetes_asyncio", "levelog_kube", "levelog_actuator", "levelog_ingest", "levelog_sandbox")
atexit.register(lambda: print("loaded:", sorted(m for m in sys.modules if m.startswith(KINDS)), file=sys.stderr))
"""


def web(name: str, replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Web",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": "nginx", "replicas": replicas},
    }


async def dump(url: str) -> dict[str, list[Any]]:
    async with await Database.open(url, read_only=True) as database, database.reading() as connection:
        found: dict[str, list[Any]] = {}
        for name, table in metadata.tables.items():
            if name not in OWN:
                found[name] = sorted(map(repr, await connection.execute(select(table))))
        return found


class Story:
    """An application whose processes are one ingest, four processors and an actuator."""

    def __init__(self, sandbox: Sandbox, levelog: Levelog, env: Mapping[str, str], database: Database) -> None:
        self.database = database
        self.sandbox = sandbox
        self.levelog = levelog
        self.env = env
        self.running: dict[str, Running] = {}

    def start(self, name: str) -> None:
        command = name.rstrip("0123456789")
        self.running[name] = self.levelog.start(command, WEBS_FILE, env=self.env)

    async def stop(self, name: str) -> None:
        assert await self.running.pop(name).stops() == 0

    async def shared_by(self, number: int) -> None:
        """Wait until so many processors have their share of the partitions."""

        async def is_shared() -> bool:
            async with self.database.reading() as connection:
                owners = list((await connection.execute(select(leases.c.owner))).scalars())
            return "" not in owners and len(set(owners)) == number

        await until(is_shared, f"{number} processors with partitions", seconds=120)

    async def replay(self, file: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
        ended = await self.levelog.ends(
            "replay", file, "--json", *arguments, env=self.env, seconds=120, is_preloaded=False
        )
        assert ended.stdout, ended.stderr
        return ended.status, json.loads(ended.stdout), ended.stderr

    async def exported(self, name: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        """Write a bundle; returns how many records it has, and its decisions."""
        ended = await self.levelog.ends("export", name, *arguments, env=self.env)
        assert ended.status == 0, ended
        lines = list(map(json.loads, (self.levelog.folder / name).read_text().splitlines()))
        return lines[-1]["records"], [line for line in lines if line["line"] == "decision"]

    async def has(self, wanted: Mapping[str, int]) -> None:
        """Wait until each Web has so many pods, and its level says so."""

        async def is_there() -> bool:
            for process in self.running.values():
                process.check()
            pods = [pod["metadata"]["name"] for pod in self.sandbox.user.list("pods")]
            if any(sum(p.startswith(f"{name}-") for p in pods) != count for name, count in wanted.items()):
                return False
            async with self.database.reading() as connection:
                found = list((await connection.execute(select(levels.c.status))).scalars())
            return found == ["in_sync"] * len(wanted)

        await until(is_there, f"pods {dict(wanted)}", seconds=120)


@asynccontextmanager
async def story(folder: Path, nats: NatsServer, database_url: str) -> AsyncGenerator[Story]:
    broken: dict[str, int] = {}

    def refuses(verb: str, resource: str, namespace: str, name: str) -> int:
        if resource == "pods" and broken.get(name, 0) > 0 and verb in ("create", "patch", "apply"):
            broken[name] -= 1
            return 422
        return 0

    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(refuses=refuses))
        await define_webs(sandbox)
        levelog = Levelog(folder, sandbox.kubeconfig(folder / "kubeconfig"))
        env = {"LEVELOG_NATS_URL": nats.url, "LEVELOG_DATABASE_URL": database_url}
        assert (await levelog.ends("migrate", env=env)).status == 0
        database = await stack.enter_async_context(await Database.open(database_url, read_only=True))
        told = Story(sandbox, levelog, env, database)
        try:
            for name in ("ingest", "process1", "process2", "process3", "process4", "actuate"):
                told.start(name)
            await told.shared_by(4)
            for name in NAMES:  # deployed
                sandbox.user.apply(web(name, 3))
            counts = dict.fromkeys(NAMES, 3)
            await told.has(counts)
            for replicas in (2, 3):
                sandbox.user.apply(web("shop0", replicas))
            sandbox.user.delete("pods", "shop1-2", namespace="default")
            broken["shop2-3"] = 1
            sandbox.user.apply(web("shop2", 4))
            await until(lambda: _true(broken["shop2-3"] == 0), "a write that was refused", seconds=120)
            sandbox.user.apply(web("shop2", 5))
            await told.has(counts | {"shop2": 5})
            await told.stop("process2")
            sandbox.user.apply(web("shop3", 1))
            told.start("process5")
            await told.shared_by(4)
            await told.has(counts | {"shop2": 5, "shop3": 1})
            await told.stop("ingest")  # what goes meanwhile, the next list tells
            sandbox.user.delete("webs.example.com", "shop4", namespace="default")
            sandbox.user.delete("pods", "shop5-0", namespace="default")
            told.start("ingest")
            await told.has({n: c for n, c in (counts | {"shop2": 5, "shop3": 1}).items() if n != "shop4"})
            yield told
        finally:
            for process in told.running.values():
                process.kill()


async def _true(value: bool) -> bool:
    return value


async def test_invariant_12_what_four_processors_decided_on_postgresql_is_decided_again_just_so(
    tmp_path: Path, nats_server: NatsServer, postgres_url: str
) -> None:
    async with story(tmp_path, nats_server, postgres_url) as told:
        for name in [name for name in told.running if name.startswith("process")]:
            await told.stop(name)  # which writes to the tables what is folded last
        before = await dump(postgres_url)
        telltale = tmp_path / "telltale.py"
        telltale.write_text(WEBS_FILE.read_text() + TELLTALE)
        status, found, said = await told.replay(telltale)
        assert (status, found["is_same"], found["first"]) == (0, True, None)
        tally = found["views"]["webs/pods"]
        async with told.database.reading() as connection:
            called = (await connection.execute(select(decisions.c.ordinal).where(decisions.c.is_called))).all()
        assert tally["same"] == len(called) > 15
        assert (tally["changed"], tally["skipped"], found["obstacles"]) == (0, 0, {})
        assert said.splitlines()[-1] == "loaded: []", "what could write is not in the process"
        assert await dump(postgres_url) == before
        await bundles_miss_nothing_that_begin_later(told, tally["same"])


async def bundles_miss_nothing_that_begin_later(told: Story, total: int) -> None:
    """They hold fewer records, and what was decided since is decided again."""
    whole, decisions = await told.exported("whole.jsonl")
    assert len(decisions) == total
    for number in (total * 3 // 4, total - 1):
        start, name = max(decisions[number]["basis"]["folded"]), f"{number}.jsonl"
        records, since = await told.exported(name, "--from", str(start))
        assert (records < whole, 0 < len(since) < total) == (True, True)
        status, found, _ = await told.replay(WEBS_FILE, "--bundle", name)
        assert (status, found["views"]["webs/pods"]["same"], found["obstacles"]) == (0, len(since), {})
