"""Bodies of requests that can be taken back until they are written to the connection."""

from collections.abc import Callable

from aiohttp import BytesPayload
from aiohttp.abc import AbstractStreamWriter

from levelog_kube.errors import Withheld


class RevocableBody(BytesPayload):
    """A body that asks `may_send` right before it is written; aiohttp holds the headers back until then."""

    def __init__(self, body: bytes, may_send: Callable[[], bool]) -> None:
        super().__init__(body)
        self._may_send = may_send
        self.is_revoked = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Raises Withheld, which closes the connection, if it may no longer be sent."""
        if not self._may_send():
            self.is_revoked = True
            raise Withheld("revoked")
        await super().write_with_length(writer, content_length)
