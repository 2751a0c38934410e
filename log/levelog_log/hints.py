"""Hints on core NATS: tell another process that there is work, so that it need not poll."""

import asyncio
import secrets
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from levelog.errors import Unavailable
from levelog.wire.objects import Application, Cluster
from levelog.wire.subjects import hint_subject
from levelog_log.chains import ChainBreak
from levelog_log.transport.connection import Connection
from levelog_log.transport.wire import Message

LOST: Final = "lost"
"""The topic, for ingest, of what was lost or reordered inside the log: the message says what."""


class Topic(StrEnum):
    """The kind of work."""

    WAKE = "wake"
    """For processors: a wakeup is due, or keys of indices changed."""
    INTENT = "intent"
    """For actuators: there are intents, or the scope that they wait for has been opened."""
    LEASES = "leases"
    """For processors: one has come for its share of the partitions, or has given some up."""
    LEVELS = "levels"
    """For actuators: a level stands otherwise that a daemon may wait for."""
    HELD = "held"
    """For processors: objects whose records wait for record handlers are to be tried again."""


class Hints:
    """Hints among the processes of one application; used as `async with Hints(...)`.

    A hint may be lost, for example while NATS is away, and several may arrive as one: waiting code needs a slow sweep
    too.
    """

    def __init__(self, connection: Connection, cluster: Cluster, application: Application) -> None:
        self._connection = connection
        self._cluster = cluster
        self._application = application
        self._listeners: dict[str, set[Hint]] = {}
        self._subscription: Subscription | None = None

    async def __aenter__(self) -> Self:
        self._stop_following = self._connection.on_change(self._wake_all)
        everything = hint_subject(self._cluster, self._application, "*")
        self._subscription = await self._connection.subscribe(everything, self._receive)
        with suppress(Unavailable):  # then all are woken once it is back
            await self._connection.request_again("$JS.API.INFO")  # who answers that knows of the subscription
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_following()
        if self._subscription is not None and not self._connection.client.is_closed:
            await self._subscription.unsubscribe()

    async def publish(self, topic: Topic, *, but_not: "Hint | None" = None) -> None:
        """Wake all listeners of the topic, in this process too, `but_not` one; while NATS is away, none is woken."""
        sender = but_not.id if but_not is not None else b""
        try:
            await self._connection.publish_all(
                (Message(hint_subject(self._cluster, self._application, topic), b"", sender),), f"hint {topic}"
            )
        except Unavailable:
            return

    async def report(self, found: ChainBreak) -> None:
        """Tell ingest what was lost or reordered inside the log; while NATS is away, it is not told."""
        subject = hint_subject(self._cluster, self._application, LOST)
        with suppress(Unavailable):
            await self._connection.publish_all((Message(subject, b"", msgspec.json.encode(found)),), f"hint {LOST}")

    def listen(self, topic: Topic) -> "Hint":
        """An event of one's own for the hints on a topic."""
        hint = Hint()
        self._listeners.setdefault(topic, set()).add(hint)
        return hint

    async def _receive(self, message: Msg) -> None:
        for hint in self._listeners.get(message.subject.rpartition(".")[2], ()):
            if hint.id != message.data:
                hint.set()

    def _wake_all(self) -> None:
        # Hints were lost while the connection was down: everybody looks once.
        for hints in self._listeners.values():
            for hint in hints:
                hint.set()


class Hint:
    """Set by hints that arrived since the last `wait`."""

    def __init__(self) -> None:
        self.id: Final = secrets.token_bytes(8)
        """Says of a hint that whoever waits here has sent it."""
        self._event = asyncio.Event()
        self._is_set = False

    def set(self) -> None:
        """Wake the waiting task, or the next one that waits."""
        self._is_set = True
        self._event.set()

    def nudge(self) -> None:
        """Have the waiting task look for something else: its `wait` ends without a hint."""
        self._event.set()

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Wait for a hint, at most for the time-out; tells whether one came."""
        if not self._is_set:
            self._event.clear()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._event.wait()
        except TimeoutError:
            return False
        came, self._is_set = self._is_set, False
        return came
