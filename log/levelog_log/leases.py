"""Leases on NATS: a message that its holder replaces before it expires, and that others may only add once it is gone.

A stream of its own, in memory, holds the last message of each task, and drops it when it is older than a lease lasts.
So there is one clock, the server's, and each change is a compare-and-set. A lease that NATS forgot as it restarted is
free.
"""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from levelog.errors import LevelogError
from levelog.wire.objects import Application
from levelog.wire.subjects import lease_stream, lease_subject, lease_subjects
from levelog_log.api import (
    NO_MESSAGE,
    NO_STREAM,
    ErrorAnswer,
    MessageAnswer,
    MessageRequest,
    PublishAnswer,
    StreamAnswer,
    StreamConfig,
    ask,
    refusal,
)
from levelog_log.connection import NoResponders
from levelog_log.stream import LogStream

LEASE: Final = timedelta(seconds=9)
_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"


class Held(Struct, frozen=True, kw_only=True):
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
        self.connection = stream.connection
        self.holder = holder
        self.lasts = lasts
        self.subject = lease_subject(stream.cluster, application, task)
        self._stream = stream
        self._name = lease_stream(stream.cluster)
        self._token = secrets.token_hex(8)
        self._since = datetime.now(UTC)
        self._sequence = 0
        """Of our message; 0 while we hold nothing."""

    async def take(self) -> Held | None:
        """Take the lease if it is free, or renew ours; else say who holds it. Raises Unavailable, LevelogError."""
        last, sequence = await self._read()
        is_free = last is None or last.is_released
        if last is not None and not is_free and last.token != self._token:
            self._sequence = 0
            return last
        if is_free:
            self._since = datetime.now(UTC)
        return None if await self._write(sequence) else (await self._read())[0]

    async def renew(self) -> bool:
        """Make it last longer; tells whether it is still ours. Raises Unavailable, LevelogError."""
        return await self._write(self._sequence) or await self.take() is None

    async def release(self) -> None:
        """Let others take it at once. Raises Unavailable, LevelogError."""
        if self._sequence:
            await self._write(self._sequence, is_released=True)
            self._sequence = 0

    async def _read(self) -> tuple[Held | None, int]:
        """The last message of the task, with its sequence, 0 if there is none."""
        answer = await self._ask_for_last()
        if answer.error is not None and answer.error.err_code == NO_STREAM:
            await self._create_stream()
            answer = await self._ask_for_last()
        if answer.message is None:
            _refuse(f"reading the lease {self.subject}", answer.error, unless=NO_MESSAGE)
            return None, 0
        return _decode(answer.message.data), answer.message.seq

    async def _ask_for_last(self) -> MessageAnswer:
        request = MessageRequest(last_by_subj=self.subject)
        return await ask(
            self.connection, f"STREAM.MSG.GET.{self._name}", request, MessageAnswer, timeout=self.lasts / 3
        )

    async def _write(self, expected: int, *, is_released: bool = False) -> bool:
        """Replace the message that we know; tells whether it was the last one."""
        held = Held(holder=self.holder, since=self._since, token=self._token, is_released=is_released)
        step = f"taking the lease {self.subject}"
        try:
            message = await self.connection.request(
                self.subject,
                msgspec.json.encode(held),
                headers={_EXPECTED: str(expected)},
                step=step,
                timeout=self.lasts / 3,
            )
        except NoResponders:  # NATS began anew, and with it the stream in memory
            await self._create_stream()
            return False
        answer = msgspec.json.decode(message.data, type=PublishAnswer)
        if answer.error is not None and answer.error.err_code in _WRONG_LAST_SEQUENCE:
            return False
        _refuse(step, answer.error)
        self._sequence = answer.seq
        return True

    async def _create_stream(self) -> None:
        wanted = _configuration(self._stream, self.lasts)
        answer = await ask(self.connection, f"STREAM.CREATE.{wanted.name}", wanted, StreamAnswer)
        _refuse(f"creating stream {wanted.name}", answer.error)


async def holder_of(stream: LogStream, application: Application, task: str) -> Held | None:
    """Who does a task now; None if nobody. Raises Unavailable, LevelogError."""
    request = MessageRequest(last_by_subj=lease_subject(stream.cluster, application, task))
    name = lease_stream(stream.cluster)
    answer = await ask(stream.connection, f"STREAM.MSG.GET.{name}", request, MessageAnswer)
    if answer.message is None:
        if answer.error is not None and answer.error.err_code != NO_STREAM:
            _refuse(f"reading the lease {request.last_by_subj}", answer.error, unless=NO_MESSAGE)
        return None
    held = _decode(answer.message.data)
    return None if held.is_released else held


def _configuration(stream: LogStream, lasts: timedelta) -> StreamConfig:
    nanoseconds = int(lasts / timedelta(microseconds=1)) * 1000
    return StreamConfig(
        name=lease_stream(stream.cluster),
        description="levelog: which process does what only one should do",
        subjects=(lease_subjects(stream.cluster),),
        retention="limits",
        storage="memory",
        discard="old",
        num_replicas=stream.replicas,
        max_age=nanoseconds,
        duplicate_window=nanoseconds,
        max_msgs_per_subject=1,
    )


def _decode(payload: bytes) -> Held:
    try:
        return msgspec.json.decode(payload, type=Held)
    except msgspec.DecodeError as error:
        raise LevelogError(f"a lease cannot be read: {error}: {payload[:200]!r}") from error


def _refuse(step: str, error: ErrorAnswer | None, *, unless: int = 0) -> None:
    if error is None:
        return
    if error.err_code != unless:
        raise refusal(step, error)
