"""What a Kopf file has done is shown, explained and decided again by the commands, as with any other file."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from levelog.operator import Operator
from levelog_cli.settings import Settings
from levelog_cli.wiring.clients import configure_clients
from rigs.kinds import definition, manifest
from rigs.kopfrivals import rival
from rigs.levelog import define
from rigs.waiting import until

SOURCE = """
@kopf.index(*SHOPS)
def names(name, **_):
    return {name: None}


@kopf.on.resume(*SHOPS)
def resumed(name, **_):
    tell("resumed", name)


@kopf.on.update(*SHOPS)
def changed(spec, names, **_):
    tell("changed", spec["size"], sorted(names))
    return spec["size"]


@kopf.timer(*SHOPS, interval=600)
def ticked(**_):
    tell("ticked")


@kopf.daemon(*SHOPS)
async def ran(stopped, **_):
    await stopped.wait(0.1)
    tell("ran")
    return 5


@kopf.on.event(*SHOPS)
def seen(**_):
    tell("seen")
"""
VIEWS = {"shops_finalizer", "changed", "made", "ran", "resumed_resume", "ticked"}


async def test_levels_why_replay_plan_and_doctor_know_the_handlers_of_a_kopf_file(tmp_path: Path) -> None:
    async with rival("levelog", tmp_path, SOURCE) as running:
        running.make("a", size=1)
        await running.tells("made", "a")
        running.change("a", size=2)
        for told in (("changed", 2, ["a"]), ("ticked",), ("ran",), ("seen",)):
            await running.tells(*told)
        await running.is_calm()
        levels = await running.command("levels")
        assert set(re.findall(r"^shops/(\w+) .* in_sync", levels, re.MULTILINE)) == VIEWS
        why = await running.command("why", "shops.example.com/default/a")
        assert re.search(r"call handler changed for default/a: done, seen in \d+, its patch_status written\n", why), why
        replayed = await running.command("replay", "shops.py")
        counts = re.findall(r"^shops/(\w+) +(\d+) +0 +0 +0 +0$", replayed, re.MULTILINE)
        assert {name for name, same in counts if int(same)} == VIEWS, replayed
        assert "writes that would follow: none" in await running.command("plan", "shops.py")
        assert "may patch shops/status.example.com" in await running.command("doctor", "shops.py")


async def test_retry_calls_what_waits_for_its_next_attempt_and_what_gave_up(tmp_path: Path) -> None:
    source = """
@kopf.on.create(*SHOPS)
def waits(retry, **_):
    tell("waits", retry)
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=3600)


@kopf.on.create(*SHOPS)
def gives_up(retry, spec, **_):
    tell("gives up", retry)
    raise kopf.PermanentError("no use")


@kopf.timer(*SHOPS, interval=7200)
def ticks(retry, **_):
    tell("ticks", retry)
    if retry == 0:
        raise kopf.TemporaryError("not yet", delay=3600)
"""
    async with rival("levelog", tmp_path, source) as running:
        running.make("a", size=1)
        assert await running.tells("waits") == ["waits", 0]
        assert await running.tells("gives up") == ["gives up", 0]
        assert await running.tells("ticks") == ["ticks", 0]

        async def are_at_rest(waiting: str) -> bool:
            levels = await running.command("levels")
            found = dict(
                re.findall(r"^shops/(waits|ticks|gives_up) .* (drifting|in_sync|failed)", levels, re.MULTILINE)
            )
            return found == {"waits": waiting, "ticks": waiting, "gives_up": "failed"}

        await until(lambda: are_at_rest("drifting"), "two that wait, and one that gave up", pause=0.25)
        told = await running.command("retry", "default/a")
        assert len(told.splitlines()) == 3
        assert await running.tells("waits", 1) == ["waits", 1]
        assert await running.tells("ticks", 1) == ["ticks", 1]

        await until(lambda: are_at_rest("in_sync"), "the end of all", pause=0.25)
        assert running.told("gives up") == [["gives up", 0]] * 2
        replayed = await running.command("replay", "shops.py")
        assert re.search(r"^shops/waits +\d+ +0 +0 +0 +0$", replayed, re.MULTILINE), replayed


async def test_a_custom_resource_without_namespaces_and_status_subresource_is_handled_as_the_api_serves_it(
    tmp_path: Path,
) -> None:
    source = """
