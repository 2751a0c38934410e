"""Notifications on core NATS: tell another process that there is work, so that it need not poll."""

import asyncio
import secrets
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

import msgspec
from nats.aio.msg import Msg

from levelog_base.errors import Unavailable
from levelog_base.wire.objects import Application, Cluster
from levelog_base.wire.subjects import notification_subject
from levelog_log.chains import ChainBreak
from levelog_log.transport.connection import Connection
from levelog_log.transport.wire import Message

LOST: Final = "lost"
"""The topic that tells ingest what was lost or reordered inside the log."""


class Topic(StrEnum):
    """The kind of work."""

    WAKE = "wake"
    """For processors: a wakeup is due, or keys of indices changed."""
    INTENT = "intent"
    """For actuators: there are intents, or the scope that they wait for has been opened."""
    LEASES = "leases"
    """For processors: another one wants its share of the partitions, or has given some up."""
    LEVELS = "levels"
    """For actuators: a level has changed that a daemon may wait for."""


class Notifier:
    """Notifies the processes of one application, and listens; used as `async with Notifier(...)`.

    A notification may be lost, for example while NATS is away, and several may arrive as one: waiting code also looks
    by itself now and then.
    """

    def __init__(self, connection: Connection, cluster: Cluster, application: Application) -> None:
        self._connection = connection
        self._cluster = cluster
        self._application = application
        self._listeners: dict[str, set[Listener]] = {}

    async def __aenter__(self) -> Self:
        self._stop_following = self._connection.on_change(self._wake_all)
        everything = notification_subject(self._cluster, self._application, "*")
        self._stop_receiving = await self._connection.subscribe(everything, self._receive)
        with suppress(Unavailable):  # then all are woken once it is back
            await self._connection.request_again("$JS.API.INFO")  # who answers that knows of the subscription
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_following()
        await self._stop_receiving()

    async def publish(self, topic: Topic, *, but_not: "Listener | None" = None) -> None:
        """Wake all listeners of the topic, in this process too, `but_not` one; while NATS is away, none is woken."""
        await self._send(topic, but_not.id if but_not is not None else b"")

    async def report(self, found: ChainBreak) -> None:
        """Tell ingest what was lost or reordered inside the log; while NATS is away, it is not told."""
        await self._send(LOST, msgspec.json.encode(found))

    async def _send(self, topic: str, content: bytes) -> None:
        subject = notification_subject(self._cluster, self._application, topic)
        with suppress(Unavailable):
            await self._connection.publish_all((Message(subject, b"", content),), f"notification of {topic}")

    def listen(self, topic: Topic) -> "Listener":
        """A listener of one's own to the notifications on a topic."""
        listener = Listener()
        self._listeners.setdefault(topic, set()).add(listener)
        return listener

    async def _receive(self, message: Msg) -> None:
        for listener in self._listeners.get(message.subject.rpartition(".")[2], ()):
            if listener.id != message.data:
                listener.notify()

    def _wake_all(self) -> None:
        # Notifications were lost while the connection was down: everybody looks once.
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.notify()


class Listener:
    """Wakes the one task that waits for notifications; those that arrived since its last `wait` count as one."""

    def __init__(self) -> None:
        self.id: Final = secrets.token_bytes(8)
        """Marks notifications that this listener's task has sent."""
        self._is_woken = asyncio.Event()
        self._is_notified = False

    def notify(self) -> None:
        """End the `wait` that goes on, or else the next one."""
        self._is_notified = True
        self._is_woken.set()

    def nudge(self) -> None:
        """The same for what is no notification, but is to be looked at by the task that waits."""
        self._is_woken.set()

    async def wait(self, timeout: timedelta) -> bool:  # noqa: ASYNC109
        """Wait for a notification or a nudge, at most for the time-out; tells whether a notification came."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._is_woken.wait()
        except TimeoutError:
            return False
        self._is_woken.clear()
        came, self._is_notified = self._is_notified, False
        return came
