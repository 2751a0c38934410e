"""Daemons on a real API server: across a kill, with newer code, and until their objects go."""

import json
from pathlib import Path
from typing import Any

import yaml

from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS, Levelog
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBS_PATH = "/apis/example.com/v1/namespaces/default/webs"
SOURCE = """
import json
import os
from datetime import timedelta
from pathlib import Path

from levelog import GiveUp, Operator, Resource, Struct
from levelog.daemons import Daemon

op = Operator("followers")
TOLD = Path(__file__).with_name("told.jsonl")


class WebSpec(Struct):
    image: str
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


class Progress(Struct):
    steps: int
    pid: int


def tell(*told: object) -> None:
    with TOLD.open("a") as file:
        file.write(json.dumps([os.getpid(), *told]) + "\\n")


@op.daemon(when=lambda web: web.spec.image != "none", grace=timedelta(seconds=2), backoff=timedelta(seconds=1))
async def follow(web: Web, daemon: Daemon[Web, Progress]) -> None:
    name = web.metadata.name
    steps = daemon.state.steps if daemon.state else 0
    tell("begins", name, steps)
    if web.spec.image == "refused":
        raise GiveUp("no such image")
    while await daemon.sleep(timedelta(seconds=0.05)):
        if daemon.object.spec.replicas == 0:
            tell("returns", name, steps)
            return
        steps += 1
        await daemon.save(Progress(steps, os.getpid()))
        tell("step", name, steps)
    tell("ends", name, daemon.reason)
"""


def web(name: str, *, image: str = "nginx", replicas: int = 1) -> dict[str, Any]:
    spec = {"image": image, "replicas": replicas}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name}, "spec": spec}


class Followed:
    """What the daemons of a folder have told, and the Webs that they run for."""

    def __init__(self, folder: Path, api: Api) -> None:
        (folder / "followers.py").write_text(SOURCE)
        self._told = folder / "told.jsonl"
        self._api = api

    async def define(self) -> None:
        await self._api.create(DEFINITIONS, yaml.safe_load((WEBS / "crd.yaml").read_text()))

    async def make(self, name: str, **spec: Any) -> None:
        await self._api.apply(WEBS_PATH, web(name, **spec))

    async def change(self, name: str, **spec: Any) -> None:
        await self._api.patch(f"{WEBS_PATH}/{name}", {"spec": spec})

    async def remove(self, name: str) -> None:
        await self._api.request("DELETE", f"{WEBS_PATH}/{name}")

    def lines(self) -> list[Any]:
        """Process, what happened, name of the Web, and more of it."""
        if not self._told.exists():
            return []
        return [json.loads(line) for line in self._told.read_text().splitlines() if line.endswith("]")]

    def of(self, kind: str, name: str) -> list[Any]:
        return [(pid, *more) for pid, told, named, *more in self.lines() if (told, named) == (kind, name)]

    async def tell(self, kind: str, name: str, count: int = 1) -> list[Any]:
        await until(lambda: len(self.of(kind, name)) >= count, f"{count} times {kind} of {name}", seconds=90)
        return self.of(kind, name)


async def test_a_daemon_goes_on_with_its_state_after_a_kill_and_in_newer_code_and_ends_with_its_object(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    levelog = Levelog(tmp_path, private_control_plane.kubeconfig)
    followed = Followed(tmp_path, private_control_plane.admin)
    await followed.define()
    for name in ("first", "second", "third"):
        await followed.make(name)
    await followed.make("odd", image="refused")
    running = levelog.start("run", "followers.py")
    try:
        for name in ("first", "second", "third"):
            await followed.tell("step", name, 3)
        running.kill()
        reached = max(steps for _, steps in followed.of("step", "first"))
        running = levelog.start("run", "followers.py")
        begun = await followed.tell("begins", "first", 2)
        assert begun[1][1] in (reached, reached + 1)  # what was kept may not have been told any more

        await followed.remove("first")
        assert [reason for _, reason in await followed.tell("ends", "first")] == ["unwanted"]
        await followed.change("second", image="none")
        [(_, reason)] = await followed.tell("ends", "second")
        assert reason == "unwanted"
        last = max(steps for _, steps in followed.of("step", "second"))
        await followed.change("second", image="nginx")
        begun = await followed.tell("begins", "second", 3)
        assert begun[-1][1] == last  # the state is that of the run before
        await followed.change("third", replicas=0)
        await followed.tell("returns", "third")

        async def are_shown() -> bool:
            shown = {each["parent"].rpartition("/")[2]: each["status"] for each in await levelog.levels()}
            return shown == {"second": "settling", "third": "in_sync", "odd": "failed"}

        await until(are_shown, "levels of the daemons")
        running.stop()
        assert followed.of("ends", "second")[-1][1] == "shutdown"
        ended = max(steps for _, steps in followed.of("step", "second"))
        (tmp_path / "followers.py").write_text(SOURCE.replace("steps += 1", "steps += 100"))
        running = levelog.start("run", "followers.py")
        assert (await followed.tell("begins", "second", 4))[-1][1] == ended
        assert (await followed.tell("step", "second", len(followed.of("step", "second")) + 1))[-1][1] >= ended + 100
        assert len(followed.of("begins", "third")) == 2  # it has returned
    finally:
        running.stop()
