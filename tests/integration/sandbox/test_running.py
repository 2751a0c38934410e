"""The sandbox as a server: its options, its history, its ends."""

import asyncio
import json
import signal
import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest

from levelog_sandbox import Denial, Sandbox
from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs, webs_of
from rigs.waiting import until

CONTAINERS = {"containers": [{"name": "c", "image": "x"}]}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": CONTAINERS}


async def test_pods_run_at_once_when_asked_to_and_end_at_once_when_deleted() -> None:
    async with Sandbox(pods_run=True) as sandbox:
        sandbox.user.create(POD)
        pod = sandbox.user.get("pods", "a")
        assert pod["status"]["phase"] == "Running"
        assert pod["status"]["containerStatuses"][0]["ready"] is True
        bound = {**POD, "metadata": {"name": "b"}, "spec": {**CONTAINERS, "nodeName": "n"}}
        sandbox.user.create(bound)
        sandbox.user.delete("pods", "b")
        assert [pod["metadata"]["name"] for pod in sandbox.user.list("pods")] == ["a"]


async def test_compacting_makes_older_watches_end_in_410_but_not_those_that_run(
    sandbox: Sandbox, api: ClusterClient
) -> None:
    webs = await webs_of(api, "default")
    old = (await webs.create("a")).version
    async with api.watch(webs.path, resourceVersion=old) as running:
        await webs.create("b")
        assert sandbox.compact() == sandbox.store.revision
        async with api.watch(webs.path, resourceVersion=old) as late:
            error = await late.next()
            with pytest.raises(EOFError):
                await late.next()
        assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
        await webs.create("c")
        assert [(await running.next())["object"]["metadata"]["name"] for _ in range(2)] == ["b", "c"]


async def test_history_beyond_its_limit_is_forgotten() -> None:
    async with Sandbox(history=3) as sandbox, ClusterClient(sandbox.url) as api:
        webs = await webs_of(api, "default")
        versions = [(await webs.create(name)).version for name in "abcde"]
        async with api.watch(webs.path, resourceVersion=versions[0]) as events:
            assert (await events.next())["type"] == "ERROR"
        events_since = await api.watched(webs.path, 3, resourceVersion=versions[1])
        assert [event["object"]["metadata"]["name"] for event in events_since] == list("cde")


async def test_a_quiet_watch_gets_bookmarks_and_a_last_one_before_its_end() -> None:
    async with Sandbox(bookmark_seconds=0.05) as sandbox, ClusterClient(sandbox.url) as api:
        path = "/api/v1/configmaps"
        async with api.watch(path, allowWatchBookmarks="true") as events:
            first = await events.next()
            sandbox.user.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "elsewhere"}})
            second = await events.next()
        assert (first["type"], second["type"]) == ("BOOKMARK", "BOOKMARK")
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (first, second)]
        assert versions == [sandbox.store.revision - 1, sandbox.store.revision]
    async with Sandbox() as sandbox, ClusterClient(sandbox.url) as api:
        query = {"allowWatchBookmarks": "true", "timeoutSeconds": "3"}
        async with api.watch(path, **query) as events:
            assert [event["type"] for event in await events.rest()] == ["BOOKMARK"]


async def test_watches_can_all_be_ended(sandbox: Sandbox, webs: Webs) -> None:
    async with webs.api.watch(webs.path) as events:
        await webs.create("a")
        sandbox.end_watches()
        assert [event["type"] for event in await events.rest()] == ["ADDED"]


async def test_a_client_that_leaves_its_watch_is_forgotten(sandbox: Sandbox, webs: Webs) -> None:
    listeners = sandbox.store.collection("webs.contract.example.com").listeners
    async with webs.api.watch(webs.path):
        assert len(listeners) == 1
    await until(lambda: not listeners, "the watcher gone")


async def test_denied_requests_are_forbidden_and_a_review_says_so() -> None:
    denials = [Denial("list", "pods"), Denial("patch", "webs.contract.example.com", subresource="status")]
    async with Sandbox(denials=denials) as sandbox, ClusterClient(sandbox.url) as api:
        refused = await api.get("/api/v1/pods")
        assert (refused.code, refused.reason) == (403, "Forbidden")
        assert refused.body["message"] == (
            'pods is forbidden: User "sandbox-user" cannot list resource "pods" in API group "" at the cluster scope'
        )
        webs = await webs_of(api, "default")
        await webs.create("a")
        refused = await api.apply(webs.at("a", "status"), webs.manifest("a", status={}))
        assert refused.body["message"].startswith('webs.contract.example.com "a" is forbidden: ')
        assert 'resource "webs/status"' in refused.body["message"]

        async def is_allowed(**attributes: str) -> bool:
            review = {"spec": {"resourceAttributes": attributes}}
            answer = await api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            return bool(answer.body["status"]["allowed"])

        assert not await is_allowed(verb="list", resource="pods")
        assert await is_allowed(verb="watch", resource="pods")
        sandbox.access.denials.clear()
        assert await is_allowed(verb="list", resource="pods")


async def test_times_are_those_of_the_given_clock() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    async with Sandbox(clock=lambda: noon) as sandbox:
        made = sandbox.user.create(POD)
        assert made["metadata"]["creationTimestamp"] == "2026-01-01T12:00:00Z"
        sandbox.user.patch("pods", "a", {"metadata": {"finalizers": ["example.com/hold"]}})
        marked = sandbox.user.delete("pods", "a")
        assert datetime.fromisoformat(marked["metadata"]["deletionTimestamp"]) - noon == timedelta(0)
        assert sandbox.requests[-1].at == noon


async def test_garbage_is_collected_in_the_collectors_own_name(sandbox: Sandbox) -> None:
    owner = sandbox.user.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    sandbox.user.create({**POD, "metadata": {"name": "a", "ownerReferences": [reference]}})
    sandbox.user.delete("configmaps", "owner")
    collector = "levelog-sandbox-garbage-collector"
    await sandbox.requests.until(lambda log: bool(log.writes(user_agent=collector)))
    assert [(r.verb, r.resource, r.name) for r in sandbox.requests.writes(user_agent=collector)] == [
        ("delete", "pods", "a")
    ]


async def test_a_body_that_is_too_large_is_refused(sandbox: Sandbox) -> None:
    body = json.dumps({"metadata": {"name": "a"}, "data": {"x": "y" * 4_000_000}}).encode()
    async with aiohttp.ClientSession() as session:
        path = f"{sandbox.url}/api/v1/namespaces/default/configmaps"
        async with session.post(path, data=BytesIO(body), headers={"Content-Type": "application/json"}) as refused:
            assert refused.status == 413
            assert (await refused.json())["reason"] == "RequestEntityTooLarge"


async def test_it_runs_as_a_program_until_it_is_told_to_end(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "deep" / "kubeconfig"
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "levelog_sandbox",
        "--port=0",
        f"--kubeconfig={kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        url = (await asyncio.wait_for(program.stdout.readline(), 30)).decode().strip()
        assert kubeconfig.stat().st_mode & 0o077 == 0
        assert json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == url
        async with ClusterClient(url) as api, api.watch("/api/v1/pods"):
            program.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(program.wait(), 30) == 0
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
