"""HTTP requests that are sent once."""

import aiohttp


class NotAnswered(aiohttp.ClientConnectionError):
    """The connection was lost before an answer began."""


async def ask_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """A middleware that raises NotAnswered where aiohttp would send a GET, PUT or DELETE a second time.

    It does so when a connection is lost before the answer, even if that was a fresh one.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise NotAnswered(str(error)) from error
