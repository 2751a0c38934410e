"""The request log: who asked what, and what it changed."""

import asyncio
import json

import aiohttp
import pytest

from levelog_sandbox import Sandbox, StatusError
from rigs.clusterclient import ClusterClient
from rigs.customresources import Webs

WEB = ("webs.contract.example.com", "default", "a")


async def test_each_request_is_logged_with_verb_object_and_answer(sandbox: Sandbox, webs: Webs) -> None:
    mark = sandbox.requests.last
    await webs.create("a")
    await webs.apply("a", {"mode": "fast"}, "manager")
    await webs.api.merge(webs.at("a", "status"), {"status": {"x": 1}})
    await webs.api.get(webs.path, labelSelector="a=b")
    await webs.api.get(webs.at("absent"))
    await webs.api.delete(webs.at("a"))
    logged = sandbox.requests.since(mark)
    assert [(r.verb, r.name, r.subresource, r.status_code, r.changed) for r in logged] == [
        ("create", "a", "", 201, True),
        ("apply", "a", "", 200, True),
        ("patch", "a", "status", 200, True),
        ("list", "", "", 200, False),
        ("get", "absent", "", 404, False),
        ("delete", "a", "", 200, True),
    ]
    assert {(r.resource, r.namespace, r.user_agent) for r in logged} == {
        ("webs.contract.example.com", "default", "operator/1.0")
    }
    assert [r.field_manager for r in logged] == ["operator", "manager", "operator", "", "", ""]
    assert [r.method for r in logged] == ["POST", "PATCH", "PATCH", "GET", "GET", "DELETE"]
    assert logged[3].path == f"{webs.path}?labelSelector=a%3Db"
    assert [r.number for r in logged] == list(range(mark + 1, mark + 7))


async def test_a_write_that_changes_nothing_is_logged_as_such(sandbox: Sandbox, webs: Webs) -> None:
    await webs.apply("a", {"image": "one"})
    mark = sandbox.requests.last
    await webs.apply("a", {"image": "one"})
    await webs.api.merge(webs.at("a"), {"spec": {"image": "one"}})
    await webs.apply("a", {"image": "two"}, "other")
    await webs.apply("b", {"image": "one"}, dryRun="All")
    assert [r.status_code for r in sandbox.requests.since(mark)] == [200, 200, 409, 201]
    assert sandbox.requests.writes(since=mark) == []


async def test_effective_writes_are_counted_by_object(sandbox: Sandbox, webs: Webs) -> None:
    mark = sandbox.requests.last
    await webs.create("a")
    await webs.create("b")
    for image in ("two", "three", "three"):
        await webs.apply("a", {"image": image}, force="true")
    sandbox.user.patch(WEB[0], "a", {"metadata": {"labels": {"by": "hand"}}})
    by_object = sandbox.requests.writes_by_object(since=mark, resource=WEB[0])
    assert by_object == {WEB: 4, (*WEB[:2], "b"): 1}
    assert sandbox.requests.writes_by_object(since=mark, user_agent="operator")[WEB] == 3
    assert sandbox.requests.writes_by_object(since=mark, user_agent="user") == {WEB: 1}


async def test_a_watch_is_logged_when_it_starts(sandbox: Sandbox, webs: Webs) -> None:
    mark = sandbox.requests.last
    async with webs.api.watch(webs.path):
        await sandbox.requests.until(lambda log: log.last > mark)
        (started,) = sandbox.requests.since(mark)
    assert (started.verb, started.status_code) == ("watch", 200)


async def test_the_log_is_waited_for(sandbox: Sandbox, webs: Webs) -> None:
    async def write() -> None:
        for name in "ab":
            await webs.create(name)

    writing = asyncio.create_task(write())
    await sandbox.requests.until(lambda log: len(log.writes(resource=WEB[0])) == 2)
    await writing
    with pytest.raises(TimeoutError):
        await sandbox.requests.until(lambda log: len(log) > 1_000, timeout_seconds=0.01)


async def test_refused_requests_are_logged_with_their_code(sandbox: Sandbox, api: ClusterClient) -> None:
    mark = sandbox.requests.last
    await api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "Bad Name"}})
    with pytest.raises(StatusError, match="not found"):
        sandbox.user.delete("configmaps", "absent")
    assert [(r.verb, r.status_code, r.changed) for r in sandbox.requests.since(mark)] == [
        ("create", 422, False),
        ("delete", 404, False),
    ]


async def test_it_is_read_over_http_a_line_each(sandbox: Sandbox, webs: Webs) -> None:
    await webs.create("before")
    mark = sandbox.requests.last
    await webs.create("a")
    await webs.api.get(webs.at("a"))
    sandbox.acting_as("other").create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}})

    async def asked(query: str) -> list[tuple[str, str]]:
        async with aiohttp.ClientSession() as http, http.get(f"{sandbox.url}/sandbox/requests?{query}") as answer:
            assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
            lines = [json.loads(line) for line in (await answer.text()).splitlines()]
            return [(line["verb"], line["name"]) for line in lines if line["number"] > mark]

    assert await asked(f"since={mark}") == [("create", "a"), ("get", "a"), ("create", "b")]
    assert await asked("changed") == [("create", "a"), ("create", "b")]
    assert await asked("user_agent=other&changed") == [("create", "b")]
    async with aiohttp.ClientSession() as http, http.get(f"{sandbox.url}/sandbox/requests?since=x") as answer:
        assert (answer.status, (await answer.json())["message"]) == (400, "since=x is no number")
