"""Namespaces by patterns, from a server that also says what cannot be read."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import cast

import msgspec

from levelog_ingest.namespaces import matched_namespaces
from levelog_kube.client import Answer, KubeClient

NAMED = ({"metadata": {"name": name}} for name in ("team-a", "team-b"))
GARBLED = ({"metadata": {"name": 7}}, {"metadata": None}, "nothing", {"metadata": {"name": "\0" * 300}})


class Server:
    """Lists one namespace, then tells of another; both among objects that have no name."""

    def __init__(self) -> None:
        self._listed, self._told = (msgspec.json.encode([*GARBLED, named]) for named in NAMED)

    async def request(self, method: str, path: str, *, query: Mapping[str, str]) -> Answer:
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
