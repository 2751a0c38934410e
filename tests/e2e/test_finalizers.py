"""A finalizer on a real API server: across a kill in the middle of its handler, and off before it is uninstalled."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS, Levelog
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBS_PATH = "/apis/example.com/v1/namespaces/default/webs"
SOURCE = """
import asyncio
from datetime import timedelta
from pathlib import Path

from levelog import Operator, Resource, Struct

op = Operator("tapes")
TOLD = Path(__file__).with_name("told")
HANGING = Path(__file__).with_name("hanging")


class WebSpec(Struct):
    image: str


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


def tell(text: str) -> None:
    with TOLD.open("a") as file:
        file.write(text + "\\n")


@op.on.create
async def provision(web: Web) -> None:
    tell(f"provision {web.metadata.name}")


@op.on.delete(finalizer=True, timeout=timedelta(hours=1))
async def archive(web: Web) -> None:
    tell(f"begin {web.metadata.name}")
    while HANGING.exists():
        await asyncio.sleep(0.05)
    tell(f"end {web.metadata.name}")
"""


@pytest.mark.long
async def test_a_kill_while_the_end_is_handled_leaves_the_object_until_it_is(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster = private_control_plane
    api, levelog = cluster.admin, Levelog(tmp_path, cluster.kubeconfig)
    (tmp_path / "tapes.py").write_text(SOURCE)
    told, hanging = tmp_path / "told", tmp_path / "hanging"
    await api.create(DEFINITIONS, yaml.safe_load((WEBS / "crd.yaml").read_text()))

    async def made(name: str) -> None:
        web = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name}, "spec": {"image": "a"}}
        await api.apply(WEBS_PATH, web)

    async def found(name: str) -> tuple[int, list[str]]:
        status, answer = await api.request("GET", f"{WEBS_PATH}/{name}")
        metadata: dict[str, Any] = answer.get("metadata") or {}
        return status, metadata.get("finalizers", [])

    async def is_told(text: str) -> None:
        await until(lambda: told.exists() and text in told.read_text().splitlines(), f"{text!r}", seconds=90)

    hanging.touch()
    await made("shop")
    running = levelog.start("run", "tapes.py")
    try:
        await is_told("provision shop")
        assert await found("shop") == (200, ["levelog/tapes"])
        await api.request("DELETE", f"{WEBS_PATH}/shop")
        await is_told("begin shop")
        running.kill()
        assert await found("shop") == (200, ["levelog/tapes"])
        hanging.unlink()
        running = levelog.start("run", "tapes.py")
        await is_told("end shop")
        await api.lacks(f"{WEBS_PATH}/shop")
        await made("left")
        await is_told("provision left")
    finally:
        running.stop()
    lines = told.read_text().splitlines()
    assert lines[:2] == ["provision shop", "begin shop"]
    assert lines.count("provision shop") == lines.count("end shop") == 1
    assert await found("left") == (200, ["levelog/tapes"])
    released = await levelog.ends("remove-finalizers", "tapes.py")
    assert (released.status, released.stderr) == (0, "")
    assert "webs.example.com/default/left: levelog/tapes removed\n" in released.stdout
    assert await found("left") == (200, [])
