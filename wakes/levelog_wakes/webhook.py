"""`--listen`: kube-apiserver's audit webhook, to which it sends its events in batches."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web
from yarl import URL

from levelog_base.errors import cannot_listen
from levelog_wakes.answer import WakesFound, answer
from levelog_wakes.audit import AuditReader, Remarks
from levelog_wakes.bursts import Bursts

_LARGEST_BYTES: Final = 64 << 20
"""Of a batch; kube-apiserver sends at most 10 MiB unless it is told otherwise."""


async def hear(host: str, port: int, client: str = "", *, on_listening: Callable[[str], None]) -> WakesFound:
    """Take batches until cancelled, then answer; `on_listening` gets the address. Raises ConfigurationError."""
    reader, bursts = AuditReader(Remarks()), Bursts(client)

    async def batch(request: web.Request) -> web.Response:
        calls = reader.read(await request.read(), "a batch")
        for call in sorted(calls, key=lambda each: each.ended):
            bursts.take(call)
        return web.Response()

    app = web.Application(client_max_size=_LARGEST_BYTES)
    app.router.add_post("/{path:.*}", batch)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, port)
        await site.start()
        address, heard_at, *_ = runner.addresses[0]
        on_listening(str(URL.build(scheme="http", host=address, port=heard_at, path="/")))
        await asyncio.Event().wait()
    except OSError as error:
        raise cannot_listen("the webhook", f"{host}:{port}", error) from error
    except asyncio.CancelledError:
        pass  # Ctrl-C
    finally:
        await runner.cleanup()
    return answer(bursts, reader)
