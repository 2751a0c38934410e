"""`python -m levelog_sandbox`: what it starts with, and what it is when it is started again."""

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from levelog_sandbox import Sandbox
from levelog_sandbox.objects.journal import Journal
from rigs.depot import pod
from rigs.levelog import WEBS, python
from rigs.ports import free_port
from rigs.processes import Forked, Process
from rigs.waiting import until

SHOP = "/apis/example.com/v1/namespaces/default/webs/shop"
MERGE = {"Content-Type": "application/merge-patch+json"}


class SandboxProcess:
    """A sandbox that serves the example's objects, with a journal, on a port that it keeps."""

    def __init__(self, folder: Path, http: aiohttp.ClientSession) -> None:
        self.journal = folder / "journal"
        self._folder = folder
        self._http = http
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: Process | None = None

    async def start(self) -> None:
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.unlink(missing_ok=True)
        arguments = ["--port", str(self._port), "--kubeconfig", str(kubeconfig), "--journal", str(self.journal)]
        files = ["--create", str(WEBS / "crd.yaml"), "--create", str(WEBS / "shop.yaml")]
        command = [sys.executable, "-m", "levelog_sandbox", *arguments, *files]
        process = self._process = Forked(command, self._folder / "log")

        async def is_ready() -> bool:
            process.check()
            return kubeconfig.exists() and kubeconfig.stat().st_size > 0

        await until(is_ready, "a sandbox with a kubeconfig")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """The decoded body of an answer below 400."""
        async with self._http.request(method, self.url + path, **options) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def everything(self) -> dict[str, Any]:
        """Each object of a few kinds, by path."""
        paths = ("/api/v1/namespaces", "/api/v1/configmaps", "/apis/example.com/v1/webs")
        return {path: (await self.ask("GET", path))["items"] for path in paths}


@pytest_asyncio.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[SandboxProcess]:
    async with aiohttp.ClientSession() as http:
        started = SandboxProcess(tmp_path, http)
        try:
            await started.start()
            yield started
        finally:
            started.kill()


