"""`levelog remove-finalizers`: finalizers of operators are taken off all objects, and those of others are left."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from levelog_ingest.sync import PAGE_OBJECTS
from levelog_sandbox import Denial, Sandbox
from levelog_sandbox.api.server import Refuses
from rigs.levelog import WEBS_FILE, Levelog, define_webs


def web(name: str, *finalizers: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "finalizers": list(finalizers)}
    spec = {"replicas": 1, "image": "nginx"}
    return {"apiVersion": "example.com/v1", "kind": "Web", "metadata": metadata, "spec": spec}


@asynccontextmanager
async def webs(folder: Path, refuses: Refuses | None = None) -> AsyncGenerator[tuple[Sandbox, Levelog]]:
    async with Sandbox(refuses=refuses) as sandbox:
        await define_webs(sandbox)
        yield sandbox, Levelog(folder, sandbox.kubeconfig(folder / "kubeconfig"))


async def test_a_finalizer_that_kopf_left_is_removed_by_its_name(tmp_path: Path) -> None:
    mark = "kopf.zalando.org/KopfFinalizerMarker"
    async with webs(tmp_path) as (sandbox, levelog):
        sandbox.user.create(web("shop", mark, "levelog/webs"))
        sandbox.user.create(web("going", mark))
        sandbox.user.delete("webs.example.com", "going", namespace="default")
        done = await levelog.ends("remove-finalizers", WEBS_FILE, "--finalizer", mark)
        assert (done.status, done.stderr) == (0, "")
        assert f"{mark} removed from 2 of 2 objects" in done.stdout
        [left] = sandbox.user.list("webs.example.com")
        assert left["metadata"]["finalizers"] == ["levelog/webs"]


async def test_many_objects_may_take_longer_than_the_server_keeps_history(tmp_path: Path) -> None:
    def forget(verb: str, *_: str) -> int:
        if verb == "patch":
            sandbox.compact()
        return 0

    async with webs(tmp_path, forget) as (sandbox, levelog):
        for number in range(PAGE_OBJECTS + 1):
            sandbox.user.create(web(f"shop-{number}", "levelog/webs"))
        done = await levelog.ends("remove-finalizers", WEBS_FILE)
        assert (done.status, done.stderr) == (0, "")
        assert "levelog/webs removed from 501 of 501 objects" in done.stdout


async def test_a_finalizer_that_another_adds_meanwhile_stays(tmp_path: Path) -> None:
    def add(verb: str, *_: str) -> int:
        if verb == "patch" and not added:
            added.append(verb)
            sandbox.user.patch(
                "webs.example.com", "shop", {"metadata": {"finalizers": ["levelog/webs", "example.com/a"]}}
            )
        return 0

    added: list[str] = []
    async with webs(tmp_path, add) as (sandbox, levelog):
        sandbox.user.create(web("shop", "levelog/webs"))
        done = await levelog.ends("remove-finalizers", WEBS_FILE)
        assert (done.status, done.stderr) == (0, "")
        assert sandbox.user.get("webs.example.com", "shop")["metadata"]["finalizers"] == ["example.com/a"]


async def test_finalizers_are_taken_off_all_objects_and_those_of_others_are_left(tmp_path: Path) -> None:
    async with webs(tmp_path) as (sandbox, levelog):
        for made in (
            web("shop", "example.com/a", "levelog/webs"),
            web("going", "levelog/webs"),
            web("other", "levelog/shops"),
        ):
            sandbox.user.create(made)
        sandbox.user.delete("webs.example.com", "going", namespace="default")

        def left() -> dict[str, list[str]]:
            found = sandbox.user.list("webs.example.com")
            return {each["metadata"]["name"]: each["metadata"].get("finalizers", []) for each in found}

        before = left()
        dry = await levelog.ends("remove-finalizers", WEBS_FILE, "--dry-run")
        assert (dry.status, dry.stderr) == (0, "")
        assert "webs.example.com/default/going: levelog/webs would be removed\n" in dry.stdout
        assert left() == before
        sandbox.access.denials.append(Denial("patch", "webs.example.com"))
        refused = await levelog.ends("remove-finalizers", WEBS_FILE)
        assert refused.status == 1
        assert "webs.example.com/default/going: cannot remove levelog/webs: " in refused.stderr
        assert "levelog/webs removed from 0 of 2 objects" in refused.stdout
        sandbox.access.denials.clear()
        done = await levelog.ends("remove-finalizers", WEBS_FILE)
        assert (done.status, done.stderr) == (0, "")
        assert "webs.example.com/default/shop: levelog/webs removed\n" in done.stdout
        assert left() == {"other": ["levelog/shops"], "shop": ["example.com/a"]}
