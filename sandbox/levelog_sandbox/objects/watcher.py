"""Watches: the events of a collection from a revision on, as encoded lines.

Limits: a watcher that reads slowly is not cut off; its lines queue in memory.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from levelog_sandbox.api import refusals
from levelog_sandbox.objects.pages import Matches
from levelog_sandbox.objects.revisions import ENCODER, Change, Collection, Stored, watch_line
from levelog_sandbox.schemas.registry import ServedResource

Json = dict[str, Any]


def bookmark_line(resource: ServedResource, revision: int, *, ends_initial_events: bool = False) -> bytes:
    """A BOOKMARK; the one that ends a streaming list carries the annotation that says so."""
    metadata: Json = {"resourceVersion": str(revision)}
    if ends_initial_events:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return watch_line("BOOKMARK", ENCODER.encode(body))


def error_line(error: refusals.StatusError) -> bytes:
    """An ERROR event."""
    return watch_line("ERROR", ENCODER.encode(error.status))


class WatchQueue:
    """One client's view of a collection: a queue of lines, filled by every change that its selectors show.

    An object that leaves the selectors is shown as DELETED, one that enters them as ADDED.
    """

    def __init__(
        self, collection: Collection, resource: ServedResource, namespace: str, matches: Matches | None, name: str = ""
    ) -> None:
        self._collection = collection
        self.resource = resource
        self._namespace = namespace
        self._name = name
        self._matches = matches
        self._lines: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self.is_ended = False

    def __enter__(self) -> Self:
        self._collection.listeners.add(self.offer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._collection.listeners.discard(self.offer)

    def shows(self, stored: Stored | None) -> bool:
        """Whether the selectors show an object; nothing is never shown."""
        return (
            stored is not None
            and (not self._namespace or stored.namespace == self._namespace)
            and (not self._name or stored.name == self._name)
            and (self._matches is None or self._matches(stored.body))
        )

    def offer(self, change: Change) -> None:
        """Show a change, if the selectors do."""
        was_shown, is_shown = self.shows(change.before), self.shows(change.after)
        if is_shown:
            self.send(change.line("MODIFIED" if was_shown else "ADDED", self.resource))
        elif was_shown:
            if change.after is None:
                self.send(change.line("DELETED", self.resource))
            else:
                self.send(watch_line("DELETED", self._as_it_left(change)))

    def _as_it_left(self, change: Change) -> bytes:
        """The object before it left the selectors, at the revision at which it left."""
        assert change.before is not None  # noqa: S101 - it was shown
        body = change.before.body_as(self.resource)
        metadata = {**body["metadata"], "resourceVersion": str(change.revision)}
        return ENCODER.encode({**body, "metadata": metadata})

    def send_initial(self, objects: Iterable[Stored]) -> None:
        """Show objects that are there already as ADDED."""
        for stored in objects:
            if self.shows(stored):
                self._lines.append(watch_line("ADDED", stored.encoded_as(self.resource)))
        self._filled.set()

    def send(self, line: bytes) -> None:
        """Queue a line."""
        self._lines.append(line)
        self._filled.set()

    def end(self) -> None:
        """Let the client read what is queued, then close."""
        self.is_ended = True
        self._filled.set()

    async def wait(self, until: float) -> None:
        """Wait until something is queued, the watch has ended, or the loop's clock shows `until`."""
        try:
            async with asyncio.timeout_at(until):
                await self._filled.wait()
        except TimeoutError:
            return

    def take(self) -> list[bytes]:
        """Everything queued, which the queue then no longer holds."""
        self._filled.clear()
        lines = list(self._lines)
        self._lines.clear()
        return lines
