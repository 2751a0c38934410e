"""nats-py's client, with the two operations that handle every record made cheap.

Both override or use members that nats-py names with an underscore. They are all in this file; without the override
records are read at half the speed, and a test of each fails if nats-py changes them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nats.aio.client import Client
from nats.errors import ConnectionReconnectingError, MaxPayloadError

from levelog.errors import RecordError

_BEGIN = b"NATS/1.0\r\n"
_END = b"\r\n"


class Message(NamedTuple):
    """What is published: the subject, the headers as `header_lines` wrote them, and the payload."""

    subject: str
    headers: bytes
    payload: bytes


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Serialise headers as NATS does. Raises RecordError for a header that holds a line break."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        broken = next(name for name, value in headers.items() if "\n" in f"{name}{value}" or "\r" in f"{name}{value}")
        raise RecordError(f"header {broken} cannot be published, it holds a line break: {headers[broken]!r}")
    return text.encode()


def parse_header_lines(block: bytes) -> dict[str, str]:
    """Undo `header_lines`; lines without a colon, as the one with the protocol's version, are left out."""
    lines = block.decode("utf-8", "replace").split("\r\n")
    return {name: value for name, found, value in [line.partition(": ") for line in lines] if found}


class NatsClient(Client):
    """A connection to NATS."""

    async def publish_all(self, messages: Sequence[Message]) -> None:
        """Hand messages to the socket in one write, in order.

        Raises ConnectionReconnectingError while disconnected, so that nothing is sent later behind the caller's back,
        and MaxPayloadError, before anything is written, if one is too large.
        """
        frames: list[bytes] = []
        for subject, headers, payload in messages:
            header_bytes = len(_BEGIN) + len(headers) + len(_END)
            size_bytes = header_bytes + len(payload)
            if size_bytes > self._max_payload:
                raise MaxPayloadError
            operation = f"HPUB {subject} {header_bytes} {size_bytes}\r\n".encode()
            frames += (operation, _BEGIN, headers, _END, payload, b"\r\n")
        if not self.is_connected:
            raise ConnectionReconnectingError
        self.stats["out_msgs"] += len(messages)
        await self._send_command(b"".join(frames))
        await self._flush_pending()

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        return parse_header_lines(raw)
