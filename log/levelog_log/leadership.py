"""Leader election: one of several processes does a task, chosen by a lease on NATS.

A lease is a message that its holder replaces before it expires, and that others may only add once it is gone. A stream
of its own, in memory, holds the last message of each task, and drops it when it is older than a lease lasts. So there
is one clock, the server's, and each change is a compare-and-set. A lease that NATS forgot as it restarted is free;
so is one that stays although it is not renewed, since the server's clock was set back.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from levelog.absence import level_of
from levelog.errors import LevelogError
from levelog.wire.objects import Application
from levelog.wire.subjects import lease_stream, lease_subject, lease_subjects
from levelog_log.stream import LogStream
from levelog_log.transport.connection import NoResponders
from levelog_log.transport.jetstream import (
    NO_MESSAGE,
    NO_STREAM,
    ErrorAnswer,
    MessageAnswer,
    MessageRequest,
    PublishAnswer,
    StreamAnswer,
    StreamConfig,
    ask,
    ask_again,
    refusal,
)
from levelog_log.transport.wire import header_lines

log = logging.getLogger(__name__)


LEASE: Final = timedelta(seconds=9)
_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_LOOK: Final = timedelta(seconds=2)  # how often one that stands by looks; takeover takes a lease and such a look
_RELEASE_LIMIT: Final = timedelta(seconds=2)


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
        self.connection = stream.connection
        self.holder = holder
        self.lasts = lasts
        self.subject = lease_subject(stream.cluster, application, task)
        self._stream = stream
        self._name = lease_stream(stream.cluster)
        self._token = secrets.token_hex(8)
        self._since = datetime.now(UTC)
        self._sequence = 0
        """Sequence of our message; 0 while we hold nothing."""
        self._seen = 0, 0.0
        """The last message that was read, and since when it is that, by the event loop's clock."""

    async def take(self) -> LeaderRecord | None:
        """Take the lease if it is free, or renew ours; else say who holds it. Raises Unavailable, LevelogError."""
        last, sequence = await self._read()
        is_free = last is None or last.is_released or self._is_left(sequence)
        if last is not None and not is_free and last.token != self._token:
            self._sequence = 0
            return last
        if is_free:
            self._since = datetime.now(UTC)
        return None if await self._write(sequence) else (await self._read())[0]

    def _is_left(self, sequence: int) -> bool:
        """Tell whether nobody has renewed it for twice its time: NATS keeps it for longer if its clock was set back."""
        at = asyncio.get_running_loop().time()
        if sequence != self._seen[0]:
            self._seen = sequence, at
        return at - self._seen[1] > 2 * self.lasts.total_seconds()

    async def renew(self) -> bool:
        """Make it last longer; tells whether it is still ours. Raises Unavailable, LevelogError."""
        return await self._write(self._sequence) or await self.take() is None

    async def release(self) -> None:
        """Let others take it at once. Raises Unavailable, LevelogError."""
        if self._sequence:
            await self._write(self._sequence, is_released=True)
            self._sequence = 0

    async def _read(self) -> tuple[LeaderRecord | None, int]:
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
        leader = LeaderRecord(holder=self.holder, since=self._since, token=self._token, is_released=is_released)
        step = f"taking the lease {self.subject}"
        try:
            message = await self.connection.request(
                self.subject,
                msgspec.json.encode(leader),
                headers=header_lines({_EXPECTED: str(expected)}),
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
        answer = await ask_again(self.connection, f"STREAM.CREATE.{wanted.name}", wanted, StreamAnswer)
        _refuse(f"creating stream {wanted.name}", answer.error)


async def holder_of(stream: LogStream, application: Application, task: str) -> LeaderRecord | None:
    """The process that does a task now; None if there is none. Raises Unavailable, LevelogError."""
    request = MessageRequest(last_by_subj=lease_subject(stream.cluster, application, task))
    name = lease_stream(stream.cluster)
    answer = await ask_again(stream.connection, f"STREAM.MSG.GET.{name}", request, MessageAnswer)
    if answer.message is None:
        if answer.error is not None and answer.error.err_code != NO_STREAM:
            _refuse(f"reading the lease {request.last_by_subj}", answer.error, unless=NO_MESSAGE)
        return None
    leader = _decode(answer.message.data)
    return None if leader.is_released else leader


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


def _decode(payload: bytes) -> LeaderRecord:
    try:
        return msgspec.json.decode(payload, type=LeaderRecord)
    except msgspec.DecodeError as error:
        raise LevelogError(f"a lease cannot be read: {error}: {payload[:200]!r}") from error


def _refuse(step: str, error: ErrorAnswer | None, *, unless: int = 0) -> None:
    if error is None:
        return
    if error.err_code != unless:
        raise refusal(step, error)


class Leadership:
    """One process does this task while others of the application stand by: `await leadership.lead(work)`.

    A process that ends hands over at once. If it is killed or cut off from NATS, another follows within 15 s. Two may
    lead for a moment, for example after a pause, so the work must be safe to do twice. Ingest and `@op.source` use it;
    any name may be the task.
    """

    def __init__(
        self, stream: LogStream, application: Application, task: str, *, holder: str, lasts: timedelta = LEASE
    ) -> None:
        self.is_leading = False
        self._task = task
        self._lease = Lease(stream, application, task, holder=holder, lasts=lasts)
        self._told = ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this process leads: cancel it if the lead is lost, start it again when it is back.

        Returns when `work` does, and raises what it raises.
        """
        while True:
            taken_at = await self._take()
            try:
                if await self._work(work, taken_at):
                    return
            finally:
                self.is_leading = False
                await self._release()

    async def _work(self, work: Callable[[], Awaitable[None]], taken_at: float) -> bool:
        """Work until that is done, or the lease is lost; tells which."""
        log.info("leads: does %s", self._task, extra={"holder": self._lease.holder})
        self.is_leading = True
        working = asyncio.ensure_future(work())
        keeping = asyncio.ensure_future(self._keep(taken_at))
        try:
            await asyncio.wait((working, keeping), return_when=asyncio.FIRST_COMPLETED)
            is_done = working.done()
        finally:
            for task in (working, keeping):
                task.cancel()
            outcomes = await asyncio.gather(working, keeping, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        return is_done

    async def _keep(self, asked_at: float | None) -> None:
        """Renew the lease, which was requested at that time of the event loop, until it is lost."""
        seconds = self._lease.lasts.total_seconds()
        while asked_at is not None:
            try:
                async with asyncio.timeout_at(asked_at + seconds):
                    asked_at = await self._renew(seconds / 3)
            except TimeoutError:
                level = logging.DEBUG if self._lease.connection.absence.is_felt else logging.WARNING
                log.log(level, "no longer leads: the lease of %s could not be renewed in time", self._task)
                return
        log.warning("no longer leads: another process does %s", self._task)

    async def _renew(self, wait_seconds: float) -> float | None:
        """Renew the lease when due, with retries; returns the time of the request, or None if the lease is lost."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(wait_seconds)
            asked_at = loop.time()
            try:
                return asked_at if await self._lease.renew() else None
            except LevelogError as error:
                log.debug("the lease of %s is not renewed: %s", self._task, error)
                wait_seconds = min(wait_seconds, 0.5)

    async def _take(self) -> float:
        """Wait for the lease, and log once who has it; returns when, by the event loop, it was requested."""
        loop = asyncio.get_running_loop()
        async with self._releases() as has_changed:
            while True:
                has_changed.clear()
                asked_at = loop.time()
                try:
                    leader = await self._lease.take()
                except LevelogError as error:
                    await self._lease.connection.wait_connected()
                    self._tell(level_of(error), f"the lease of {self._task} cannot be taken: {error}")
                else:
                    if leader is None:
                        self._told = ""
                        return asked_at
                    self._tell(logging.INFO, f"stands by: {leader.holder} does {self._task}")
                try:
                    async with asyncio.timeout(min(_LOOK, self._lease.lasts / 3).total_seconds()):
                        await has_changed.wait()
                except TimeoutError:
                    continue

    @asynccontextmanager
    async def _releases(self) -> AsyncGenerator[asyncio.Event]:
        """Set when the holder lets go; may be missed."""
        has_changed = asyncio.Event()

        async def note(message: Msg) -> None:
            if b'"is_released":true' in message.data:
                has_changed.set()

        stop = await self._lease.connection.subscribe(self._lease.subject, note)
        try:
            yield has_changed
        finally:
            await stop()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_RELEASE_LIMIT.total_seconds()):
                await self._lease.release()
        except (LevelogError, TimeoutError) as error:
            log.debug("the lease of %s is left to expire: %s", self._task, error)

    def _tell(self, level: int, text: str) -> None:
        if text != self._told:
            self._told = text
            log.log(level, "%s", text)
