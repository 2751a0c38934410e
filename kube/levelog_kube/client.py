"""A connection to one API server: raw requests and raw streams of lines, with errors that name the request."""

import asyncio
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self, TypeVar
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from aiohttp import BytesPayload
from aiohttp.abc import AbstractStreamWriter
from msgspec import Struct
from yarl import URL

from levelog.absence import Absence
from levelog_base.errors import ConfigurationError, LevelogError, Unavailable
from levelog_kube.configuration import load_configuration
from levelog_kube.official import Configuration
from levelog_kube.requestfailures import ApiError, NoAnswer, Unreachable, Withheld
from levelog_kube.sessions import environment_proxy, open_session, tls_identity, without_password

log = logging.getLogger(__name__)


T = TypeVar("T")
REQUEST_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=10)
SILENCE: Final = timedelta(seconds=90)  # a watch with bookmarks hears one about every minute
_FORBIDDEN: Final = 403
_CREDENTIALS_AGE_SECONDS: Final = 10.0  # credentials that were refused when this young are not read again


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


class LineSplitter:
    """Cuts pieces at line feeds; its work is linear in the bytes, however long the lines are."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Lines that the piece completes, without their line feeds and without empty ones."""
        lines = piece.split(b"\n")
        last = lines.pop()
        if lines and self._begun:
            self._begun.append(lines[0])
            lines[0] = b"".join(self._begun)
            self._begun.clear()
        if last:
            self._begun.append(last)
        return [line for line in lines if line]

    @property
    def is_within_line(self) -> bool:
        """Whether the last line is not complete."""
        return bool(self._begun)


class Answer(Struct, frozen=True):
    """A successful answer; the names of headers do not depend on case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def decode(self, kind: type[T]) -> T:
        """The body as JSON of that type. Raises LevelogError if it is not."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LevelogError(f"the API server answered JSON that cannot be read: {error}") from error


