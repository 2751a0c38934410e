"""Edge handlers on a real API server: across a kill, for what happened while nothing ran, without a write."""

import json
from pathlib import Path
from typing import Any

import yaml

from rigs.controlplane import ControlPlane
from rigs.levelog import WEBS, Levelog
from rigs.waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBS_PATH = "/apis/example.com/v1/namespaces/default/webs"
SOURCE = """
import json
from pathlib import Path

from levelog import Diff, Operator, Resource, Struct

op = Operator("accounts")
TOLD = Path(__file__).with_name("told.jsonl")
BROKEN = Path(__file__).with_name("broken")


class WebSpec(Struct):
    image: str
    replicas: int = 1


class Web(Resource, group="example.com", version="v1", plural="webs"):
    spec: WebSpec


@op.on.create
@op.on.update
@op.on.delete
async def provision(web: Web, old: Web | None, diff: Diff, reason: str) -> None:
    if BROKEN.exists():
        raise ConnectionError("the registry is away")
    told = [reason, web.metadata.name, web.metadata.uid, web.spec.replicas, [change.path for change in diff]]
    with TOLD.open("a") as file:
        file.write(json.dumps(told) + "\\n")
"""


def web(name: str, *, replicas: int = 1) -> dict[str, Any]:
    spec = {"image": "nginx", "replicas": replicas}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name}, "spec": spec}


async def test_invariant_15_no_edge_is_lost_in_a_kill_nor_while_nothing_runs_and_nothing_is_written(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster = private_control_plane
    api, levelog = cluster.admin, Levelog(tmp_path, cluster.kubeconfig)
    (tmp_path / "accounts.py").write_text(SOURCE)
    told, broken = tmp_path / "told.jsonl", tmp_path / "broken"
    await api.create(DEFINITIONS, yaml.safe_load((WEBS / "crd.yaml").read_text()))

    async def made(name: str, **spec: int) -> str:
        return str((await api.apply(WEBS_PATH, web(name, **spec)))["metadata"]["uid"])

    def lines() -> list[Any]:
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    async def are_told(*wanted: list[Any]) -> None:
        """Wait until all of this was handled; what was not asked for may only be a state in between."""
        await until(lambda: all(each in lines() for each in wanted), f"what was handled to hold {wanted}", seconds=60)

    async def are_shown(command: str, *wanted: str) -> None:
        async def is_so() -> bool:
            shown = (await levelog.ends(*command.split())).stdout
            return all(each in shown for each in wanted)

        await until(is_so, f"{command} to show {wanted}", seconds=60)

    first, second = await made("first"), await made("second")
    running = levelog.start("run", "accounts.py")
    try:
        expected = [["create", "first", first, 1, []], ["create", "second", second, 1, []]]
        await are_told(*expected)
        broken.touch()
        await api.patch(f"{WEBS_PATH}/first", {"spec": {"replicas": 2}})
        await running.says("handler provision failed for webs.example.com/default/first: ConnectionError")
        error = "ConnectionError: the registry is away"
        # a command may come while an attempt is under way: the call is claimed then
        await are_shown("levels", "the next time at", "call handler provision for", f": {error}")
        why = "why webs.example.com/default/first"
        await are_shown(why, "provision for default/first: pending: tried ", "the next time at", f": {error}")
        running.kill()
        await api.patch(f"{WEBS_PATH}/first", {"spec": {"replicas": 3}})
        await api.request("DELETE", f"{WEBS_PATH}/second")
        again = await made("second", replicas=4)
        third = await made("third")
        await api.request("DELETE", f"{WEBS_PATH}/third")
        broken.unlink()
        running = levelog.start("run", "accounts.py")
        expected += [
            ["update", "first", first, 3, ["/spec/replicas"]],
            ["delete", "second", second, 1, []],
            ["create", "second", again, 4, []],
        ]
        await are_told(*expected)
        await api.request("DELETE", f"{WEBS_PATH}/first")
        expected.append(["delete", "first", first, 3, []])
        await are_told(*expected)
        running.stop()
        for file in levelog.data.glob("levelog.db*"):
            file.unlink()
        running = levelog.start("run", "accounts.py")  # the tables are folded from the log
        await api.patch(f"{WEBS_PATH}/second", {"spec": {"replicas": 5}})
        expected.append(["update", "second", again, 5, ["/spec/replicas"]])
        await are_told(*expected)

        async def is_at_rest() -> bool:
            found = await levelog.levels()
            return len(found) >= 3 and all(each["status"] == "in_sync" for each in found)

        await until(is_at_rest, "levels at rest", seconds=60)
    finally:
        running.stop()
    found = lines()
    between = [each for each in found if each not in expected and each[2] != third]
    assert between in ([], [["update", "first", first, 2, ["/spec/replicas"]]])  # the retry, or the change, came first
    assert sorted(found) == sorted([*expected, *between, *(each for each in found if each[2] == third)])
    assert [each[0] for each in found if each[2] == third] in ([], ["create", "delete"])
    assert not [each for each in await cluster.audit.writes(resource="webs") if "levelog" in each.user_agent]
