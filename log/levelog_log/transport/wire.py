"""nats-py's client, with a faster path for the operations of every record, and a stricter sign-in.

This file overrides or uses private members of nats-py, and is the only one that does. Without the overrides, records
are read at half the speed, and a server without TLS learns who signs in. A test of each fails if nats-py changes them.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.errors import ConnectionReconnectingError, Error, MaxPayloadError

log = logging.getLogger(__name__)

_BEGIN = b"NATS/1.0\r\n"
_END = b"\r\n"


class Message(NamedTuple):
    """A message to publish: the subject, the headers as lines that end in CRLF, and the payload."""

    subject: str
    headers: bytes
    payload: bytes
    reply: str = ""
    """Where an answer goes; empty: none is wanted."""


def parse_header_lines(block: bytes) -> dict[str, str]:
    """Headers by name; lines without a colon, as the one with the protocol's version, are left out."""
    lines = block.decode("utf-8", "replace").split("\r\n")
    return {name: value for name, found, value in [line.partition(": ") for line in lines] if found}


_REFUSALS: Final = re.compile("authorization violation|authentication (expired|revoked)", re.IGNORECASE)


def is_refusal(error: Exception | str) -> bool:
    """Whether a server refuses the client's credentials, or no longer takes them."""
    return _REFUSALS.search(str(error)) is not None


class NatsClient(Client):
    """A connection to NATS.

    With `requires_tls` nothing secret is said to a server that does not speak it. `tls` is asked for the settings once
    a server wants TLS, and `public_nkey` at each attempt.
    """

    def __init__(
        self,
        *,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        requires_tls: bool = False,
        public_nkey: Callable[[], str] | None = None,
    ) -> None:
        super().__init__()
        self._requires_tls = requires_tls
        self._ask_tls = tls
        self._ask_public_nkey = public_nkey
        self._asked = 0
        self._is_ended = False

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Settings of TLS. nats-py wants them before it knows whether there is any."""
        return self._ask_tls()

    async def ask(self, messages: Sequence[Message]) -> asyncio.Future[Msg]:
        """Send messages; the future is the answer to the last. Waits for nothing, and raises, as `publish_all` does."""
        if self._resp_sub_prefix is None:
            await self._init_request_sub()
        self._asked += 1
        token, answers = str(self._asked), self._resp_map
        answer = answers[token] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: answers.pop(token, None))
        inbox = self._resp_sub_prefix or b""
        try:
            await self.publish_all((*messages[:-1], messages[-1]._replace(reply=f"{inbox.decode()}{token}")))
        except BaseException:
            answer.cancel()
            raise
        return answer

    async def publish_all(self, messages: Sequence[Message]) -> None:
        """Hand messages to the socket in one write, in order; waits for nothing.

        Raises ConnectionReconnectingError while disconnected, so that nothing is sent later behind the caller's back,
        and MaxPayloadError, before anything is written, if one is too large.
        """
        frames: list[bytes] = []
        for subject, headers, payload, reply in messages:
            header_bytes = len(_BEGIN) + len(headers) + len(_END)
            size_bytes = header_bytes + len(payload)
            if size_bytes > self._max_payload:
                raise MaxPayloadError
            operation = f"HPUB {subject} {reply} {header_bytes} {size_bytes}\r\n".encode()
            frames += (operation, _BEGIN, headers, _END, payload, b"\r\n")
        if not self.is_connected:
            raise ConnectionReconnectingError
        self.stats["out_msgs"] += len(messages)
        await self._send_command(b"".join(frames))
        # A flusher that was woken before writes this too. Its queue may be full for as long as the server stands still.
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        receive = self._subs[sid]._cb if sid in self._subs else None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if receive is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        # nats-py has a queue and a task for each subscription, for functions that wait
        try:
            await receive(self._build_message(sid, subject, reply, data, await self._process_headers(headers)))
        except Exception:  # a mistake in there must not end the reading
            log.exception("a message was not taken in", extra={"subject": subject.decode(errors="replace")})

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # of others' messages, subjects may be any bytes
        return Msg(self, subject.decode(errors="replace"), reply.decode(), data, headers, _sid=sid)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # who waited has given up: nats-py would fail, and read no more
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (IndexError, ValueError):  # headers may be any bytes, too; who reads the message finds none
            return None

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        try:
            return await super()._flush_pending(force_flush)
        except (OSError, RuntimeError) as error:  # the second is uvloop's
            # The flusher has ended at a closed socket and has not said so.
            self._forget_unsent()
            await self._process_op_err(error)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        return parse_header_lines(raw)

    def _connect_command(self) -> bytes:
        transport = self._transport
        if self._requires_tls and isinstance(transport, TcpTransport):
            writer = getattr(transport, "_io_writer", None)
            if writer is None or writer.get_extra_info("ssl_object") is None:
                raise Error("nats: TLS is asked for, and the server does not offer it")
        if self._ask_public_nkey is not None:
            self._public_nkey = self._ask_public_nkey()
        return super()._connect_command()

    async def _connect_to_server(self, s: Any) -> None:
        if self._is_ended:  # closed meanwhile: a cancellation that comes when a connection is made gets lost in nats-py
            raise asyncio.CancelledError
        self._end_attempt()  # one that failed after it was made would leave its socket and its tasks behind
        await super()._connect_to_server(s)

    def _end_attempt(self) -> None:
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _attempt_reconnect(self) -> None:
        self._forget_unsent()
        while True:
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 - as uvloop's RuntimeError, of a socket that was reset meanwhile
                if self.is_closed:
                    return
                await self._error_cb(error)
                self._status = Client.RECONNECTING
            else:
                break
        if self._is_ended:
            self._reconnection_task = None
            await self._close(Client.CLOSED, do_cbs=False)

    async def close(self) -> None:
        """Close the connection for good."""
        self._is_ended = True
        await super().close()

    def abandon(self) -> None:
        """Close the socket and end the tasks after a `close` that took too long."""
        if self._reconnection_task is not None:
            self._reconnection_task.cancel()
        for subscription in self._subs.values():
            if (task := subscription._wait_for_msgs_task) is not None:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
                task.cancel()
        self._end_attempt()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        except (OSError, RuntimeError):  # the second is uvloop's
            # Reset before or while the rest was sent; nats-py would leave its subscriptions behind.
            self._forget_unsent()
            self._status = Client.DISCONNECTED
            await super()._close(status, do_cbs)

    def _forget_unsent(self) -> None:
        # What the socket had no room for has failed by now: nats-py would send it over the next connection.
        self._pending = []
        self._pending_data_size = 0

    async def _process_err(self, err_msg: str) -> None:
        # nats-py would close for good. A user that has expired may have a new credentials file by now.
        if is_refusal(err_msg):
            await self._process_op_err(Error(f"nats: {err_msg}"))
            return
        await super()._process_err(err_msg)