class KubeClient:
    """One API server, as one user; made by `connect`, closed with `close` or `async with`.

    Credentials are read again, and the request repeated, when the server answers 401: tokens expire, and files and exec
    plugins give new ones.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None, configuration: Configuration) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration = configuration
        self._environment_proxy = None if configuration.proxy else environment_proxy(str(configuration.host))
        self._session = open_session(configuration)
        self._retired: list[aiohttp.ClientSession] = []
        self._used: WeakKeyDictionary[aiohttp.ClientResponse, aiohttp.ClientSession] = WeakKeyDictionary()
        """Sessions by the answers that are read."""
        self._identity = tls_identity(configuration)
        self._read_at = time.monotonic()
        self._renewing = asyncio.Lock()
        self._user_agent = f"levelog/{version('levelog')}"
        self.absence = Absence(f"the API server at {self.server}")
        self.on_answer: Callable[[str, str], None] | None = None
        """Hears of each request the method and the status; `<error>`, as client-go has it, where none came."""

    @property
    def server(self) -> str:
        """URL of the API server, without credentials."""
        return re.sub(r"//[^/@]*@", "//", str(self._configuration.host))

    @property
    def _proxy(self) -> str | None:
        return self._configuration.proxy or self._environment_proxy

    @property
    def _proxy_name(self) -> str:
        return without_password(self._proxy) if self._proxy else "in between"

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: timedelta = REQUEST_TIMEOUT,  # noqa: ASYNC109
        may_send: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Send a request and read the whole answer. `path` begins with a slash and is percent-encoded.

        `may_send` is called again at the last moment, when the connection is open and the body is about to be sent:
        after a pause the process may no longer have the right to send. It is not called for a request without a body.

        Raises ApiError for a status of 400 or more; Withheld if `may_send` said no; Unreachable if nothing was sent;
        NoAnswer if the request may have taken effect.
        """
        limits = aiohttp.ClientTimeout(total=timeout.total_seconds(), sock_connect=CONNECT_TIMEOUT.total_seconds())
        headers = {"Content-Type": content_type} if body is not None else {}
        revocable = RevocableBody(body, may_send) if body is not None else None
        with self._explaining(method, path, revocable):
            async with await self._open(method, path, query, limits, headers=headers, body=revocable) as response:
                return Answer(response.status, response.headers, await response.read())

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, silence: timedelta = SILENCE
    ) -> AsyncGenerator[AsyncIterator[list[bytes]]]:
        """GET a body of lines; yields an iterator over the lines that have arrived, some at a time.

        Raises as `request`, and Unavailable if nothing arrives for the time of `silence`, the connection breaks, or the
        body ends within a line. An end between lines ends the iterator.
        """
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT.total_seconds(), sock_read=silence.total_seconds()
        )
        with self._explaining("GET", path):
            response = await self._open("GET", path, query, limits)
        try:
            yield self._lines(response, path)
        finally:
            _hang_up(response)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._session, *self._retired):
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        *,
        headers: Mapping[str, str] | None = None,
        body: RevocableBody | None = None,
    ) -> aiohttp.ClientResponse:
        """The response to a request, its status checked and its body unread."""
        used = self._configuration
        try:
            response = await self._attempt(method, path, query, limits, headers, body)
        except aiohttp.ClientSSLError:  # nothing was sent; authority or own certificate may have been replaced
            if not await self._renew_credentials(used):
                raise
            response = await self._attempt(method, path, query, limits, headers, body)
        self.absence.ended()
        if response.status == 401 and await self._renew_credentials(used):
            response.release()
            response = await self._attempt(method, path, query, limits, headers, body)
        if response.status >= 400:
            async with response:
                answered = await response.read()
            error = ApiError.from_answer(method, path, response.status, answered, response.headers)
            if error.is_transient or error.status == _FORBIDDEN:  # a server that begins does not know its roles yet
                self.absence.covers(error)
            raise error
        return response

    async def _attempt(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        limits: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None,
        body: RevocableBody | None,
    ) -> aiohttp.ClientResponse:
        configuration = self._configuration
        token: str | None = await configuration.get_api_key_with_prefix("BearerToken")
        session, code = self._session, "<error>"
        try:
            response = await session.request(
                method,
                URL(f"{configuration.host}{path}", encoded=True).update_query(query or {}),
                data=body,
                headers={
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",  # compressing costs the server more than it saves near by
                    "User-Agent": self._user_agent,
                    **({"Authorization": token} if token else {}),
                    **(headers or {}),
                },
                timeout=limits,
                proxy=self._proxy,
                proxy_headers=configuration.proxy_headers,
                server_hostname=configuration.tls_server_name,
                middlewares=() if method == "GET" else (_send_once,),
            )
            self._used[response] = session
            code = str(response.status)
            return response
        finally:
            if self.on_answer is not None:
                self.on_answer(method, code)

    async def _lines(self, response: aiohttp.ClientResponse, path: str) -> AsyncIterator[list[bytes]]:
        splitter = LineSplitter()
        pieces = response.content.iter_any()
        while True:
            with self._explaining("GET", path):
                piece = await anext(pieces, b"")
            if not piece:
                break
            if lines := splitter.feed(piece):
                yield lines
        if splitter.is_within_line:
            raise NoAnswer(f"GET {path}: {self.server} ended its answer within a line")

    @contextmanager
    def _explaining(self, method: str, path: str, body: RevocableBody | None = None) -> Generator[None]:
        """Translate connection errors into levelog's, and note the server's absence."""
        try:
            yield
        except (Unreachable, NoAnswer) as error:
            self._note(error, error.__cause__)
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if body is not None and body.is_revoked:
                raise Withheld(f"{method} {path}: not sent: its time was over") from None
            told = self._translated(f"{method} {path}", error)
            self._note(told, error)
            # the text of a proxy's refusal has its URL, and so perhaps a password
            raise told from (None if isinstance(error, aiohttp.ClientHttpProxyError) else error)

    def _note(self, error: Unreachable | NoAnswer, cause: BaseException | None) -> None:
        # A request that takes too long says nothing of the server: a webhook may hang.
        if isinstance(error, Unreachable) or not isinstance(cause, TimeoutError):
            self.absence.began(error)
        self.absence.covers(error)

    def _translated(self, step: str, error: Exception) -> Unreachable | NoAnswer:
        match error:
            case aiohttp.ClientProxyConnectionError():
                return Unreachable(f"{step}: the proxy {self._proxy_name} cannot be reached: {_why(error)}")
            case aiohttp.ClientHttpProxyError():
                refused = f"refused to connect to {self.server}: {error.status} {error.message}"
                return Unreachable(f"{step}: the proxy {self._proxy_name} {refused}")
            case aiohttp.ClientConnectorCertificateError():
                return Unreachable(
                    f"{step}: the certificate of {self.server} is not trusted: {error.certificate_error}"
                )
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | aiohttp.InvalidURL():
                return Unreachable(f"{step}: {self.server} cannot be reached: {_why(error)}")
            case _:
                return NoAnswer(f"{step}: no answer from {self.server}: {_why(error)}")

    async def _renew_credentials(self, refused: Configuration) -> bool:
        """Read the credentials again unless that was just done; tells whether there are others to try."""
        async with self._renewing:
            if self._configuration is not refused:
                return True
            if time.monotonic() - self._read_at < _CREDENTIALS_AGE_SECONDS:
                return False
            try:
                configuration = await load_configuration(self._kubeconfig, self._context)
                identity = tls_identity(configuration)
                session = self._session if identity == self._identity else open_session(configuration)
            except ConfigurationError as error:
                raise Unreachable(
                    f"{self.server} or its credentials were refused, and others cannot be had: {error}"
                ) from error
            log.info("credentials read again", extra={"server": self.server})
            unused: list[aiohttp.ClientSession] = []
            if session is not self._session:
                # Who reads from a session that is closed, a watch, may wait for ever; requests may be on the last one.
                used = set(self._used.values())
                unused = [each for each in self._retired if each not in used]
                self._retired = [*filter(used.__contains__, self._retired), self._session]
                self._session, self._identity = session, identity
            self._configuration = configuration
            self._read_at = time.monotonic()
            for each in unused:
                await each.close()
            return True


