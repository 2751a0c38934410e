"""One watch on its way through the fault proxy."""

import asyncio
import json
from typing import Literal

import aiohttp
from aiohttp import web

from rigs.apirequests import ApiRequest
from rigs.faults import CutLine, DropWatch, ExpireWatch, InjectLines, Refuse, Rule, StallWatch
from rigs.hangups import HangUp, hang_up


class ProxiedWatch:
    """Passes on whole lines as they come; may be disturbed by a rule, or at any time by calling its methods.

    `lines` counts what was passed on.
    """

    def __init__(self, request: ApiRequest, response: web.StreamResponse, transport: asyncio.Transport | None) -> None:
        self.request = request
        self.lines = 0
        self._response = response
        self._transport = transport
        self._ended = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()

    def drop(self, how: HangUp | Literal["end"] = "end") -> None:
        """End it: with the end of the body, by closing the connection within the body, or by a reset."""
        if how != "end":
            hang_up(self._transport, how)
        self._ended.set()

    def stall(self) -> None:
        """Pass on nothing until `resume`."""
        self._flows.clear()

    def resume(self) -> None:
        """Pass on what came meanwhile, and go on."""
        self._flows.set()

    async def expire(self) -> None:
        """Tell the client that its resourceVersion is too old, and end."""
        status = Refuse(code=410, message="too old resource version").status()
        await self._response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        self._ended.set()

    async def run(self, upstream: aiohttp.StreamReader, rule: Rule | None) -> None:
        """Pass lines on until the watch ends on either side or is dropped.

        Raises aiohttp.ClientError when the server breaks off, ConnectionError when the client does.
        """
        pumping = asyncio.create_task(self._pump(upstream, rule))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({pumping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if pumping.done():
                pumping.result()
        finally:
            for task in (pumping, ended):
                task.cancel()
            await asyncio.gather(pumping, ended, return_exceptions=True)

    async def _pump(self, upstream: aiohttp.StreamReader, rule: Rule | None) -> None:
        if rule is not None:
            await self._disturb(rule)
        rest = b""
        async for piece in upstream.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                await self._flows.wait()
                if rule is not None and isinstance(rule.action, CutLine) and self.lines == rule.action.after_lines:
                    await self._cut(line, rule, rule.action.how)
                await self._response.write(line + b"\n")
                self.lines += 1
                if rule is not None:
                    await self._disturb(rule)
        if rest:  # the server itself broke off within a line
            await self._response.write(rest)

    async def _disturb(self, rule: Rule) -> None:
        """Carry out the rule's action if it is due after the lines so far."""
        match rule.action:
            case DropWatch(after_lines=self.lines, how=how):
                self.drop(how)
            case ExpireWatch(after_lines=self.lines):
                await self.expire()
            case StallWatch(after_lines=self.lines):
                self.stall()
            case InjectLines(after_lines=self.lines, lines=lines):
                await self._response.write(b"".join(line + b"\n" for line in lines))
            case _:
                return
        rule.applied.append(self.request)
        if isinstance(rule.action, StallWatch):
            await rule.released()
            self.resume()
        elif self._ended.is_set():
            await self._nothing_more()

    async def _cut(self, line: bytes, rule: Rule, how: HangUp) -> None:
        await self._response.write(line[: len(line) // 2])
        self.drop(how)
        rule.applied.append(self.request)
        await self._nothing_more()

    async def _nothing_more(self) -> None:
        """Wait until `run` ends this task."""
        await asyncio.Event().wait()