def configmap(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


async def test_a_sandbox_with_a_kubeconfig_has_the_objects_of_its_files(sandbox: SandboxProcess) -> None:
    assert (await sandbox.ask("GET", SHOP))["spec"] == {"image": "nginx:1.29", "replicas": 3}


async def test_a_killed_sandbox_is_the_same_cluster_when_it_is_started_again(sandbox: SandboxProcess) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    await sandbox.ask("POST", maps, json=configmap("stays"))
    await sandbox.ask("POST", maps, json=configmap("goes"))
    await sandbox.ask("PATCH", SHOP, data='{"spec": {"replicas": 5}}', headers=MERGE)
    await sandbox.ask("DELETE", f"{maps}/goes")
    before = await sandbox.everything()
    listed = await sandbox.ask("GET", maps)

    sandbox.kill()
    await sandbox.start()

    assert await sandbox.everything() == before
    assert (await sandbox.ask("GET", SHOP))["spec"]["replicas"] == 5
    made = await sandbox.ask("POST", maps, json=configmap("later"))
    assert int(made["metadata"]["resourceVersion"]) > int(listed["metadata"]["resourceVersion"])


async def test_after_a_start_older_watches_are_told_that_history_is_gone(sandbox: SandboxProcess) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    first = await sandbox.ask("POST", maps, json=configmap("one"))
    last = await sandbox.ask("POST", maps, json=configmap("two"))

    sandbox.kill()
    await sandbox.start()
    await sandbox.ask("POST", maps, json=configmap("three"))

    async def first_event(since: dict[str, Any]) -> dict[str, Any]:
        version = since["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "5"}
        async with aiohttp.request("GET", sandbox.url + maps, params=query) as answer:
            event: dict[str, Any] = json.loads(await answer.content.readline())
            return event

    stale, current = await first_event(first), await first_event(last)
    assert (stale["type"], stale["object"]["code"]) == ("ERROR", 410)
    assert (current["type"], current["object"]["metadata"]["name"]) == ("ADDED", "three")


async def test_garbage_is_collected_by_owners_from_before_the_start(sandbox: SandboxProcess) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    owner = await sandbox.ask("POST", maps, json=configmap("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await sandbox.ask("POST", maps, json=configmap("owned", ownerReferences=[reference]))

    sandbox.kill()
    await sandbox.start()
    await sandbox.ask("DELETE", f"{maps}/owner")

    async def is_empty() -> bool:
        return not (await sandbox.ask("GET", maps))["items"]

    await until(is_empty, "the end of what the owner owned")


async def test_pods_that_ran_run_when_the_sandbox_is_started_again(tmp_path: Path) -> None:
    async with Sandbox(pods_run=True) as first:
        with Journal(tmp_path / "journal", first.store):
            first.user.create(pod("runs"))
            first.user.create(pod("goes"))
            first.user.delete("pods", "goes")
    async with Sandbox() as second:
        with Journal(tmp_path / "journal", second.store):
            [kept] = second.store.collection("pods").in_order()
    assert (kept.name, kept.body["status"]["phase"]) == ("runs", "Running")


async def test_a_watch_goes_on_after_a_start_where_nothing_of_its_kind_has_changed(tmp_path: Path) -> None:
    def configmap_of(name: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}

    async with Sandbox() as first:
        with Journal(tmp_path / "journal", first.store):
            first.user.create(configmap_of("stays"))
            first.user.create(configmap_of("goes"))
            nothing_of_secrets, before = first.store.revision, first.store.revision
            first.user.delete("configmaps", "goes")
            deleted = first.store.revision
            first.user.create(pod("other"))
    for _ in range(2):
        async with Sandbox() as another:
            with Journal(tmp_path / "journal", another.store):
                assert another.store.collection("secrets").compacted <= nothing_of_secrets
                assert before < another.store.collection("configmaps").compacted == deleted
                assert another.store.revision > deleted


async def test_a_line_that_a_killed_sandbox_did_not_finish_is_left_out(sandbox: SandboxProcess) -> None:
    before = await sandbox.everything()
    sandbox.kill()
    with sandbox.journal.open("ab") as file:
        file.write(b'{"type":"Put","revi')

    await sandbox.start()

    assert await sandbox.everything() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["--create", "absent.yaml"], "absent.yaml cannot be read: No such file or directory", marks=pytest.mark.long
        ),
        (["--create", "broken.yaml"], "broken.yaml, line 1: mapping values are not allowed in this context"),
        pytest.param(
            ["--create", "text.yaml"], "text.yaml, line 1: something that is not an object", marks=pytest.mark.long
        ),
        (["--create", str(WEBS / "shop.yaml")], 'Web shop: no matches for kind "Web" in version "example.com/v1"'),
        (["--journal", "text.yaml"], "text.yaml is not of a sandbox: line 1: "),
        pytest.param(
            ["--journal", "absent/journal"],
            "absent/journal cannot be used: No such file or directory",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_what_it_cannot_start_with_ends_it_in_one_sentence(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "broken.yaml").write_text("a: b: c")
    (tmp_path / "text.yaml").write_text("only words\n")
    ended = await python("-m", "levelog_sandbox", "--port", "0", *arguments, folder=tmp_path)
    assert (ended.status, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert ended.stderr.startswith("levelog_sandbox: ")
    assert ended.stderr.count("\n") == 1


async def test_the_objects_of_a_folder_are_there_once_it_listens(tmp_path: Path) -> None:
    folder = tmp_path / "operator"
    folder.mkdir()
    for name, file in (("z-definition.yaml", "crd.yaml"), ("a-shop.yml", "shop.yaml"), ("webs.py", "webs.py")):
        shutil.copy(WEBS / file, folder / name)
    url = f"http://127.0.0.1:{free_port()}"
    port = url.rpartition(":")[2]
    with Process(
        [sys.executable, "-m", "levelog_sandbox", "--port", port, "--create", str(folder)], tmp_path / "log"
    ) as process:
        async with aiohttp.ClientSession() as http:

            async def listens() -> bool:
                process.check()
                try:
                    async with http.get(f"{url}/readyz") as answer:
                        return answer.status == 200
                except aiohttp.ClientConnectorError:
                    return False

            await until(listens, "a sandbox that listens")
            async with http.get(url + SHOP) as answer:
                assert answer.status == 200
