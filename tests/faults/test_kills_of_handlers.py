"""Each process is killed at each of its seams while edge handlers are called: all edges are handled, under one key.

Objects are made, changed and deleted, a group of them for each seam. What is called is told by a file that handlers
write to, what is written by the answers of the API server at the actuator's proxy.
"""

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from levelog_sandbox import Sandbox
from rigs.api import Api
from rigs.clusterclient import ClusterClient
from rigs.controlplane import ControlPlane
from rigs.crashpoints import SEAMS, CrashPoint, Moment, Seam, SideEffect
from rigs.deployment import Deployment
from rigs.fixtures import KUBE_APISERVER, SANDBOX
from rigs.levelog import WEBS
from rigs.nats import NatsServer
from rigs.script import written
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
COLLECTION: Final = "/apis/example.com/v1/namespaces/default/webs"
KUBE_OBJECTS: Final = int(os.environ.get("LEVELOG_TEST_OBJECTS", "50"))
"""On kube-apiserver; 1,000 take three minutes."""
UNSTORED: Final = Seam("actuate", Moment.BEFORE, SideEffect.COMMIT)
"""Where a call has been made, and nobody knows what came of it."""
STAGES: Final = (("create", 1), ("update", 2), ("delete", 2))
"""What becomes of each object, and how many replicas it has then."""
CALLED: Final = {"create": {"provision", "publish", "scale"}, "delete": {"provision"}}
CALLED["update"] = CALLED["create"]


class Sites:
    """Webs, and what was called for them."""

    def __init__(self, client: ClusterClient, deployment: Deployment, told: Path) -> None:
        self.deployment = deployment
        self.own: set[str] = set()
        """Versions that users made."""
        self._client = client
        self._told = told

    def calls(self) -> list[tuple[str, str, str, int, str]]:
        """Handler, reason, name, replicas and key of each call."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    async def change(self, name: str, stage: str, replicas: int) -> None:
        """As a user does."""
        if stage == "delete":
            assert (await self._client.delete(f"{COLLECTION}/{name}")).code == 200
            return
        spec = {"replicas": replicas, "image": "a"}
        web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name}, "spec": spec}
        answer = await self._client.apply(f"{COLLECTION}/{name}", web)
        assert answer.code in (200, 201), answer.body
        self.own.add(answer.version)

    async def found(self) -> list[dict[str, Any]]:
        """The objects that there are."""
        return list((await self._client.get(COLLECTION)).body["items"])

    def calls_unstored(self, names: list[str], stage: str, least: int) -> Callable[[], bool]:
        """Whether calls were made since this was last asked, `least` of them in all, for this stage of these objects.

        Asked at each commit, it tells that what came of a call is stored no earlier than by this one.
        """
        stored = 0

        def has_called() -> bool:
            nonlocal stored
            before, stored = stored, sum(reason == stage and name in names for _, reason, name, _, _ in self.calls())
            return before < stored >= least

        return has_called

    def is_handled(self, names: list[str], stage: str) -> bool:
        """Whether all that has to be was called for this stage of these objects."""
        wanted = {(handler, name) for handler in CALLED[stage] for name in names}
        return wanted <= {(handler, name) for handler, reason, name, _, _ in self.calls() if reason == stage}

    async def passes(self, names: list[str], stage: str, replicas: int, point: CrashPoint) -> bool:
        """Change objects, and start again what was killed at the point meanwhile; whether something was."""
        for name in names:
            await self.change(name, stage, replicas)

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


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> ControlPlane | None:
    """None for the sandbox."""
    return request.getfixturevalue("private_control_plane") if request.param == KUBE_APISERVER else None


@pytest_asyncio.fixture
async def sites(
    tmp_path: Path, cluster: ControlPlane | None, nats_server: NatsServer, postgres_url: str
) -> AsyncIterator[Sites]:
    async with AsyncExitStack() as stack:
        api = Api((await stack.enter_async_context(Sandbox())).url) if cluster is None else cluster.admin
        client = await stack.enter_async_context(ClusterClient(api.url, ca_file=api.ca_file, token=api.token))
        await api.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load((WEBS / "crd.yaml").read_text())
        )
        await until(lambda: api.is_ok(COLLECTION), "the API of Webs")
        (tmp_path / "sites.py").write_text(SOURCE)
        deployment = Deployment(tmp_path, api, nats_server, postgres_url, operator_file=tmp_path / "sites.py")
        found = await stack.enter_async_context(deployment)
        await found.migrate()
        found.start()
        yield Sites(client, found, tmp_path / "told.jsonl")


@pytest.mark.long  # e2e/test_edge_handlers.py has one kill, test_crash_points.py each seam
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("cluster", "objects"),
    [(SANDBOX, 200), (KUBE_APISERVER, KUBE_OBJECTS)],
    indirect=["cluster"],
)
async def test_invariant_15_each_edge_is_handled_under_one_key_and_written_once_whatever_is_killed(
    sites: Sites, record_testsuite_property: Callable[[str, object], None], objects: int
) -> None:
    chance = random.Random(objects)
    groups = [[f"w{number}" for number in range(first, objects, len(SEAMS))] for first in range(len(SEAMS))]
    kills: Counter[str] = Counter()
    for stage, replicas in STAGES:
        for seam, names in zip(SEAMS, groups, strict=True):
            if seam == UNSTORED:  # to be killed while calls are claimed leaves none to be made again
                unstored = sites.calls_unstored(names, stage, chance.randint(1, len(names)))
                point = CrashPoint(sites.deployment, seam, 1, when=unstored)
            else:
                point = CrashPoint(sites.deployment, seam, chance.randint(1, 1 + len(names) // 10))
            if await sites.passes(names, stage, replicas, point):
                kills[str(seam)] += 1
                await sites.deployment.end_leases()
                if seam.role == "actuate":
                    await sites.deployment.api["actuate"].until_idle()
                    await sites.deployment.end_claims_of("actuate")
                sites.deployment.start(seam.role)
            await sites.come_to_rest(names, stage)
        if stage != "delete":
            found = await sites.found()
            assert len(found) == objects
            assert not [web for web in found if web["metadata"].keys() & {"annotations", "finalizers"}]
    assert {str(seam) for seam in SEAMS} - kills.keys() == set(), "killed everywhere"

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
    assert sum(len(found) > 1 for found in keys.values()) >= len(STAGES), "else nothing tells an attempt from a call"
    assert sum(len(found) - 1 for found in keys.values()) <= sum(kills.values()) * (1 + objects // len(SEAMS)) * 3
    writes = written([sites.deployment], sites.own)
    twice = {("patch", f"w{number}"): 2 for number in range(objects)}
    assert writes == twice, "one write for the creation, and one for the change"
    figures = {
        "objects": objects,
        "kills": sum(kills.values()),
        "edges": len(keys),
        "calls": len(sites.calls()),
        "keys": len({key for found in keys.values() for key in found}),
        "writes": writes.total(),
    }
    for what, number in figures.items():
        record_testsuite_property(what, number)
        print(f"{what}: {number}")
