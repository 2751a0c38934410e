"""Kopf files on a real API server: daemons, starts and all kinds as they run for users, and a large object."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.kopfrivals import DEFINITION, KOPF, Handlers, Side
from rigs.levelog import WEBS, Levelog, Running
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBS_PATH = "/apis/example.com/v1/namespaces/default/webs"
SOURCE = """
import asyncio
import json
from pathlib import Path

from levelog.compat import kopf

TOLD = Path(__file__).with_name("told.jsonl")


def tell(*told):
    with TOLD.open("a") as file:
        file.write(json.dumps(told) + "\\n")


@kopf.index("example.com", "v1", "webs")
def images(spec, name, **_):
    return {spec["image"]: name}


@kopf.daemon("example.com", "v1", "webs", when=lambda spec, **_: spec["image"] != "none", backoff=0.5)
async def follow(stopped, spec, name, retry, images, patch, logger, **_):
    tell("async begins", name, retry)
    if spec["image"] == "broken" and retry == 0:
        raise ValueError("wrong")
    while not stopped:
        if spec["replicas"] == 0:
            patch.status["phase"] = "followed"
            tell("async returns", name)
            return {"image": spec["image"]}
        tell("async step", name, spec["replicas"], sorted(images.get(spec["image"], [])))
        await stopped.wait(0.2)
    tell("async ends", name, stopped.is_set(), str(stopped.reason))


@kopf.daemon("example.com", "v1", "webs", labels={"thread": kopf.PRESENT}, cancellation_timeout=3, initial_delay=0.1)
def watch(stopped, body, name, **_):
    while not stopped.wait(0.2):
        tell("thread step", name, body["kind"], body.spec["replicas"])
    tell("thread ends", name, stopped.reason)


@kopf.on.event("example.com", "v1", "webs")
def seen(type, name, **_):
    tell("event", name, type)


@kopf.on.resume("example.com", "v1", "webs")
@kopf.on.create("example.com", "v1", "webs")
async def known(name, reason, **_):
    tell(reason, name)
"""


class Followed:
    """What the handlers of a folder have told, and the Webs that they are called for."""

    def __init__(self, folder: Path, api: Api) -> None:
        self._told = folder / "told.jsonl"
        self._api = api

    async def make(self, name: str, *, image: str = "nginx", labels: dict[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": labels or {}}
        spec = {"image": image, "replicas": 1}
        made = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec}
        await self._api.apply(WEBS_PATH, made)

    async def change(self, name: str, **spec: Any) -> None:
        await self._api.patch(f"{WEBS_PATH}/{name}", {"spec": spec})

    async def remove(self, name: str) -> None:
        await self._api.request("DELETE", f"{WEBS_PATH}/{name}")

    def told(self, *begin: object) -> list[list[Any]]:
        """What was told that begins so."""
        lines = self._told.read_text().splitlines() if self._told.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("]")]
        return [each for each in found if each[: len(begin)] == list(begin)]

    async def tells(self, *begin: object, count: int = 1) -> list[list[Any]]:
        await until(lambda: len(self.told(*begin)) >= count, f"{count} times {begin}")
        return self.told(*begin)


@asynccontextmanager
async def running(levelog: Levelog) -> AsyncGenerator[Running]:
    with levelog.start("run", "followers.py") as process:
        yield process
        assert await process.stops() == 0


@pytest.mark.long
async def test_daemons_of_a_kopf_file_follow_their_objects_and_a_start_resumes_what_is_there(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "followers.py").write_text(SOURCE)
    levelog = Levelog(tmp_path, private_control_plane.kubeconfig)
    api = private_control_plane.admin
    definition = yaml.safe_load((WEBS / "crd.yaml").read_text())
    [version] = definition["spec"]["versions"]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = anything
    await api.create(DEFINITIONS, definition)
    followed = Followed(tmp_path, api)
    await followed.make("first", labels={"thread": "yes"})
    async with running(levelog):
        await followed.tells("async step", "first", 1, ["first"])
        await followed.tells("thread step", "first", "Web", 1)
        await followed.make("second")
        await followed.tells("async step", "first", 1, ["first", "second"])  # the index is as it is
        await followed.change("first", replicas=3)
        await followed.tells("async step", "first", 3)  # and so is the object
        await followed.tells("thread step", "first", "Web", 3)

        await followed.change("second", replicas=0)
        await followed.tells("async returns", "second")
        patched = {"phase": "followed", "follow": {"image": "nginx"}}
        await api.shows(f"{WEBS_PATH}/second", lambda found: found.get("status") == patched)
        await followed.make("third", image="broken")
        await followed.tells("async begins", "third", 1)
        await followed.change("third", image="none")
        await followed.tells("async ends", "third", True, "unwanted")
        await followed.remove("first")
        await followed.tells("async ends", "first", True, "unwanted")
        await followed.tells("thread ends", "first", "unwanted")
        await followed.tells("event", "first", "DELETED")
        assert followed.told("event", "first")[0][2] in (None, "MODIFIED")
        await followed.make("fourth", labels={"thread": "yes"})
        await followed.tells("thread step", "fourth")
    assert followed.told("thread ends", "fourth", "shutdown")
    assert followed.told("create", "fourth")
    assert not followed.told("resume")
    created = followed.told("create")
    begun = len(followed.told("async begins", "second"))
    steps = len(followed.told("thread step", "fourth"))
    async with running(levelog):
        for name in ("second", "third", "fourth"):
            assert len(await followed.tells("resume", name)) == 1
        await followed.tells("thread step", "fourth", count=steps + 2)
    assert len(followed.told("async begins", "second")) == begun  # it has returned
    assert len(followed.told("resume")) == 3
    assert followed.told("create") == created  # what was handled stays handled


EVERY = """
import json
from pathlib import Path

