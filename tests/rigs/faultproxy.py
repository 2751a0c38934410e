"""An HTTP proxy before an API server that loses, holds, repeats and makes up answers as it is told."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rigs.apirequests import ApiRequest, RequestReader, Where
from rigs.askonce import ask_once
from rigs.exchanges import Answered, Exchange, ExchangeLog, answered
from rigs.faults import Action, FailAfter, FailBefore, ForwardTwice, Hold, Refuse, Rule, Stage, Strike
from rigs.hangups import HangUp, hang_up
from rigs.kubeconfig import write_kubeconfig
from rigs.proxiedwatch import ProxiedWatch
from rigs.waiting import until

# Of one connection, not of the request: those of the other connection are made anew.
_OF_A_CONNECTION = {
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_NOT_TO_BE_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class FaultProxy:
    """Serves on plain HTTP what the API server at `url` serves, with credentials as the client sends them.

    Limits: no upgrades (exec, port-forward); what is not a watch is passed on when it is complete, so a log that is
    followed never is. A request that was forwarded is seen through even if its client is gone, watches excepted.
    The first rule that takes a request is the only one applied to it.

    `watches` are those that are open.
    """

    def __init__(self, url: str, *, ca_file: Path | None = None) -> None:
        self.log = ExchangeLog()
        self.watches: list[ProxiedWatch] = []
        self.port = 0
        self._upstream = url
        self._ca_file = ca_file
        self._rules: list[Rule] = []
        self._failures: list[Exception] = []
        self._reader = RequestReader()
        self._session: aiohttp.ClientSession | None = None
        self._forwarding: set[asyncio.Task[_Answer | None]] = set()
        self._server = web.Server(self._serve, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        tls = True if self._ca_file is None else ssl.create_default_context(cafile=str(self._ca_file))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=_NOT_TO_BE_ADDED,
            middlewares=[ask_once],
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        for watch in tuple(self.watches):
            watch.drop("fin")
        await self._runner.cleanup()
        for task in self._forwarding:
            task.cancel()
        await asyncio.gather(*self._forwarding, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        if self._failures and error is None:
            raise self._failures[0]

    @property
    def url(self) -> str:
        """The address, for as long as the proxy is open."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, path: Path, *, token: str = "none") -> Path:
        """Write a kubeconfig that points here, with the token that the server wants."""
        return write_kubeconfig(path, url=self.url, user="proxied", token=token)

    def add(self, action: Action, where: Where, *, nth: int = 1, times: int | None = 1) -> Rule:
        """Do this with the nth request for which `where` is true, and those after it, up to so many (None: all)."""
        rule = Rule(action, where, nth=nth, times=times)
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Forget a rule; what it holds, it releases."""
        rule.release()
        self._rules.remove(rule)

    async def until_idle(self) -> None:
        """Wait until no client is connected, and all that was forwarded is answered."""
        await until(lambda: not self._server.connections and not self._forwarding, f"no requests at {self.url}")

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        body = await incoming.content.read()
        request = self._reader.read(incoming.method, incoming.raw_path, incoming.headers, body)
        rule = next((rule for rule in self._rules if rule.takes(request)), None)
        exchange = self.log.begin(request, rule.action if rule else None)
        if not await self._goes_on(rule, "request", request):
            return _hung_up(incoming, "fin")
        match rule:
            case Rule(action=FailBefore(how=how)):
                rule.applied.append(request)
                return _hung_up(incoming, how)
            case Rule(action=Refuse(code=code) as refusal):
                rule.applied.append(request)
                exchange.given = code
                return _refused(refusal)
            case _ if request.verb == "watch":
                return await self._watch(incoming, exchange, rule)
            case _:
                return await self._forward(incoming, exchange, rule)

    async def _forward(self, incoming: web.BaseRequest, exchange: Exchange, rule: Rule | None) -> web.StreamResponse:
        answer: _Answer | None = None
        for _ in range(2 if isinstance(exchange.action, ForwardTwice) else 1):
            asking = asyncio.create_task(self._ask(incoming, exchange))
            self._forwarding.add(asking)
            asking.add_done_callback(self._forwarding.discard)
            answer = await asyncio.shield(asking)
        if not await self._goes_on(rule, "answer", exchange.request):
            return _hung_up(incoming, "fin")
        match rule:
            case Rule(action=FailAfter(how=how)):
                rule.applied.append(exchange.request)
                return _hung_up(incoming, how)
            case Rule(action=ForwardTwice()):
                rule.applied.append(exchange.request)
            case _:
                pass
        if answer is None:
            return _hung_up(incoming, "fin")
        exchange.given = answer.status
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _ask(self, incoming: web.BaseRequest, exchange: Exchange) -> "_Answer | None":
        """The server's answer, None if it breaks off."""
        try:
            async with self._open(incoming, exchange.request) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            exchange.has_broken_off = True
            return None
        exchange.answers.append(answered(exchange.request, answer.status, body))
        return _Answer(answer.status, _passed_on(answer.headers), body)

    async def _watch(self, incoming: web.BaseRequest, exchange: Exchange, rule: Rule | None) -> web.StreamResponse:
        request = exchange.request
        response: web.StreamResponse | None = None
        try:
            async with self._open(incoming, request) as answer:
                exchange.answers.append(Answered(answer.status, ""))
                if not await self._goes_on(rule, "answer", request):
                    return _hung_up(incoming, "fin")
                if rule and isinstance(rule.action, FailAfter):
                    rule.applied.append(request)
                    return _hung_up(incoming, rule.action.how)
                exchange.given = answer.status
                headers = _passed_on(answer.headers)
                if answer.status != 200:
                    return web.Response(status=answer.status, headers=headers, body=await answer.read())
                response = web.StreamResponse(headers=headers)
                response.enable_chunked_encoding()
                await response.prepare(incoming)
                watch = ProxiedWatch(request, response, incoming.transport)
                self.watches.append(watch)
                try:
                    await watch.run(answer.content, rule)
                finally:
                    self.watches.remove(watch)
                    _abort(answer)
        except (aiohttp.ClientError, OSError):
            return _hung_up(incoming, "fin", response)  # one side is gone: so is the other
        return response

    def _open(self, incoming: web.BaseRequest, request: ApiRequest) -> Any:
        assert self._session is not None
        return self._session.request(
            request.method,
            URL(self._upstream + incoming.raw_path, encoded=True),
            headers=_passed_on(incoming.headers),
            data=request.body or None,
            allow_redirects=False,
        )

    async def _goes_on(self, rule: Rule | None, stage: Stage, request: ApiRequest) -> bool:
        """Carry out an action that takes time, or calls something, if this is its stage; whether anything follows."""
        if rule is None or not isinstance(rule.action, Hold | Strike) or rule.action.stage != stage:
            return True
        rule.applied.append(request)
        match rule.action:
            case Hold():
                await rule.released()
            case Strike(call=call, is_last=is_last):
                try:
                    call()
                except Exception as error:
                    self._failures.append(error)  # a test must hear of it, and a server would only log it
                    raise
                return not is_last
        return True


class _Answer(NamedTuple):
    status: int
    headers: CIMultiDict[str]
    body: bytes


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Close the connection to the server without the farewell of TLS, which outlasts the proxy."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _refused(refusal: Refuse) -> web.Response:
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return web.json_response(refusal.status(), status=refusal.code, headers=headers)


def _hung_up(incoming: web.BaseRequest, how: HangUp, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Close the connection; the response is for the library, which finds that nobody is left to get it."""
    hang_up(incoming.transport, how)
    return response or web.Response()


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_A_CONNECTION)