async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    timeout: timedelta = CONNECT_TIMEOUT,  # noqa: ASYNC109
) -> KubeClient:
    """Connect to the cluster that the configuration names, and see that it answers.

    Raises ConfigurationError if no cluster is configured, the configuration cannot be read, or the credentials are
    refused; Unavailable, naming the server, if it does not answer.
    """
    configuration = await load_configuration(kubeconfig, context)
    client = KubeClient(kubeconfig, context, configuration)
    if client.server.startswith("https:") and not configuration.verify_ssl:
        log.warning(
            "the certificate of the API server at %s is not checked (insecure-skip-tls-verify): whoever stands between "
            "can take the credentials",
            client.server,
        )
    try:
        await client.request("GET", "/version", timeout=timeout)
    except ApiError as error:
        await client.close()
        if error.status == 401:
            raise ConfigurationError(f"the API server at {client.server} refused the credentials: {error}") from error
        raise Unavailable(f"the API server at {client.server} does not serve: {error}") from error
    except BaseException:
        await client.close()
        raise
    return client


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Where aiohttp would send a PUT or DELETE a second time, as its connection broke, leave that to the caller."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise NoAnswer(f"{request.method} {request.url.raw_path}: the connection broke: {_why(error)}") from error


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Close a connection in the middle of its answer at once: TLS would wait up to 30 s for the server's farewell."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _why(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else str(error.os_error)
    if isinstance(error, TimeoutError):
        return "nothing arrived in time"
    return str(error) or type(error).__name__