from levelog.compat import kopf


@kopf.on.event(kopf.EVERYTHING)
def seen(resource, name, **_):
    with Path(__file__).with_name("told.jsonl").open("a") as file:
        file.write(json.dumps((resource.name, name)) + "\\n")
"""


async def test_everything_is_what_the_server_serves_and_the_account_may_watch(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "followers.py").write_text(EVERY)
    api = private_control_plane.admin
    await api.create(DEFINITIONS, yaml.safe_load((WEBS / "crd.yaml").read_text()))
    watched = {"configmaps": "", "namespaces": "", "webs": "example.com", "roles": "rbac.authorization.k8s.io"}
    rules = [{"apiGroups": [g], "resources": [r], "verbs": ["list", "watch", "get"]} for r, g in watched.items()]
    levelog = Levelog(tmp_path, await private_control_plane.kubeconfig_for(rules))
    followed = Followed(tmp_path, api)
    async with running(levelog) as process:
        await followed.tells("namespaces", "kube-system")
        await followed.make("first")
        await followed.tells("webs.example.com", "first")
        log = process.log.read_text()
    assert "seen is for EVERYTHING: 4 kinds that are served now" in log
    [left] = [line for line in log.splitlines() if "left out, as this account may not list and watch" in line]
    assert {"secrets,", "pods,", "deployments.apps,", "events,"} <= {*left.split()}


COLLECTION = "/apis/example.com/v1/namespaces/default/shops"
LARGE = """
@kopf.on.create(*SHOPS)
def big(spec, **_):
    tell("big", len(spec["data"]))
    return 1
"""


async def handled(side: Side, cluster: ControlPlane, folder: Path) -> tuple[Any, int]:
    """The status of such an object once it is there or 15 s are over, and how often the handler was called."""
    api = cluster.admin
    await api.create(DEFINITIONS, DEFINITION)
    metadata = {"name": "a", "namespace": "default"}
    shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": metadata, "spec": {"data": "x" * 300_000}}

    async def status() -> Any:
        return (await api.request("GET", f"{COLLECTION}/a"))[1].get("status")

    async def is_calm() -> bool:
        return bool(await status() == {"big": 1}) and bool(handlers.told("made"))

    handlers = Handlers(side, folder, cluster.kubeconfig, LARGE)
    await api.apply(COLLECTION, shop)
    handlers.start()
    try:
        await handlers.tells("big")
        with suppress(TimeoutError):
            await until(is_calm, "the result", seconds=15)
        return await status(), len(handlers.told("big"))
    finally:
        handlers.kill()


async def test_a_large_object_is_handled_once(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    assert await handled("levelog", private_control_plane, tmp_path) == ({"big": 1}, 1)


@pytest.mark.long
@pytest.mark.skipif(not KOPF.exists(), reason="Kopf has an environment of its own, which `make bench` makes")
async def test_kopf_itself_cannot_note_that_it_was_handled(private_control_plane: ControlPlane, tmp_path: Path) -> None:
    status, calls = await handled("Kopf", private_control_plane, tmp_path)
    assert status is None, (status, calls)
