"""How long a watch waits, what it says of itself for probes, and the namespaces that it is for."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec

from levelog.resources import EXTERNAL_GROUP
from levelog_base.wire.objects import GroupResource, Version
from levelog_ingest.namespaces import matched_namespaces
from levelog_ingest.status import Backoff, ResourceStatus, WatchedResource
from levelog_kube.client import Answer, KubeClient

SECOND = timedelta(seconds=1)


def test_waits_grow_to_the_longest_and_never_past_it() -> None:
    backoff = Backoff(first=SECOND, longest=8 * SECOND)
    waits = [backoff.failed() for _ in range(100)]
    for wait, most in zip(waits, [1, 2, 4, 8, 8, 8], strict=False):
        assert most * SECOND / 2 <= wait <= most * SECOND
    assert max(waits) <= 8 * SECOND


def test_success_begins_anew() -> None:
    backoff = Backoff(first=SECOND, longest=60 * SECOND)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.failed() <= SECOND


def test_what_the_server_asks_for_is_the_least() -> None:
    assert Backoff(first=SECOND, longest=2 * SECOND).failed(30 * SECOND) == 30 * SECOND


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
SILENCE = timedelta(seconds=100)
LATER = NOON + SILENCE + timedelta(seconds=1)
PODS = WatchedResource(resource=GroupResource("", "pods"), version="v1")


def test_a_watch_says_what_is_wrong_until_it_hears_again() -> None:
    status = ResourceStatus(watched=PODS, objects=300, silence=SILENCE)
    assert status.trouble(NOON) == "pods: not listed yet, 300 objects so far"
    status.version, status.last_contact = Version(7), NOON
    assert status.trouble(NOON + SILENCE) == ""
    assert status.trouble(LATER) == f"pods: nothing heard for {(LATER - NOON).total_seconds():.0f} s"
    status.detail = "may not list and watch pods"
    assert status.trouble(NOON) == "pods: may not list and watch pods"


def test_a_source_may_be_silent_for_as_long_as_it_likes() -> None:
    source = WatchedResource(resource=GroupResource(EXTERNAL_GROUP, "readings"), version="v1")
    assert ResourceStatus(watched=source, version=Version(1), last_contact=NOON).trouble(LATER) == ""


NAMED = ({"metadata": {"name": name}} for name in ("team-a", "team-b"))
GARBLED = ({"metadata": {"name": 7}}, {"metadata": None}, "nothing", {"metadata": {"name": "\0" * 300}})


class Server:
    """Lists one namespace, then tells of another; both among objects that have no name."""

    def __init__(self) -> None:
        self._listed, self._told = (msgspec.json.encode([*GARBLED, named]) for named in NAMED)

    async def request(self, method: str, path: str, *, query: Mapping[str, str], **_: object) -> Answer:
        return Answer(status=200, headers={}, body=b'{"metadata":{"resourceVersion":"7"},"items":%b}' % self._listed)

    @asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str]) -> AsyncGenerator[AsyncIterator[list[bytes]]]:
        async def lines() -> AsyncIterator[list[bytes]]:
            for told in msgspec.json.decode(self._told):
                yield [msgspec.json.encode({"type": "ADDED", "object": told})]

        yield lines()


async def test_a_namespace_that_cannot_be_read_holds_up_no_other() -> None:
    async with aclosing(
        cast("AsyncGenerator[tuple[str, ...]]", matched_namespaces(cast("KubeClient", Server()), ["team-*"]))
    ) as found:
        assert await anext(found) == ("team-a",)
        assert await anext(found) == ("team-a", "team-b")
