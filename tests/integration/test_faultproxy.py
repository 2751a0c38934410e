"""Each action of the fault proxy does what it says, before the sandbox and before a real API server."""

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from levelog_kube.client import connect
from levelog_kube.failures import ApiError, NoAnswer, Unreachable
from levelog_sandbox import Sandbox
from rigs.api import APPLY, Api
from rigs.apirequests import asks, at
from rigs.askonce import NotAnswered
from rigs.controlplane import ControlPlane
from rigs.faultproxy import FaultProxy
from rigs.faults import (
    CutLine,
    Delay,
    DropBookmarks,
    DropWatch,
    ExpireWatch,
    FailAfter,
    FailBefore,
    ForwardTwice,
    Hold,
    Refuse,
    StallWatch,
    Strike,
)
from rigs.hangups import HangUp
from rigs.waiting import until

pytestmark = pytest.mark.long  # of a rig, which seldom changes


@dataclass(frozen=True)
class Proxied:
    """A proxy, the API through it, the same past it, and a path of ConfigMaps that no other test has."""

    proxy: FaultProxy
    api: Api
    direct: Api
    namespace: str
    path: str

    async def create(self, name: str) -> tuple[int, Any]:
        return await self.api.request("POST", self.path, {"metadata": {"name": name}})

    async def exists(self, name: str) -> bool:
        return (await self.direct.request("GET", f"{self.path}/{name}"))[0] == 200

    async def create_past_it(self, *names: str) -> None:
        for name in names:
            await self.direct.create(self.path, {"metadata": {"name": name}})

    @asynccontextmanager
    async def watch(self, **query: str) -> AsyncGenerator["Watch"]:
        """A watch through the proxy from now on."""
        if "sendInitialEvents" not in query:
            _, listed = await self.direct.request("GET", self.path)
            query.setdefault("resourceVersion", listed["metadata"]["resourceVersion"])
        with socket.socket() as connection:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, ("127.0.0.1", self.proxy.port))
            target = f"{self.path}?{urlencode({'watch': '1', **query})}"
            credentials = f"Authorization: Bearer {self.direct.token}\r\n" if self.direct.token else ""
            await loop.sock_sendall(connection, f"GET {target} HTTP/1.1\r\nHost: x\r\n{credentials}\r\n".encode())
            watch = Watch(connection)
            assert (await watch.line()).startswith(b"HTTP/1.1 200 ")
            while await watch.line() != b"\r\n":
                pass
            yield watch


