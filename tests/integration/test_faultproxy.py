"""A fault of the fault proxy happens: where it does not, tests of faults pass and show nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import aiohttp
import pytest

from levelog_sandbox import Sandbox
from rigs.api import APPLY, Api
from rigs.apirequests import asks
from rigs.askonce import NotAnswered
from rigs.faultproxy import FaultProxy
from rigs.faults import Action, CutLine, FailAfter, FailBefore, ForwardTwice, Hold, Refuse, Strike

PATH = "/api/v1/namespaces/default/configmaps"
CREATES = asks("create", "configmaps")


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with Sandbox() as sandbox, FaultProxy(sandbox.url) as opened:
        yield opened


async def create(proxy: FaultProxy, name: str) -> tuple[int, Any]:
    return await Api(proxy.url).request("POST", PATH, {"metadata": {"name": name}})


def reached(proxy: FaultProxy) -> list[int]:
    return [answer.status for exchange in proxy.log for answer in exchange.answers]


@pytest.mark.parametrize(
    ("action", "answers", "given"),
    [
        (Refuse(code=503), [], 503),
        (FailBefore(), [], None),
        (FailBefore(how="reset"), [], None),
        (FailAfter(), [201], None),
        (FailAfter(how="reset"), [201], None),
        (ForwardTwice(), [201, 409], 409),
        (Strike(call=lambda: None, stage="request"), [201], 201),
        (Strike(call=lambda: None, stage="request", is_last=True), [], None),
        (Strike(call=lambda: None, stage="answer", is_last=True), [201], None),
    ],
)
async def test_the_server_sees_a_request_and_the_client_an_answer_as_the_fault_says(
    proxy: FaultProxy, action: Action, answers: list[int], given: int | None
) -> None:
    rule = proxy.add(action, CREATES)
    if given is None:
        with pytest.raises(NotAnswered):
            await create(proxy, "a")
    else:
        assert (await create(proxy, "a"))[0] == given
    assert (reached(proxy), proxy.log[0].given, len(rule.applied)) == (answers, given, 1)


@pytest.mark.parametrize(("stage", "answers"), [("request", []), ("answer", [201])])
async def test_a_held_request_waits_at_its_stage_until_it_is_released(
    proxy: FaultProxy, stage: Literal["request", "answer"], answers: list[int]
) -> None:
    rule = proxy.add(Hold(stage=stage), CREATES)
    asking = asyncio.create_task(create(proxy, "a"))
    await rule.until_applied()
    assert (reached(proxy), asking.done()) == (answers, False)
    rule.release()
    assert (await asking)[0] == 201


async def test_a_watch_breaks_off_within_a_line(proxy: FaultProxy) -> None:
    for name in ("a", "b"):
        await create(proxy, name)
    proxy.add(CutLine(after_lines=1), asks("watch"))
    async with aiohttp.ClientSession() as session, session.get(f"{proxy.url}{PATH}?watch=1") as answer:
        whole = await answer.content.readline()
        half = await answer.content.readany()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.readany()
    assert (whole[-1:], half[:15]) == (b"\n", b'{"type":"ADDED"')
    assert b"\n" not in half


async def test_a_rule_is_for_the_requests_from_the_nth_on_and_for_so_many(proxy: FaultProxy) -> None:
    rule = proxy.add(Refuse(code=503), CREATES, nth=2, times=2)
    assert [(await create(proxy, name))[0] for name in "abcd"] == [201, 503, 503, 201]
    assert [request.name for request in rule.applied] == ["b", "c"]


async def test_a_strike_that_fails_is_not_silent() -> None:
    def strike() -> None:
        raise LookupError("nothing to strike")

    async def run(sandbox: Sandbox) -> None:
        async with FaultProxy(sandbox.url) as proxy:
            proxy.add(Strike(call=strike, stage="request"), CREATES)
            assert (await create(proxy, "a"))[0] == 500

    async with Sandbox() as sandbox:
        with pytest.raises(LookupError, match="nothing to strike"):
            await run(sandbox)


async def test_only_writes_that_changed_something_are_counted(proxy: FaultProxy) -> None:
    api = Api(proxy.url)
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    for value in ("1", "1", "2", "2"):
        changed = {**manifest, "data": {"k": value}}
        await api.request("PATCH", f"{PATH}/a?fieldManager=t", changed, content_type=APPLY)
    await create(proxy, "a")  # exists
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    await api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    proxy.add(FailAfter(), asks("delete"))
    with pytest.raises(NotAnswered):
        await api.request("DELETE", f"{PATH}/a")

    writes = proxy.log.effective_writes()
    assert [(request.number, request.verb) for request in writes] == [(1, "patch"), (3, "patch"), (7, "delete")]
    assert [request.number for request in proxy.log.effective_writes(since=3)] == [7]
