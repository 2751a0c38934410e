"""TLS before PostgreSQL, as a pooler has it: the server that the tests bring along is built without."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from rigs.certificates import Certified
from rigs.ports import free_port

# https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-SSLREQUEST
_SSL_REQUEST: Final = (8).to_bytes(4) + (80877103).to_bytes(4)


class TlsFront:
    """Answers SSLRequest with TLS and passes on what is in it; who asks for anything else is cut off.

    With `clients`, the certificate of an authority, clients have to show one that it signed.
    """

    def __init__(self, server_port: int, shown: Certified, *, clients: Path | None = None) -> None:
        self.port = free_port()
        self.encrypted = 0
        """Connections that came through the handshake."""
        self._server_port = server_port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.certificate, shown.key)
        if clients is not None:
            self._context.load_verify_locations(clients)
            self._context.verify_mode = ssl.CERT_REQUIRED

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
                    return
                writer.write(b"S")
                await writer.start_tls(self._context)
                self.encrypted += 1
                from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(_pass_on(reader, to_server))
                        both.create_task(_pass_on(from_server, writer))
                finally:
                    to_server.close()
            finally:
                writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end; then the other side is closed too."""
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
