"""Conditions on a real API server, of a class whose definition `levelog crd` made."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import yaml

from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog
from rigs.pages import blocks
from rigs.waiting import until

PAGE = Path(__file__).parents[2] / "docs/conditions.md"
KUBECTL = shutil.which("kubectl")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
SHOPS = "/apis/example.com/v1/namespaces/default/shops"


async def test_ready_and_stalled_say_what_a_shop_is_and_of_which_generation(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster = private_control_plane
    api, levelog = cluster.admin, Levelog(tmp_path, cluster.kubeconfig)
    [source] = [block.text for block in blocks(PAGE) if "op.conditions(Shop)" in block.text]
    [corner] = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    (tmp_path / "shops.py").write_text(source)
    await api.create(DEFINITIONS, yaml.safe_load((await levelog.ends("crd", "shops.py")).stdout))
    await api.apply(SHOPS, corner)
    found: dict[str, Any] = {}

    async def shows(condition: str) -> None:
        """Wait until a condition is true, and about the newest generation."""

        async def is_true() -> bool:
            found.clear()
            found.update((await api.request("GET", f"{SHOPS}/corner"))[1])
            generation = found["metadata"]["generation"]
            held = {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
            is_told = condition in held and held[condition]["observedGeneration"] == generation
            return is_told and held[condition]["status"] == "True"

        await until(is_true, f"{condition} of corner")

    async def failures_of(name: str) -> list[dict[str, Any]]:
        """Events about a shop, once there are some."""
        events: list[dict[str, Any]] = []

        async def are_there() -> bool:
            every = (await api.request("GET", EVENTS))[1]["items"]
            events[:] = [e for e in every if e["regarding"].get("name") == name and e["reason"] == "Failed"]
            return bool(events)

        await until(are_there, f"Events about {name}")
        return events

    running = levelog.start("run", "shops.py")
    try:
        await shows("Stalled")
        messages = {each["type"]: each["message"] for each in found["status"]["conditions"]}
        assert "config: " in messages["Stalled"]
        assert "Not_A_Name" in messages["Ready"]
        failures = await failures_of("corner")
        assert [each["note"] for each in failures] == [messages["Stalled"]]
        assert (failures[0]["type"], failures[0]["regarding"]["uid"]) == ("Warning", found["metadata"]["uid"])
        await api.patch(f"{SHOPS}/corner", {"spec": {"config": "corner"}})
        if KUBECTL:  # as users wait; elsewhere the condition alone is looked at
            flags = ["--kubeconfig", str(cluster.kubeconfig), "--for=condition=Ready", "--timeout=60s"]
            waiting = await asyncio.create_subprocess_exec(
                KUBECTL, "wait", *flags, "shops.example.com/corner", stdout=asyncio.subprocess.PIPE
            )
            said, _ = await waiting.communicate()
            assert (waiting.returncode, said) == (0, b"shop.example.com/corner condition met\n")
        await shows("Ready")
        assert found["metadata"]["generation"] == 2, "the status has a subresource"
    finally:
        await running.stops()
