"""Each process is killed at each of its seams while handlers of edges are called: all edges are handled, under one key.

Objects are made, changed and deleted, a group of them for each seam. What is called is told by a file that handlers
write to, what is written by the request log of the sandbox.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.crashpoints import SEAMS, CrashPoint
from rigs.deployment import Deployment
from rigs.levelog import define_webs
from rigs.nats import NatsServer
from rigs.waiting import until

SOURCE: Final = """
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

from levelog import Intent, Operator, Resource, Struct, patch_status

op = Operator("sites")
TOLD = Path(__file__).with_name("told.jsonl")


class WebSpec(Struct):
    replicas: int = 1
    image: str = ""


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


def tell(handler: str, reason: str, web: Web, key: str) -> None:
    line = json.dumps([handler, reason, web.metadata.name, web.spec.replicas, key]) + "\\n"
    file = os.open(TOLD, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())  # at once: a killed process leaves no half of it
    os.close(file)


@op.on.create
@op.on.update
@op.on.delete
async def provision(web: Web, reason: str, idempotency_key: str) -> None:
    tell("provision", reason, web, idempotency_key)


@op.on.create(writes={Web: ["patch_status"]})
@op.on.update
async def publish(web: Web, reason: str, idempotency_key: str) -> AsyncIterator[Intent]:
    tell("publish", reason, web, idempotency_key)
    yield patch_status(web, {"replicas": web.spec.replicas})


@op.on.field("spec.replicas")
async def scale(web: Web, reason: str, idempotency_key: str) -> None:
    tell("scale", reason, web, idempotency_key)
"""
STAGES: Final = (("create", 1), ("update", 2), ("delete", 2))
"""What becomes of each object, and how many replicas it has then."""
CALLED: Final = {"create": {"provision", "publish", "scale"}, "delete": {"provision"}}
CALLED["update"] = CALLED["create"]


class Sites:
    """Webs, and what was called for them."""

    def __init__(self, sandbox: Sandbox, deployment: Deployment, told: Path) -> None:
        self.sandbox = sandbox
        self.deployment = deployment
        self._told = told

    def calls(self) -> list[tuple[str, str, str, int, str]]:
        """Handler, reason, name, replicas and key of each call."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def change(self, name: str, stage: str, replicas: int) -> None:
        """As a user does."""
        if stage == "delete":
            self.sandbox.user.delete("webs.example.com", name)
            return
        metadata = {"name": name, "namespace": "default"}
        spec = {"replicas": replicas, "image": "a"}
        web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec}
        self.sandbox.user.apply(web)

    def is_handled(self, names: list[str], stage: str) -> bool:
        """Whether all that has to be was called for this stage of these objects."""
        wanted = {(handler, name) for handler in CALLED[stage] for name in names}
        return wanted <= {(handler, name) for handler, reason, name, _, _ in self.calls() if reason == stage}

    async def passes(self, names: list[str], stage: str, replicas: int, point: CrashPoint) -> bool:
        """Change objects, and start again what was killed at the point meanwhile; whether something was."""
        for name in names:
            self.change(name, stage, replicas)

        async def is_done() -> bool:
            return self.is_handled(names, stage) and await self.deployment.is_quiet()

        async def is_decided() -> bool:
            return point.has_struck or await is_done()

        await until(is_decided, f"a kill, or {stage} of {len(names)} handled", seconds=180, pause=0.1)
        point.disarm()
        return point.has_struck

    async def come_to_rest(self, names: list[str], stage: str) -> None:
        """Wait until all is handled, and written."""

        async def is_done() -> bool:
            self.deployment.check()
            return self.is_handled(names, stage) and await self.deployment.is_quiet()

        await until(is_done, f"{stage} of {len(names)} handled", seconds=240, pause=0.1)


@pytest_asyncio.fixture
async def sites(tmp_path: Path, nats_server: NatsServer, postgres_url: str) -> AsyncIterator[Sites]:
    async with Sandbox() as sandbox:
        await define_webs(sandbox)
        (tmp_path / "sites.py").write_text(SOURCE)
        api = Api(sandbox.url)
        async with Deployment(tmp_path, api, nats_server, postgres_url, operator_file=tmp_path / "sites.py") as found:
            await found.migrate()
            found.start()
            yield Sites(sandbox, found, tmp_path / "told.jsonl")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("objects", [len(SEAMS), pytest.param(1000, marks=pytest.mark.long)])
async def test_invariant_15_each_edge_is_handled_under_one_key_and_written_once_whatever_is_killed(
    sites: Sites, objects: int
) -> None:
    chance = random.Random(objects)
    groups = [[f"w{number}" for number in range(first, objects, len(SEAMS))] for first in range(len(SEAMS))]
    kills: Counter[str] = Counter()
    for stage, replicas in STAGES:
        for seam, names in zip(SEAMS, groups, strict=True):
            point = CrashPoint(sites.deployment, seam, chance.randint(1, 1 + len(names) // 10))
            if await sites.passes(names, stage, replicas, point):
                kills[str(seam)] += 1
                await sites.deployment.end_leases()
                if seam.role == "actuate":
                    await sites.deployment.end_claims_of("actuate")
                sites.deployment.start(seam.role)
            await sites.come_to_rest(names, stage)
        if stage != "delete":
            found = sites.sandbox.user.list("webs.example.com")
            assert not [web for web in found if web["metadata"].keys() & {"annotations", "finalizers"}]
    print(f"{sum(kills.values())} kills at {len(kills)} seams, {len(sites.calls())} calls")
    assert kills.keys() == {str(seam) for seam in SEAMS}

    keys: defaultdict[tuple[str, str, str, int], list[str]] = defaultdict(list)
    for *essence, key in sites.calls():
        keys[tuple(essence)].append(key)  # type: ignore[index]
    wanted = {
        (handler, stage, f"w{number}", replicas)
        for stage, replicas in STAGES
        for handler in CALLED[stage]
        for number in range(objects)
    }
    assert keys.keys() == wanted
    assert [each for each, found in keys.items() if len(set(found)) != 1] == []
    assert sum(len(found) - 1 for found in keys.values()) <= sum(kills.values()) * (1 + objects // len(SEAMS)) * 3
    written = Counter(write.name for write in sites.sandbox.requests.writes(user_agent="levelog"))
    assert set(written.values()) == {2}, "one write for the creation, and one for the change"
    assert len(written) == objects
