"""What `levelog crd` prints, on a real API server: it defines, defaults and refuses; conditions are kept in it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from levelog_base.wire.manifests import as_yaml, manifests_of
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.largecrds import NAMES, definition
from rigs.levelog import Levelog
from rigs.pages import blocks
from rigs.waiting import until

BUCKETS = Path(__file__).parents[1] / "rigs/buckets.py"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "buckets.buckets.example.com"
LEAST: dict[str, Any] = {"region": "eu", "owner": None}


@pytest.fixture
def levelog(control_plane: ControlPlane, tmp_path: Path) -> Levelog:
    return Levelog(tmp_path, control_plane.kubeconfig)


async def defined(levelog: Levelog, api: Api) -> None:
    """Other tests may have made it before; that it has no other condition says that it is structural."""
    ended = await levelog.ends("crd", BUCKETS)
    assert (ended.status, ended.stderr) == (0, ""), ended
    [manifest] = yaml.safe_load_all(ended.stdout)
    status, answer = await api.request("POST", DEFINITIONS, manifest)
    assert status in (201, 409), answer

    async def conditions() -> dict[str, str] | None:
        _, found = await api.request("GET", f"{DEFINITIONS}/{NAME}")
        held = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions") or []}
        return held if held.get("Established") == "True" else None

    assert await until(conditions, NAME) == {"NamesAccepted": "True", "Established": "True"}
    paths = [f"/apis/buckets.example.com/{version}/buckets" for version in ("v1", "v1alpha1")]

    async def is_served() -> bool:
        return [(await api.request("GET", path))[0] for path in paths] == [200, 200]

    await until(is_served, "both versions")


async def created(api: Api, spec: dict[str, Any], **rest: Any) -> tuple[int, Any]:
    namespace = await api.create_namespace()
    manifest = {"apiVersion": "buckets.example.com/v1", "kind": "Bucket", "metadata": {"name": "a"}, "spec": spec}
    return await api.request("POST", f"/apis/buckets.example.com/v1/namespaces/{namespace}/buckets", manifest | rest)


async def test_an_object_has_the_defaults_of_its_class_and_its_subresources(
    control_plane: ControlPlane, levelog: Levelog
) -> None:
    api = control_plane.admin
    await defined(levelog, api)
    status, made = await created(api, LEAST | {"rules": [{"name": "x", "days": None}]}, status={"replicas": 3})
    assert status == 201, made.get("message")
    assert made["spec"] == LEAST | {
        "size": 10,
        "least": 0,
        "share": 0.5,
        "tier": "hot",
        "level": 1,
        "port": "http",
        "rules": [{"name": "x", "verbs": ["get", "put"]}],
        "first": {"name": "all", "verbs": ["get", "put"]},
        "labels": {},
        "limits": {},
        "weights": [],
        "names": [],
        "extra": {},
    }
    assert "status" not in made
    path = f"/apis/buckets.example.com/v1/namespaces/{made['metadata']['namespace']}/buckets/a"
    status, scale = await api.request("GET", f"{path}/scale")
    assert (status, scale["spec"]) == (200, {"replicas": 10})


async def test_what_a_class_does_not_take_is_refused(control_plane: ControlPlane, levelog: Levelog) -> None:
    api = control_plane.admin
    await defined(levelog, api)
    specs: list[tuple[str, dict[str, Any]]] = [
        ("spec.region", {"region": "e"}),
        ("spec.region", {"region": "EU"}),
        ("spec.size", {"size": 0}),
        ("spec.size", {"size": 1000}),
        ("spec.size", {"size": 7}),
        ("spec.share", {"share": 0}),
        ("spec.tier", {"tier": "warm"}),
        ("spec.mode", {"mode": "slow"}),
        ("spec.level", {"level": 3}),
        ("spec.port", {"port": 1.5}),
        ("spec.rules[0].name", {"rules": [{}]}),
        ("spec.rules", {"rules": [{"name": "x"}] * 5}),
        ("spec.names[1]", {"names": ["a", "a"]}),
        ("spec.labels.a", {"labels": {"a": 1}}),
        ("spec.cpu", {"cpu": "much"}),
        ("spec", {"least": 11}),
    ]
    message = ""
    for field, spec in specs:
        status, answer = await created(api, LEAST | spec)
        assert (status, answer["reason"]) == (422, "Invalid"), (spec, answer)
        assert field in {cause["field"] for cause in answer["details"]["causes"]}, (spec, answer["message"])
        message = answer["message"]
    assert "size is below least" in message
    status, made = await created(api, LEAST)
    region = [{"op": "replace", "path": "/spec/region", "value": "us"}]
    path = f"/apis/buckets.example.com/v1/namespaces/{made['metadata']['namespace']}/buckets/a"
    status, answer = await api.request("PATCH", path, region, content_type="application/json-patch+json")
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.region"), answer


async def test_a_check_against_the_cluster_names_what_would_break_objects(
    control_plane: ControlPlane, levelog: Levelog
) -> None:
    await defined(levelog, control_plane.admin)
    ended = await levelog.ends("crd", BUCKETS, "--check")
    assert (ended.status, ended.stdout) == (0, f"{NAME}: breaks nothing\n"), ended
    narrower = BUCKETS.read_text().replace("ge=1, lt=1000", "ge=2, lt=1000").replace("least: int", "least: str | int")
    (levelog.folder / "narrower.py").write_text(narrower.replace('version="v1"', 'version="v2"'))
    ended = await levelog.ends("crd", "narrower.py", "--check")
    assert ended.status == 1, ended
    assert ended.stdout.splitlines() == [
        f"{NAME} v1: objects are stored in this version, and it is gone",
        f"{NAME} v1 read as v2 spec.size: minimum is 2, was 1",
    ]
    (levelog.folder / "new.py").write_text(BUCKETS.read_text().replace("buckets.example.com", "new.example.com"))
    ended = await levelog.ends("crd", "new.py", "--check")
    assert (ended.status, ended.stdout) == (0, "buckets.new.example.com: is new\n"), ended


async def test_large_definitions_are_taken_again_once_they_were_imported(
    control_plane: ControlPlane, levelog: Levelog
) -> None:
    (levelog.folder / "large.yaml").write_text(as_yaml(map(definition, NAMES)))
    ended = await levelog.ends("import-crd", "large.yaml")
    assert (ended.status, ended.stderr) == (0, ""), ended.stderr[-1000:]
    (levelog.folder / "imported.py").write_text(ended.stdout)
    ended = await levelog.ends("crd", "imported.py")
    assert (ended.status, ended.stderr) == (0, ""), ended.stderr[-1000:]
    (levelog.folder / "again.yaml").write_text(ended.stdout)
    again = manifests_of(levelog.folder / "again.yaml")
    assert [one["metadata"]["name"] for one in again] == NAMES
    for manifest in again:
        path = f"{DEFINITIONS}?dryRun=All&fieldValidation=Strict"
        status, answer = await control_plane.admin.request("POST", path, manifest)
        assert status == 201, answer["message"]


PAGE = Path(__file__).parents[2] / "docs/conditions.md"
KUBECTL = shutil.which("kubectl")
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