@kopf.on.create("example.com", "v1", "stores")
@kopf.on.update("example.com", "v1", "stores")
def kept(namespace, patch, spec, **_):
    tell("kept", namespace, spec["size"])
    patch.spec["seen"] = True
    patch.status["size"] = spec["size"]
    return 1


@kopf.on.delete("example.com", "v1", "stores")
def gone(name, **_):
    tell("gone", name)
"""
    async with rival("levelog", tmp_path, source) as one:
        await define(one.sandbox, definition("Store", scope="Cluster", has_status=False))
        for size in (1, 2):
            store = {"apiVersion": "example.com/v1", "kind": "Store", "metadata": {"name": "a"}, "spec": {"size": size}}
            one.sandbox.user.apply(store)
            await one.tells("kept", None, size)

            async def is_written(size: int = size) -> bool:
                found = one.sandbox.user.get("stores.example.com", "a")
                return bool(found["spec"].get("seen") and found.get("status") == {"kept": 1, "size": size})

            await until(is_written, "the patch of an object without a namespace")
        one.sandbox.user.delete("stores.example.com", "a")
        await one.tells("gone", "a")


@pytest.mark.parametrize("shown", [pytest.param([], marks=pytest.mark.long), ["other"]])
async def test_what_a_definition_drops_of_a_result_is_told_once_and_holds_nothing_up(
    tmp_path: Path, shown: list[str]
) -> None:
    source = """
@kopf.on.create("example.com", "v1", "stores")
@kopf.on.update("example.com", "v1", "stores")
def kept(spec, patch, **_):
    tell("kept", spec["size"])
    patch.status["other"] = spec["size"]
    return {"size": spec["size"]}
"""
    narrow = definition("Store")
    schema = narrow["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"] = {"type": "object", "properties": {name: {"type": "integer"} for name in shown}}
    async with rival("levelog", tmp_path, source) as one:
        await define(one.sandbox, narrow)
        for size in (1, 2):
            one.sandbox.user.apply(manifest("Store", "a", size=size))
            await one.tells("kept", size)
        await one.is_calm()
        assert one.sandbox.user.get("stores.example.com", "a").get("status", {}) == dict.fromkeys(shown, 2)
        levels = await one.command("levels")
        assert re.findall(r"^shops/(\w+) .* in_sync", levels, re.MULTILINE) == ["kept"], levels
        fields = ", ".join(f"status.{name}" for name in ("kept", "other") if name not in shown)
        told = f"what kept wrote, and the object does not show {fields}: the definition of stores.example.com drops"
        assert one.log().count(told) == 2


CLIENTS = """
@kopf.on.create(*SHOPS)
def found(name, namespace, **_):
    import kubernetes.client
    api = kubernetes.client.CustomObjectsApi()
    tell("found", api.get_namespaced_custom_object("example.com", "v1", namespace, "shops", name)["metadata"]["name"])


@kopf.on.create(*SHOPS)
async def found_too(name, namespace, **_):
    import kubernetes_asyncio.client
    async with kubernetes_asyncio.client.ApiClient() as client:
        api = kubernetes_asyncio.client.CustomObjectsApi(client)
        shop = await api.get_namespaced_custom_object("example.com", "v1", namespace, "shops", name)
    tell("found too", shop["metadata"]["name"])
"""


@pytest.mark.parametrize("place", ["file", pytest.param("handlers", marks=pytest.mark.long)])
async def test_client_libraries_that_a_file_imports_find_the_cluster_without_a_login(
    tmp_path: Path, place: str
) -> None:
    imports = re.findall(r"^    import (\S+)$", CLIENTS, re.MULTILINE) if place == "file" else []
    source = "".join(f"import {each}\n" for each in imports) + "\n\n" + CLIENTS
    async with rival("levelog", tmp_path, source) as running:
        running.make("a")
        assert await running.tells("found") == ["found", "a"]
        assert await running.tells("found too") == ["found too", "a"]


async def test_a_client_library_that_cannot_be_configured_is_named_with_what_to_call(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    importlib.import_module("kubernetes.config")
    for name, text in (("gone", None), ("edited", "def")):  # files that are not what was loaded any more
        module, file = ModuleType(name), tmp_path / f"{name}.py"
        vars(module).update({"__file__": str(file), "op": Operator(name)})
        monkeypatch.setitem(sys.modules, name, module)
        if text is not None:
            file.write_text(text)
    (tmp_path / "broken").write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    await configure_clients(Settings())
    assert "kubernetes is not configured" in caplog.text
    assert "call kubernetes.config.load_kube_config() or load_incluster_config()" in caplog.text
