"""A client of any Kubernetes API that hides nothing, with which the contract suite asks."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

Json = dict[str, Any]

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
# Longer than any server needs to answer, and to show a change to a watch, on a busy machine.
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """What came back; `body` is decoded where it is JSON, else text."""

    code: int
    body: Any
    raw: bytes
    content_type: str
    warnings: tuple[str, ...]

    @property
    def metadata(self) -> Json:
        metadata: Json = self.body["metadata"]
        return metadata

    @property
    def version(self) -> str:
        version: str = self.metadata["resourceVersion"]
        return version

    @property
    def reason(self) -> str:
        reason: str = self.body.get("reason", "")
        return reason

    @property
    def names(self) -> list[str]:
        """Of the items of a list, in order."""
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def faults(self) -> set[tuple[str, str]]:
        """Field and reason of each cause of a refusal."""
        return {(cause["field"], cause["reason"]) for cause in self.body.get("details", {}).get("causes", ())}


class Events:
    """A running watch: what it has shown, one event at a time."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> Json:
        """The next event; raises `EOFError` when the server has ended the watch."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self._answer.content.readline()
        if not line:
            raise EOFError("the watch has ended")
        event: Json = json.loads(line)
        return event

    async def rest(self) -> list[Json]:
        """Every event until the server ends the watch."""
        events: list[Json] = []
        while True:
            try:
                events.append(await self.next())
            except EOFError:
                return events


class ClusterClient:
    """One server, one connection pool, one user agent."""

    def __init__(self, url: str, *, ca_file: Path | None = None, token: str = "", user_agent: str = "contract") -> None:
        self.url = url
        headers = {"User-Agent": user_agent}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        tls = True if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE_SECONDS)
        connector = aiohttp.TCPConnector(ssl=tls)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout, read_bufsize=2**22)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; `body` is encoded unless it is text already."""
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            self._session.request(method, self.url + path, data=data, headers=headers, params=query) as answer,
        ):
            raw = await answer.read()
            is_json = answer.content_type == JSON
            warnings = tuple(answer.headers.getall("Warning", []))
            return Answer(
                answer.status, json.loads(raw) if is_json else raw.decode(), raw, answer.content_type, warnings
            )

    async def get(self, path: str, *, accept: str = JSON, **query: str) -> Answer:
        return await self.ask("GET", path, accept=accept, query=query)

    async def create(self, path: str, manifest: Json, **query: str) -> Answer:
        return await self.ask("POST", path, manifest, query=query)

    async def replace(self, path: str, manifest: Json, **query: str) -> Answer:
        return await self.ask("PUT", path, manifest, query=query)

    async def merge(self, path: str, patch: Any, **query: str) -> Answer:
        """A JSON merge patch."""
        return await self.ask("PATCH", path, patch, content_type=MERGE, query=query)

    async def patch(self, path: str, patch: Any, **query: str) -> Answer:
        """A strategic merge patch."""
        return await self.ask("PATCH", path, patch, content_type=STRATEGIC, query=query)

    async def change(self, path: str, *operations: Json, **query: str) -> Answer:
        """A JSON patch."""
        return await self.ask("PATCH", path, list(operations), content_type=JSON_PATCH, query=query)

    async def apply(self, path: str, manifest: Json | str, manager: str = "one", **query: str) -> Answer:
        """A server-side apply."""
        query = {"fieldManager": manager, **query}
        return await self.ask("PATCH", path, manifest, content_type=APPLY, query=query)

    async def delete(self, path: str, options: Json | None = None, **query: str) -> Answer:
        return await self.ask("DELETE", path, options, query=query)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = JSON, **query: str) -> AsyncGenerator[Events]:
        """A watch that the server has accepted; raises `AssertionError` when it answers anything but 200."""
        asked = {"watch": "1", "timeoutSeconds": "60", **query}
        async with self._session.get(self.url + path, headers={"Accept": accept}, params=asked) as answer:
            assert answer.status == 200, await answer.text()
            try:
                yield Events(answer)
            finally:
                # A watch is left in the middle of its answer: no use in closing TLS in order, which takes a while.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def watched(self, path: str, count: int, **query: str) -> list[Json]:
        """The first events of a watch."""
        async with self.watch(path, **query) as events:
            return [await events.next() for _ in range(count)]