class Watch:
    """The client's end of a watch, on a bare socket: the client library loses what comes shortly before a reset."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._body = b""

    async def next(self, *, seconds: float = 30.0) -> str | None:
        """Type and name of the next event; None at the end of the body.

        Raises ConnectionAbortedError when the connection ends within the body, ConnectionResetError when by a reset.
        """
        async with asyncio.timeout(seconds):
            while b"\n" not in self._body:
                if not (chunk := await self._chunk()):
                    return None
                self._body += chunk
        line, _, self._body = self._body.partition(b"\n")
        event = json.loads(line)
        shown = event["object"].get("code") or event["object"]["metadata"].get("name", "")
        return f"{event['type']} {shown}".strip()

    async def rest(self) -> bytes:
        """What still comes before the connection breaks."""
        try:
            while True:
                self._body += await self._chunk()
        except (ConnectionAbortedError, ConnectionResetError):
            return self._body

    async def line(self) -> bytes:
        while b"\r\n" not in self._received:
            await self._receive()
        line, end, self._received = self._received.partition(b"\r\n")
        return line + end

    async def _chunk(self) -> bytes:
        size = int(await self.line(), 16)
        while len(self._received) < size + 2:
            await self._receive()
        chunk, self._received = self._received[:size], self._received[size + 2 :]
        return chunk

    async def _receive(self) -> None:
        piece = await asyncio.get_running_loop().sock_recv(self._connection, 65_536)
        if not piece:
            raise ConnectionAbortedError(f"ended after {self._received!r}")
        self._received += piece


@asynccontextmanager
async def proxied(direct: Api) -> AsyncGenerator[Proxied]:
    namespace = await direct.create_namespace()
    async with FaultProxy(direct.url, ca_file=direct.ca_file) as proxy:
        api = Api(proxy.url, token=direct.token)
        yield Proxied(proxy, api, direct, namespace, f"/api/v1/namespaces/{namespace}/configmaps")


@pytest_asyncio.fixture
async def sandboxed() -> AsyncIterator[Proxied]:
    async with Sandbox(bookmark_seconds=0.02) as sandbox, proxied(Api(sandbox.url)) as setup:
        yield setup


@pytest_asyncio.fixture
async def real(control_plane: ControlPlane) -> AsyncIterator[Proxied]:
    async with proxied(control_plane.admin) as setup:
        yield setup


@pytest.fixture(params=["sandboxed", "real"], ids=["sandbox", "kube-apiserver"])
def setup(request: pytest.FixtureRequest) -> Proxied:
    found: Proxied = request.getfixturevalue(request.param)
    return found


async def test_what_no_rule_takes_passes_unchanged_and_is_logged(setup: Proxied) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "ä/ %25"}}
    asked = [
        await setup.create("a"),
        await setup.api.request("PATCH", f"{setup.path}/b?fieldManager=t", manifest, content_type=APPLY),
        await setup.api.request("GET", f"{setup.path}/a"),
        await setup.api.request("GET", f"{setup.path}?limit=1"),
        await setup.api.request("DELETE", f"{setup.path}/a"),
        await setup.api.request("GET", f"{setup.path}/a"),
        await setup.api.request("GET", "/version"),
    ]

    _, stored = await setup.direct.request("GET", f"{setup.path}/b")
    assert asked[1] == (201, stored)
    assert asked[6] == await setup.direct.request("GET", "/version")
    assert [status for status, _ in asked] == [201, 201, 200, 200, 200, 404, 200]
    assert [exchange.given for exchange in setup.proxy.log] == [201, 201, 200, 200, 200, 404, 200]
    assert [exchange.answers[0].status for exchange in setup.proxy.log] == [201, 201, 200, 200, 200, 404, 200]
    assert [exchange.request.number for exchange in setup.proxy.log] == list(range(1, 8))
    assert [str(point) for point in setup.proxy.log.points()] == [
        f"create configmaps/{setup.namespace}/a #1",
        f"patch configmaps/{setup.namespace}/b #1",
        f"get configmaps/{setup.namespace}/a #1",
        f"list configmaps/{setup.namespace} #1",
        f"delete configmaps/{setup.namespace}/a #1",
        f"get configmaps/{setup.namespace}/a #2",
        "get /version #1",
    ]


@pytest.mark.parametrize(
    ("method", "path", "point"),
    [
        ("GET", "/api/v1/namespaces/a", ("get", "namespaces", "", "a", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=true", ("watch", "pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=0", ("list", "pods", "a", "", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "namespaces", "", "a", "finalize")),
        ("PATCH", "/apis/x.io/v1/namespaces/a/webs/b%2Fc/status", ("patch", "webs.x.io", "a", "b/c", "status")),
        ("DELETE", "/apis/x.io/v1/webs", ("deletecollection", "webs.x.io", "", "", "")),
        ("GET", "/apis/x.io/v1", ("get", "/apis/x.io/v1", "", "", "")),
        ("GET", "/api/v1", ("get", "/api/v1", "", "", "")),
    ],
)
async def test_a_request_is_known_by_its_verb_and_object(
    sandboxed: Proxied, method: str, path: str, point: tuple[str, ...]
) -> None:
    rule = sandboxed.proxy.add(Refuse(code=503), lambda _: True)
    await sandboxed.api.request(method, path)
    assert rule.applied[0].point == (*point, 1)
    assert rule.applied[0].path == path.partition("?")[0]


async def test_events_of_a_watch_arrive_as_they_come(setup: Proxied) -> None:
    async with setup.watch() as watch:
        for name in ("a", "b"):
            await setup.create_past_it(name)
            assert await watch.next() == f"ADDED {name}"
        assert [watched.lines for watched in setup.proxy.watches] == [2]


async def test_a_watch_whose_client_left_is_closed(setup: Proxied) -> None:
    async with setup.watch():
        assert len(setup.proxy.watches) == 1

    async def is_closed() -> bool:
        return not setup.proxy.watches

    await until(is_closed, "no watch")


@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (410, "Expired"), (500, "InternalError")])
async def test_a_refused_request_is_answered_with_a_status_and_not_forwarded(
    setup: Proxied, code: int, reason: str
) -> None:
    setup.proxy.add(Refuse(code=code), asks("create", "configmaps"))

    status, answer = await setup.create("a")

    assert (status, answer["kind"], answer["code"], answer["reason"]) == (code, "Status", code, reason)
    assert (setup.proxy.log[0].answers, setup.proxy.log[0].given) == ([], code)
    assert not await setup.exists("a")
    assert (await setup.create("a"))[0] == 201


async def test_a_client_reads_after_which_time_it_may_ask_again(setup: Proxied, tmp_path: Path) -> None:
    setup.proxy.add(Refuse(code=429, retry_after=7), asks("get", "configmaps"))
    async with await connect(setup.proxy.kubeconfig(tmp_path / "kubeconfig", token=setup.direct.token)) as client:
        with pytest.raises(ApiError) as refusal:
            await client.request("GET", f"{setup.path}/a")
    assert (refusal.value.status, refusal.value.retry_after) == (429, timedelta(seconds=7))


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_request_that_fails_before_was_not_forwarded(setup: Proxied, how: HangUp) -> None:
    setup.proxy.add(FailBefore(how=how), asks("create", "configmaps"))
    with pytest.raises(NotAnswered):
        await setup.create("a")
    assert (setup.proxy.log[0].answers, setup.proxy.log[0].given) == ([], None)
    assert not await setup.exists("a")


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_request_that_fails_after_took_effect(setup: Proxied, how: HangUp) -> None:
    rule = setup.proxy.add(FailAfter(how=how), asks("create", "configmaps"))
    with pytest.raises(NotAnswered):
        await setup.create("a")
    assert ([answer.status for answer in setup.proxy.log[0].answers], setup.proxy.log[0].given) == ([201], None)
    assert rule.applied[0].name == "a"
    assert await setup.exists("a")


async def test_a_watch_can_fail_before_and_after(setup: Proxied) -> None:
    setup.proxy.add(FailBefore(), asks("watch"))
    setup.proxy.add(FailAfter(), asks("watch"))
    setup.proxy.add(Refuse(code=410), asks("watch"))
    for _ in range(2):
        with pytest.raises(NotAnswered):
            await setup.api.lines(f"{setup.path}?watch=1")
    status, _ = await setup.api.lines(f"{setup.path}?watch=1")
    assert status == 410
    assert [len(exchange.answers) for exchange in setup.proxy.log] == [0, 1, 0]


@pytest.mark.parametrize(("stage", "has_effect"), [("request", False), ("answer", True)])
async def test_a_held_request_is_never_answered(
    setup: Proxied, tmp_path: Path, stage: Literal["request", "answer"], has_effect: bool
) -> None:
    setup.proxy.add(Hold(stage=stage), asks("create", "configmaps"))
    body = msgspec.json.encode({"metadata": {"name": "a"}})
    async with await connect(setup.proxy.kubeconfig(tmp_path / "kubeconfig", token=setup.direct.token)) as client:
        # Long enough for the server's answer to reach the proxy; the client gives up only then.
        with pytest.raises(NoAnswer):
            await client.request("POST", setup.path, body=body, timeout=timedelta(seconds=2))
    assert setup.proxy.log[-1].given is None
    assert await setup.exists("a") is has_effect


@pytest.mark.parametrize(("stage", "has_effect"), [("request", False), ("answer", True)])
async def test_a_held_request_goes_on_when_it_is_released(
    setup: Proxied, stage: Literal["request", "answer"], has_effect: bool
) -> None:
    rule = setup.proxy.add(Hold(stage=stage), asks("create", "configmaps"))
    asking = asyncio.create_task(setup.create("a"))
    await rule.until_applied()
    assert await setup.exists("a") is has_effect
    assert not asking.done()

    rule.release()

    assert (await asking)[0] == 201
    assert await setup.exists("a")


@pytest.mark.parametrize("stage", ["request", "answer"])
async def test_a_delayed_request_takes_longer(sandboxed: Proxied, stage: Literal["request", "answer"]) -> None:
    sandboxed.proxy.add(Delay(seconds=0.2, stage=stage), asks("create", "configmaps"))
    begun = time.monotonic()
    assert (await sandboxed.create("a"))[0] == 201
    assert time.monotonic() - begun >= 0.2


async def test_a_request_forwarded_twice_is_answered_once(setup: Proxied) -> None:
    setup.proxy.add(ForwardTwice(), asks("create", "configmaps"))
    status, answer = await setup.create("a")
    assert (status, answer["reason"]) == (409, "AlreadyExists")
    assert [answer.status for answer in setup.proxy.log[0].answers] == [201, 409]


@pytest.mark.parametrize(("stage", "had_effect"), [("request", False), ("answer", True)])
async def test_a_strike_happens_at_its_stage(
    sandboxed: Proxied, stage: Literal["request", "answer"], had_effect: bool
) -> None:
    seen: list[bool] = []

    def strike() -> None:
        seen.append(any(exchange.answers for exchange in sandboxed.proxy.log))

    sandboxed.proxy.add(Strike(call=strike, stage=stage), asks("create", "configmaps"))
    assert (await sandboxed.create("a"))[0] == 201
    assert seen == [had_effect]


@pytest.mark.parametrize(("stage", "had_effect"), [("request", False), ("answer", True)])
async def test_nothing_follows_the_last_strike(
    setup: Proxied, stage: Literal["request", "answer"], had_effect: bool
) -> None:
    strikes: list[str] = []
    setup.proxy.add(Strike(call=lambda: strikes.append(stage), stage=stage, is_last=True), asks("create", "configmaps"))
    with pytest.raises(NotAnswered):
        await setup.create("a")
    assert strikes == [stage]
    assert await setup.exists("a") is had_effect


async def test_a_strike_that_fails_is_not_silent(sandboxed: Proxied) -> None:
    def strike() -> None:
        raise LookupError("nothing to strike")

    async def run() -> None:
        async with FaultProxy(sandboxed.direct.url) as proxy:
            proxy.add(Strike(call=strike, stage="request"), asks("get"))
            async with aiohttp.ClientSession() as session, session.get(f"{proxy.url}/version") as answer:
                assert answer.status == 500

    with pytest.raises(LookupError, match="nothing to strike"):
        await run()


@pytest.mark.parametrize("how", ["end", "fin", "reset"])
@pytest.mark.parametrize("after", [0, 2])
async def test_a_watch_is_dropped_after_so_many_lines(setup: Proxied, how: HangUp | Literal["end"], after: int) -> None:
    rule = setup.proxy.add(DropWatch(after_lines=after, how=how), asks("watch", "configmaps"))
    async with setup.watch() as watch:
        await setup.create_past_it("a", "b", "c")
        assert [await watch.next() for _ in range(after)] == ["ADDED a", "ADDED b"][:after]
        await assert_ended(watch, how)
    await rule.until_applied()


@pytest.mark.parametrize("how", ["end", "fin", "reset"])
async def test_an_open_watch_can_be_dropped_at_any_time(setup: Proxied, how: HangUp | Literal["end"]) -> None:
    async with setup.watch() as watch:
        await setup.create_past_it("a")
        assert await watch.next() == "ADDED a"
        setup.proxy.watches[0].drop(how)
        await assert_ended(watch, how)


async def assert_ended(watch: Watch, how: HangUp | Literal["end"]) -> None:
    if how == "end":
        assert await watch.next() is None
        return
    with pytest.raises(ConnectionAbortedError if how == "fin" else ConnectionResetError):
        await watch.next()


async def test_a_stalled_watch_stays_open_and_loses_nothing(setup: Proxied) -> None:
    rule = setup.proxy.add(StallWatch(after_lines=1), asks("watch", "configmaps"))
    async with setup.watch() as watch, setup.watch() as undisturbed:
        await setup.create_past_it("a", "b", "c")
        assert await watch.next() == "ADDED a"
        await rule.until_applied()
        assert [await undisturbed.next() for _ in range(3)] == ["ADDED a", "ADDED b", "ADDED c"]
        with pytest.raises(TimeoutError):
            await watch.next(seconds=0.2)

        rule.release()

        assert [await watch.next() for _ in range(2)] == ["ADDED b", "ADDED c"]


async def test_an_open_watch_can_be_stalled_at_any_time(setup: Proxied) -> None:
    async with setup.watch() as watch, setup.watch() as undisturbed:
        setup.proxy.watches[0].stall()
        await setup.create_past_it("a")
        assert await undisturbed.next() == "ADDED a"
        with pytest.raises(TimeoutError):
            await watch.next(seconds=0.2)
        setup.proxy.watches[0].resume()
        assert await watch.next() == "ADDED a"


async def test_a_watch_is_told_that_its_history_expired(setup: Proxied) -> None:
    setup.proxy.add(ExpireWatch(after_lines=1), asks("watch", "configmaps"))
    async with setup.watch() as watch:
        await setup.create_past_it("a", "b")
        assert [await watch.next() for _ in range(3)] == ["ADDED a", "ERROR 410", None]


async def test_an_open_watch_can_be_expired_at_any_time(setup: Proxied) -> None:
    async with setup.watch() as watch:
        await setup.proxy.watches[0].expire()
        assert [await watch.next() for _ in range(2)] == ["ERROR 410", None]


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_watch_breaks_off_within_a_line(setup: Proxied, how: HangUp) -> None:
    rule = setup.proxy.add(CutLine(after_lines=1, how=how), asks("watch", "configmaps"))
    async with setup.watch() as watch:
        await setup.create_past_it("a", "b", "c")
        received = await watch.rest()
    assert len(rule.applied) == 1
    whole, half = received.split(b"\n")
    assert json.loads(whole)["object"]["metadata"]["name"] == "a"
    assert half.startswith(b'{"type":"ADDED"')
    with pytest.raises(json.JSONDecodeError):
        json.loads(half)


async def test_bookmarks_are_dropped_but_for_the_end_of_the_initial_events(sandboxed: Proxied) -> None:
    sandboxed.proxy.add(DropBookmarks(), asks("watch", "configmaps"))
    await sandboxed.create_past_it("a")
    streaming = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with sandboxed.watch(**streaming) as disturbed, sandboxed.watch(**streaming) as watch:
        assert [await watch.next() for _ in range(4)] == ["ADDED a", "BOOKMARK", "BOOKMARK", "BOOKMARK"]
        await sandboxed.create_past_it("b")
        assert [await disturbed.next() for _ in range(3)] == ["ADDED a", "BOOKMARK", "ADDED b"]


async def test_a_rule_counts_its_matches(sandboxed: Proxied) -> None:
    rule = sandboxed.proxy.add(Refuse(code=503), asks("create", "configmaps"), nth=2, times=2)
    assert [(await sandboxed.create(name))[0] for name in "abcd"] == [201, 503, 503, 201]
    assert [request.name for request in rule.applied] == ["b", "c"]
    always = sandboxed.proxy.add(Refuse(code=409), asks("create", name="e"), times=None)
    assert [(await sandboxed.create("e"))[0] for _ in range(3)] == [409, 409, 409]
    sandboxed.proxy.remove(always)
    assert (await sandboxed.create("e"))[0] == 201


async def test_a_run_fails_at_each_of_its_points_in_turn() -> None:
    async def run(proxy: FaultProxy) -> list[int]:
        api, path = Api(proxy.url), "/api/v1/namespaces/default/configmaps"
        codes: list[int] = []
        for method, where, body in [("POST", path, {"metadata": {"name": "a"}}), ("GET", f"{path}/a", None)] * 2:
            codes.append((await api.request(method, where, body))[0])
        return codes

    async with Sandbox() as sandbox, FaultProxy(sandbox.url) as proxy:
        assert await run(proxy) == [201, 200, 409, 200]
        points = proxy.log.points()
    assert len(set(points)) == 4

    failed: list[list[int]] = []
    for point in points:
        async with Sandbox() as sandbox, FaultProxy(sandbox.url) as proxy:
            proxy.add(Refuse(code=503), at(point))
            failed.append(await run(proxy))
    assert failed == [[503, 404, 201, 200], [201, 503, 409, 200], [201, 200, 503, 200], [201, 200, 409, 503]]


async def test_only_writes_that_changed_something_are_counted(setup: Proxied) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}

    async def apply(value: str) -> None:
        changed = {**manifest, "data": {"k": value}}
        await setup.api.request("PATCH", f"{setup.path}/a?fieldManager=t", changed, content_type=APPLY)

    for value in ("1", "1", "2", "2"):
        await apply(value)
    await setup.create("a")  # exists
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    await setup.api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    setup.proxy.add(FailAfter(), asks("delete"))
    with pytest.raises(NotAnswered):
        await setup.api.request("DELETE", f"{setup.path}/a")

    writes = setup.proxy.log.effective_writes()
    assert [(request.number, request.verb) for request in writes] == [(1, "patch"), (3, "patch"), (7, "delete")]
    assert [request.number for request in setup.proxy.log.effective_writes(since=3)] == [7]


async def test_a_server_that_is_gone_looks_gone(sandboxed: Proxied) -> None:
    async with FaultProxy("http://127.0.0.1:1") as proxy:
        with pytest.raises(NotAnswered):
            await Api(proxy.url).request("GET", "/version")
        with pytest.raises(NotAnswered):
            await Api(proxy.url).lines("/api/v1/pods?watch=1")
        assert [exchange.answers for exchange in proxy.log] == [[], []]


async def test_a_server_that_breaks_off_a_watch_breaks_it_off_for_the_client(
    control_plane: ControlPlane,
) -> None:
    async with proxied(control_plane.admin) as setup, setup.watch() as watch:
        await setup.create_past_it("a")
        assert await watch.next() == "ADDED a"
        control_plane.kill()
        with pytest.raises(ConnectionAbortedError):
            await watch.next()
        await control_plane.start()


async def test_nothing_listens_after_the_end(setup: Proxied, tmp_path: Path) -> None:
    async with FaultProxy(setup.direct.url, ca_file=setup.direct.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", token=setup.direct.token)
        client = await connect(kubeconfig)
    async with client:
        with pytest.raises((NoAnswer, Unreachable)):
            await client.request("GET", "/version")
        with pytest.raises(Unreachable):
            await client.request("GET", "/version")


async def test_the_end_does_not_wait_for_what_is_held_or_watched(setup: Proxied) -> None:
    async with FaultProxy(setup.direct.url, ca_file=setup.direct.ca_file) as proxy:
        held = proxy.add(Hold(stage="answer"), asks("list"))
        api = Api(proxy.url, token=setup.direct.token)
        asking = [asyncio.create_task(api.lines(f"{setup.path}{query}")) for query in ("", "?watch=1", "?watch=1")]
        await held.until_applied()

        async def are_open() -> bool:
            return len(proxy.watches) == 2

        await until(are_open, "two watches")
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    ended = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(end, aiohttp.ClientError) for end in ended), ended


async def test_each_proxy_numbers_its_own_requests(sandboxed: Proxied) -> None:
    name = secrets.token_hex(4)
    async with FaultProxy(sandboxed.direct.url) as proxy:
        await Api(proxy.url).request("GET", f"{sandboxed.path}/{name}")
        assert [exchange.request.number for exchange in proxy.log] == [1]
    assert len(sandboxed.proxy.log) == 0
