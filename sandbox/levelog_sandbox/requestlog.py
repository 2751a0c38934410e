"""The log of all requests: who asked, for what, and whether it changed anything. Tests and the demo read it."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, logged when it was answered; a watch is logged when it starts.

    `number` counts up from 1; `verb` is Kubernetes' (get, list, watch, create, update, patch, apply, delete,
    deletecollection); `resource` is `plural` or `plural.group`; `changed` says whether a stored object did.
    """

    number: int
    at: datetime
    method: str
    path: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    user_agent: str
    field_manager: str
    status_code: int
    changed: bool


ObjectId = tuple[str, str, str]


class RequestLog:
    """The latest requests, oldest first; iterable, indexable, with a length."""

    def __init__(self, *, most: int = 500_000) -> None:
        self._requests: deque[LoggedRequest] = deque(maxlen=most)
        self._last = 0
        self._waiting: set[asyncio.Event] = set()

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(tuple(self._requests))

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, index: int) -> LoggedRequest:
        return self._requests[index]

    @property
    def last(self) -> int:
        """The number of the latest request; what comes later has a higher one."""
        return self._last

    def next_number(self) -> int:
        """The number for a request that is about to be added."""
        self._last += 1
        return self._last

    def add(self, request: LoggedRequest) -> None:
        """Append a request and wake those who wait for one."""
        self._requests.append(request)
        for event in self._waiting:
            event.set()

    def since(self, number: int = 0, *, user_agent: str = "") -> list[LoggedRequest]:
        """Requests with a higher number, of user agents that start with the given one."""
        return [r for r in self._requests if r.number > number and r.user_agent.startswith(user_agent)]

    def writes(self, *, since: int = 0, resource: str = "", user_agent: str = "") -> list[LoggedRequest]:
        """Effective writes only: those after which a stored object was another one."""
        return [r for r in self.since(since, user_agent=user_agent) if r.changed and resource in {"", r.resource}]

    def writes_by_object(self, *, since: int = 0, resource: str = "", user_agent: str = "") -> "Counter[ObjectId]":
        """The number of effective writes of each object, by resource, namespace and name."""
        writes = self.writes(since=since, resource=resource, user_agent=user_agent)
        return Counter((r.resource, r.namespace, r.name) for r in writes)

    async def until(self, is_met: "Callable[[RequestLog], bool]", *, timeout_seconds: float = 10.0) -> None:
        """Wait until the log meets a condition; looks again after each request. Raises `TimeoutError`."""
        added = asyncio.Event()
        self._waiting.add(added)
        try:
            async with asyncio.timeout(timeout_seconds):
                while not is_met(self):
                    added.clear()
                    await added.wait()
        finally:
            self._waiting.discard(added)

    def clear(self) -> None:
        """Forget all requests; numbers go on."""
        self._requests.clear()
