"""Leases on NATS: messages that their holder replaces before they expire, and that others add once they are gone.

A stream of its own, in memory, holds the last message of each task, and drops it when it is older than a lease lasts.
So there is one clock, the server's, and each change is a compare-and-set. A lease that NATS forgot as it restarted is
free; so is one that stays although it is not renewed, since the server's clock was set back.
"""

import asyncio
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from levelog_base.errors import LevelogError, Unavailable
from levelog_base.wire.objects import Application
from levelog_base.wire.subjects import lease_stream, lease_subject, lease_subjects
from levelog_log.stream import LogStream
from levelog_log.transport.connection import NoResponders
from levelog_log.transport.jetstream import (
    NO_MESSAGE,
    NO_STREAM,
    MessageAnswer,
    MessageRequest,
    PublishAnswer,
    StreamAnswer,
    StreamConfig,
    ask_again,
    decoded,
    nanoseconds,
    refusal,
)
from levelog_log.transport.wire import Message

R = TypeVar("R")

LEASE: Final = timedelta(seconds=9)
_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
_TRIES: Final = 5


class NoLeases(Unavailable):
    """Nobody has made the stream of leases."""


class LeaseMessage(Generic[R]):
    """The message of one task of an application, in the stream of leases."""

    def __init__(
        self, stream: LogStream, application: Application, task: str, kind: type[R], *, lasts: timedelta = LEASE
    ) -> None:
        self.connection = stream.connection
        self.subject = lease_subject(stream.cluster, application, task)
        self.lasts = lasts
        self._stream = stream
        self._name = lease_stream(stream.cluster)
        self._kind = kind

    async def read(self) -> tuple[R | None, int]:
        """The content and its sequence; 0 if there is none. Raises NoLeases, Unavailable, LevelogError."""
        request = MessageRequest(last_by_subj=self.subject)
        answer = await ask_again(self.connection, f"STREAM.MSG.GET.{self._name}", request, MessageAnswer)
        if answer.message is not None:
            try:
                return msgspec.json.decode(answer.message.data, type=self._kind), answer.message.seq
            except msgspec.DecodeError as error:
                raise LevelogError(f"the lease {self.subject} cannot be read: {answer.message.data[:200]!r}") from error
        if answer.error is not None and answer.error.err_code == NO_STREAM:
            raise NoLeases(f"stream {self._name} is not there")
        if answer.error is not None and answer.error.err_code != NO_MESSAGE:
            raise refusal(f"reading the lease {self.subject}", answer.error)
        return None, 0

    async def replace(self, content: R, expected: int) -> int:
        """Write in place of the message with that sequence; returns the new one, 0 if that was not the last.

        Raises NoLeases, Unavailable, LevelogError.
        """
        step = f"taking the lease {self.subject}"
        headers = b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % expected
        payload, timeout = msgspec.json.encode(content), self.lasts / 3
        try:
            reply = await self.connection.ask([Message(self.subject, headers, payload)], step, timeout)
        except NoResponders as error:
            raise NoLeases(str(error)) from error
        answer = decoded(reply, PublishAnswer, step)
        if answer.error is None:
            return answer.seq
        if answer.error.err_code in _WRONG_LAST_SEQUENCE:
            return 0
        raise refusal(step, answer.error)

    async def create_stream(self) -> None:
        """Make the stream of leases, unless it is there."""
        age = nanoseconds(self.lasts)
        wanted = StreamConfig(
            name=self._name,
            description="levelog: which process does what only one should do",
            subjects=(lease_subjects(self._stream.cluster),),
            retention="limits",
            storage="memory",
            discard="old",
            num_replicas=self._stream.replicas,
            max_age=age,
            duplicate_window=age,
            max_msgs_per_subject=1,
        )
        answer = await ask_again(self.connection, f"STREAM.CREATE.{wanted.name}", wanted, StreamAnswer)
        if answer.error is not None:
            raise refusal(f"creating stream {wanted.name}", answer.error)


class LeaderRecord(Struct, frozen=True, kw_only=True):
    """Who does a task, and since when."""

    holder: str
    since: datetime
    token: str = ""
    is_released: bool = False


class Lease:
    """The lease of one task of an application, as one process sees it."""

    def __init__(
        self, stream: LogStream, application: Application, task: str, *, holder: str, lasts: timedelta = LEASE
    ) -> None:
        self.message = LeaseMessage(stream, application, task, LeaderRecord, lasts=lasts)
        self.holder = holder
        self.lasts = lasts
        self._token = secrets.token_hex(8)
        self._since = datetime.now(UTC)
        self._sequence = 0
        """Sequence of our message; 0 while we hold nothing."""
        self._seen = 0, 0.0
        """Sequence of the last message that was read, and when it first was, by the event loop's clock."""

    async def take(self) -> LeaderRecord | None:
        """Take the lease if it is free, or renew ours; else say who holds it. Raises Unavailable, LevelogError."""
        for _ in range(_TRIES):
            try:
                last, sequence = await self.message.read()
                is_free = last is None or last.is_released or self._is_left(sequence)
                if last is not None and not is_free and last.token != self._token:
                    self._sequence = 0
                    return last
                if is_free:
                    self._since = datetime.now(UTC)
                if await self._write(sequence):
                    return None
            except NoLeases:
                await self.message.create_stream()
        raise Unavailable(f"the lease {self.message.subject} changes each time that it is taken")

    def _is_left(self, sequence: int) -> bool:
        """Tell whether nobody has renewed it for twice its time: NATS keeps it for longer if its clock was set back."""
        at = asyncio.get_running_loop().time()
        if sequence != self._seen[0]:
            self._seen = sequence, at
        return at - self._seen[1] > 2 * self.lasts.total_seconds()

    async def renew(self) -> bool:
        """Make it last longer; tells whether it is still ours. Raises Unavailable, LevelogError."""
        try:
            is_renewed = await self._write(self._sequence)
        except NoLeases:  # NATS began anew, and with it the stream in memory
            is_renewed = False
        return is_renewed or await self.take() is None

    async def release(self) -> None:
        """Let others take it at once. Raises Unavailable, LevelogError."""
        if self._sequence:
            await self._write(self._sequence, is_released=True)
            self._sequence = 0

    async def _write(self, expected: int, *, is_released: bool = False) -> bool:
        """Replace a message with ours; tells whether it still was the last."""
        leader = LeaderRecord(holder=self.holder, since=self._since, token=self._token, is_released=is_released)
        if written := await self.message.replace(leader, expected):
            self._sequence = written
        return written > 0


async def holder_of(stream: LogStream, application: Application, task: str) -> LeaderRecord | None:
    """The process that does a task now; None if there is none. Raises Unavailable, LevelogError."""
    try:
        leader, _ = await LeaseMessage(stream, application, task, LeaderRecord).read()
    except NoLeases:
        return None
    return None if leader is None or leader.is_released else leader
