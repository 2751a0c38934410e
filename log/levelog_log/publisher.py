"""Durable writes: atomic batches, acknowledged once they are on disk, each linked to the one before it.

It writes to the stream, and after a lost connection checks that this is the same one. It repeats no batch by itself,
except to several servers, which lose what they are sent while they elect a leader.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence as Many
from datetime import timedelta
from typing import Final

from levelog_base.errors import ConfigurationError, IdentityMismatch, Unavailable
from levelog_base.wire.objects import Sequence
from levelog_log.chains import ChainWriter
from levelog_log.messages import record_id
from levelog_log.stream import LogStream
from levelog_log.transport.connection import NoResponders, first_of
from levelog_log.transport.jetstream import DUPLICATE, PublishAnswer, decoded, refusal
from levelog_log.transport.wire import Message, parse_header_lines

log = logging.getLogger(__name__)

MAX_MESSAGES: Final = 1000  # of one atomic batch: nats-server's limit
ACK_TIMEOUT: Final = timedelta(seconds=15)
AGAIN: Final = timedelta(seconds=2)
"""How long several servers may take to acknowledge a batch before it is sent again; they take tens of milliseconds."""
_NEVER: Final = 2**63 - 1  # a sequence
SLOW_SECONDS: Final = 3.0  # a batch takes some tens of milliseconds
_FULL: Final = (10002, 10023, 10028, 10047, 10077)
"""Error codes: the limits of the account, the server, its memory, its disk, the stream."""


class LogFull(Unavailable):
    """NATS has no room for more records; the writer waits, and loses nothing."""


class _Batch:
    """Messages with their links, to be sent once or several times."""

    def __init__(self, messages: Many[Message], links: Many[bytes], *, id_line: bytes = b"") -> None:
        """`id_line`: a header of the last message, so that NATS stores one of those that are sent."""
        self.id_line = id_line
        linked = [each._replace(headers=each.headers + link) for each, link in zip(messages, links, strict=True)]
        self._first, self.last = linked[:-1], linked[-1]._replace(headers=linked[-1].headers + id_line)

    def framed(self) -> list[Message]:
        """The messages as one atomic batch of its own; the last is acknowledged."""
        if not self._first:
            return [self.last]
        batch = secrets.token_hex(11).encode()
        framed = [
            Message(
                subject,
                b"%bNats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n" % (headers, batch, number),
                payload,
            )
            for number, (subject, headers, payload, _) in enumerate((*self._first, self.last), 1)
        ]
        framed[-1] = framed[-1]._replace(headers=framed[-1].headers + b"Nats-Batch-Commit: 1\r\n")
        return framed


class BatchPublisher:
    """Publishes messages so that all of them are in the log, next to each other, or none.

    Callers take turns: one batch at a time. After a reconnect, the first publish verifies that the stream is the same
    and still has what was acknowledged.
    """

    def __init__(self, stream: LogStream, *, timeout: timedelta = ACK_TIMEOUT, may_read: bool = False) -> None:
        """`may_read`: after a reconnect, read the last acknowledged record, to detect a restored log that grew.

        Without it, a user without the right to read the log can write to it.
        """
        self.stream = stream
        self._may_read = may_read
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._chains = ChainWriter(stream.ended_at)
        self._acknowledged = Sequence(0)
        self._acknowledged_headers = b""
        self._verified_at = stream.connection.reconnects
        self._is_full = False
        self._is_slow = False

    async def publish(self, messages: Many[Message]) -> Sequence:
        """Publish at most 1,000 messages atomically; returns the sequence of the last, once all are durable.

        Raises Unavailable if no acknowledgement came: the messages may or may not be in the log, and publishing them
        again is harmless, since the fold drops duplicates. Raises IdentityMismatch if the stream was lost, recreated or
        rolled back.
        """
        if not 0 < len(messages) <= MAX_MESSAGES:
            raise ValueError(f"a batch holds 1 to {MAX_MESSAGES} messages, not {len(messages)}")
        async with self._turn:
            step = f"publishing {len(messages)} records, the first to {messages[0].subject}"
            await self.verify()
            has_several = self.stream.replicas > 1
            id_line = b"Nats-Msg-Id: %b\r\n" % secrets.token_hex(11).encode() if has_several else b""
            batch = _Batch(messages, self._chains.link(messages), id_line=id_line)
            began = time.monotonic()
            try:
                if has_several:
                    answer = await first_of(
                        lambda left: self._send_again(batch, step, left), within=self._timeout, again_after=AGAIN
                    )
                else:
                    answer = await self._ask(batch.framed(), step, self._timeout)
            except NoResponders as error:
                await self.stream.state()  # says so if it is the stream that is missing
                raise Unavailable(f"{step}: JetStream does not answer") from error
            self._note_speed(time.monotonic() - began)
            accepted = self._accept(step, answer, len(messages))
            self._chains.acknowledge()
            self._acknowledged_headers = batch.last.headers
            return accepted

    async def _send_again(self, batch: _Batch, step: str, left: timedelta) -> PublishAnswer:
        """Send a batch that may have been sent before, since servers that elect a leader lose what they are sent.

        The id of its last message lets NATS store one of them. Who is refused for now waits for the others.
        """
        end = time.monotonic() + left.total_seconds()
        try:
            answer = await self._ask(batch.framed(), step, left)
            error = answer.error
            if error is not None and error.err_code == DUPLICATE:
                # An id that no server has could be stored alone, were it not for a sequence that no stream reaches.
                probe = batch.last._replace(headers=batch.id_line + b"Nats-Expected-Last-Sequence: %d\r\n" % _NEVER)
                left = timedelta(seconds=end - time.monotonic())
                found = await self._ask([probe._replace(payload=b"")], step, left)
                answer = found if found.duplicate else answer
            if answer.error is None or answer.error.err_code in _FULL:
                return answer
            if isinstance(refusal(step, answer.error), ConfigurationError):
                return answer
        except NoResponders:
            await asyncio.sleep(end - time.monotonic())
            raise
        await asyncio.sleep(end - time.monotonic())
        return answer

    async def _ask(self, messages: Many[Message], step: str, timeout: timedelta) -> PublishAnswer:  # noqa: ASYNC109
        return decoded(await self.stream.connection.ask(messages, step, timeout), PublishAnswer, step)

    def _accept(self, step: str, answer: PublishAnswer, count: int) -> Sequence:
        if answer.error is not None:
            if answer.error.err_code in _FULL:
                self._note_full(answer.error.description)
                raise LogFull(f"{step}: NATS is full: {answer.error.description}")
            raise refusal(step, answer.error)
        if self._is_full:
            self._is_full = False
            log.info("NATS has room again", extra={"stream": self.stream.name})
        if answer.stream != self.stream.name:
            raise IdentityMismatch(f"{step}: stored in stream {answer.stream} instead of {self.stream.name}")
        if answer.seq < self._acknowledged + count:
            raise IdentityMismatch(
                f"{step}: acknowledged at {answer.seq}, but {self._acknowledged} was acknowledged before: "
                f"stream {self.stream.name} was rolled back"
            )
        self._acknowledged = Sequence(answer.seq)
        return self._acknowledged

    def _note_full(self, description: str) -> None:
        if not self._is_full:
            self._is_full = True
            log.error(
                "NATS is full (%s): nothing is recorded, and nothing is lost, until there is room for stream %s. Raise "
                "its max_bytes, or max_file_store of the server, or let it keep less with a lower max_age; if its "
                "disk was full, restart it then",
                description,
                self.stream.name,
                extra={"url": self.stream.connection.url},
            )

    def _note_speed(self, seconds: float) -> None:
        is_slow = seconds > SLOW_SECONDS
        if is_slow and not self._is_slow:
            log.warning(
                "NATS is slow: it took %.0f s to store a batch; nothing is read faster than that. Its disk is, its "
                "servers elected a leader, or this process was busy",
                seconds,
                extra={"url": self.stream.connection.url},
            )
        self._is_slow = is_slow

    async def verify(self) -> None:
        """If the connection was lost, verify that the stream is the same and still has what was acknowledged.

        Raises IdentityMismatch, Unavailable.
        """
        reconnects = self.stream.connection.reconnects
        if reconnects == self._verified_at:
            return
        state, acknowledged = await self.stream.state(), self._acknowledged
        self.stream.doubts.check_end(self.stream.name, state.last_seq, acknowledged, "acknowledged")
        if self._may_read and acknowledged >= max(1, state.first_seq):  # else it has expired
            found = await self.stream.record_at(acknowledged)
            known_id = record_id(parse_header_lines(self._acknowledged_headers))
            self.stream.doubts.check_record(self.stream.name, acknowledged, found, known_id, "acknowledged")
        self._verified_at = reconnects
