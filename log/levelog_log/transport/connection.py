"""A connection to NATS that reports when it is lost, and translates failures into levelog's errors."""

import asyncio
import logging
import re
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn, Self, TypeVar

import nats.errors
from nats.aio.msg import Msg

from levelog.absence import Absence
from levelog_base.errors import ConfigurationError, LevelogError, Unavailable
from levelog_log.transport.access import NatsAccess, Servers, explain_tls, parse_servers, without_credentials
from levelog_log.transport.wire import Message, NatsClient, is_refusal

log = logging.getLogger(__name__)
A = TypeVar("A")

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(seconds=10)
SMALL_PAYLOAD_BYTES: Final = 2 * 1024 * 1024  # etcd takes objects up to 1.5 MiB; NATS' own default is 1 MiB
INBOX: Final = "_INBOX"
NO_RESPONDERS: Final = "503"
_CLOSE_SECONDS: Final = 1.0
_SERVER_TIMEOUT: Final = timedelta(seconds=3)  # of each of several servers, for each step of connecting
_PING_SECONDS: Final = 3  # a peer that vanished without a word is noticed after three of them
_PERMISSION: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_REMEMBERED: Final = 100  # subjects that were used last, to name the one that is refused as it was written


_AGAIN: Final = timedelta(seconds=1)
_ELECTION: Final = timedelta(seconds=15)
"""Servers lose requests while they elect a leader, up to 10 s after one was killed."""


class NoResponders(Unavailable):
    """Nothing listens on a subject: no JetStream, or no such stream."""


class Unanswered(Unavailable):
    """A request was sent, and no answer came in time."""


class Connection:
    """One connection to NATS, shared by everything in a process; it reconnects by itself for ever.

    While it is down, publishing and requests raise Unavailable at once and are never sent later. Requests under way
    when it breaks raise Unavailable then, not at their time-out. Once the server has refused a subject or the user,
    everything raises a ConfigurationError that says so, and so does `until_refused`.
    """

    def __init__(self, client: NatsClient, url: str) -> None:
        self.client = client
        self.url = without_credentials(url)
        self.reconnects = 0
        """How often the connection was made again; after a change, check what you relied on."""
        self._up = asyncio.Event()
        self._up.set()
        self._asked: set[asyncio.Future[Msg]] = set()
        """Answers under way."""
        self._refusal: asyncio.Future[LevelogError] = asyncio.get_running_loop().create_future()
        self._subjects: deque[str] = deque(maxlen=_REMEMBERED)
        self._is_closing = False
        self.absence = Absence(f"NATS at {self.url}")
        self._listeners: set[Callable[[], None]] = set()

    @property
    def is_connected(self) -> bool:
        """Whether the connection is up now, as far as is known."""
        return self._up.is_set() and self.client.is_connected

    @property
    def max_payload_bytes(self) -> int:
        """Largest message, headers included, that the server takes."""
        return self.client.max_payload

    @property
    def server_version(self) -> str:
        """Version of the server, `2.12.1`."""
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        step: str = "",
        timeout: timedelta = REQUEST_TIMEOUT,  # noqa: ASYNC109
    ) -> Msg:
        """Send a request and wait for the answer; raises as `ask` does."""
        return await self.ask([Message(subject, b"", payload)], step or f"request {subject}", timeout)

    async def ask(self, messages: Sequence[Message], step: str, timeout: timedelta) -> Msg:  # noqa: ASYNC109
        """Send messages in one write, and wait for the answer to the last.

        Raises Unavailable, naming the step, if the connection breaks, Unanswered if no answer comes in time, and
        NoResponders if nothing listens.
        """
        self._check()
        self._subjects.extend(message.subject for message in messages[:_REMEMBERED])
        try:
            self._check_up()
            answer = await self.client.ask(messages)
            self._asked.add(answer)
            ending = answer.get_loop().call_later(timeout.total_seconds(), _fail, answer, TimeoutError())
            try:
                message = await answer
            finally:
                ending.cancel()
                self._asked.discard(answer)
        except TimeoutError as error:
            raise self._unavailable(f"{step}: NATS at {self.url} gave no answer in time", Unanswered) from error
        except ConnectionError as error:
            self._check()
            what = f"{step}: the connection to NATS at {self.url} was lost before an answer came"
            raise self._unavailable(what) from error
        except nats.errors.Error as error:
            raise self._unavailable(f"{step}: {_explain(error)} (NATS at {self.url})") from error
        if message.headers and message.headers.get("Status") == NO_RESPONDERS:
            raise self._unavailable(f"{step}: nobody answers on NATS at {self.url}", NoResponders)
        return message

    async def request_again(self, subject: str, payload: bytes = b"", *, step: str = "") -> Msg:
        """Send an idempotent request, again each second until one is answered.

        Raises as `request` does.
        """

        async def send(left: timedelta) -> Msg:
            return await self.request(subject, payload, step=step, timeout=left)

        return await first_of(send, within=_ELECTION, again_after=_AGAIN)

    async def publish_all(self, messages: Sequence[Message], step: str = "publishing") -> None:
        """Send messages in order without waiting for an answer. Raises Unavailable while disconnected."""
        self._check()
        self._subjects.extend(message.subject for message in messages[:_REMEMBERED])
        try:
            self._check_up()
            await self.client.publish_all(messages)
        except nats.errors.Error as error:
            raise self._unavailable(f"{step}: {_explain(error)} (NATS at {self.url})") from error

    async def subscribe(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Have all messages of a subject given to a coroutine function, which never waits; returns how to stop that.

        It lasts through lost connections. Raises Unavailable once the connection is closed.
        """
        self._check()
        self._subjects.append(subject)
        try:
            subscription = await self.client.subscribe(subject, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0)
        except nats.errors.ConnectionClosedError as error:
            raise Unavailable(f"subscribing to {subject}: {_explain(error)} (NATS at {self.url})") from error

        async def stop() -> None:
            if not self.client.is_closed:
                await subscription.unsubscribe()

        return stop

    async def wait_connected(self) -> None:
        """Wait until the connection is up."""
        await self._up.wait()

    async def until_refused(self) -> NoReturn:
        """Wait until the server refuses a subject or the user, and raise the error that says so."""
        raise await asyncio.shield(self._refusal)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener each time the connection breaks or is made again; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def close(self) -> None:
        """Close the connection, after sending what was published; whoever is cancelled meanwhile waits a moment."""
        self._is_closing = True
        closing = asyncio.ensure_future(self.client.close())
        try:
            await asyncio.wait([closing])
        except asyncio.CancelledError:  # nats-py would leave its socket and its tasks behind
            await asyncio.wait([closing], timeout=_CLOSE_SECONDS)
            raise
        finally:
            if closing.cancel():
                self.client.abandon()
        if not closing.cancelled():  # by nats-py, where an attempt to connect again was waiting for the same
            closing.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def note_lost(self) -> None:
        """The client says that the connection broke or was closed."""
        self._end()

    async def note_made_again(self) -> None:
        """The client says that the connection is up again."""
        self.reconnects += 1
        self._up.set()
        self.absence.ended()
        self._notify()

    async def note_closed(self) -> None:
        """The client says that it will not connect again."""
        if not self._is_closing:
            why = _explain(self.client.last_error) if self.client.last_error else "no reason is given"
            self._refuse(Unavailable(f"NATS at {self.url} closed the connection for good: {why}"))

    async def note_error(self, error: Exception) -> None:
        """An error that the client reports after the connection was made."""
        if refused := _PERMISSION.match(_explain(error)):
            may, subject = ("publish to" if refused[1] == "publish" else "subscribe to"), self._written(refused[2])
            what = f"this user may not {may} {subject}: give it that permission"
            self._refuse(ConfigurationError(f"NATS at {self.url} refused a subject, {what}"))
        elif is_refusal(error) and not self.client.is_connected:
            self._refuse(_refused_credentials(self.url, error))
        elif isinstance(error, ssl.SSLError):
            log.warning("cannot connect to NATS again: %s", explain_tls(error), extra={"url": self.url})
        else:
            log.debug("NATS: %s", _explain(error), extra={"url": self.url})
            if self.absence.is_on:
                self.absence.began(_explain(error))

    def _written(self, lowered: str) -> str:
        """A subject as it was used; nats-py reports it in lower case."""
        return next((subject for subject in self._subjects if subject.lower() == lowered), lowered)

    def _refuse(self, error: LevelogError) -> None:
        if not self._refusal.done():
            self._refusal.set_result(error)
            self._give_up_asking()

    def _give_up_asking(self) -> None:
        for answer in self._asked:
            _fail(answer, ConnectionResetError())

    def _check(self) -> None:
        if self._refusal.done():
            raise self._refusal.result()

    def _check_up(self) -> None:
        # nats-py is connected a little before it says so. What was sent then would go to a log that nobody has checked
        # yet, and wait for its time-out if that connection breaks too.
        if not self._up.is_set():
            raise nats.errors.ConnectionReconnectingError

    def _end(self) -> None:
        if self._up.is_set():
            self._up.clear()
            self._give_up_asking()
            if not self.client.is_closed:
                self.absence.began("the connection is lost")
            self._notify()

    def _unavailable(self, text: str, kind: type[Unavailable] = Unavailable) -> Unavailable:
        if not self.client.is_connected:  # nats-py closes the socket before it says so
            self._end()
        error = kind(text)
        self.absence.covers(error)
        return error

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


async def first_of(
    send: Callable[[timedelta], Coroutine[Any, Any, A]], *, within: timedelta, again_after: timedelta
) -> A:
    """Call `send` with the time that is left, and again at intervals; returns the outcome of the first to end.

    The others are cancelled.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + within.total_seconds()
    sent: set[asyncio.Task[A]] = set()
    ended: set[asyncio.Task[A]] = set()
    try:
        while not ended:
            left = timedelta(seconds=end - loop.time())
            if left > again_after or not sent:
                sent.add(asyncio.create_task(send(left)))
            ended, _ = await asyncio.wait(
                sent, timeout=again_after.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
        return await ended.pop()
    finally:
        for task in sent:
            task.cancel()
        await asyncio.gather(*sent, return_exceptions=True)


async def connect(
    url: str,
    *,
    name: str = "levelog",
    access: NatsAccess | None = None,
    inbox: str = INBOX,
    timeout: timedelta = CONNECT_TIMEOUT,  # noqa: ASYNC109
) -> Connection:
    """Connect to NATS, at one URL or at several with commas between, and check that JetStream is enabled.

    `inbox` is the prefix of the subjects of answers, which a server can reserve for a user. Raises Unavailable, naming
    the URL without its credentials, once every server has failed or the time-out is over; ConfigurationError if a URL
    is invalid, a file cannot be used, a certificate or the credentials are refused, or JetStream is not enabled.
    """
    servers = parse_servers(url)
    access = access or NatsAccess()
    access.check(servers)
    attempt = _Attempt(url, servers, access)
    connection = attempt.connection
    try:
        await attempt.make(name, inbox, timeout)
        await require_jetstream(connection)
    except BaseException:  # also where the task is cancelled
        await connection.close()
        raise
    if connection.max_payload_bytes < SMALL_PAYLOAD_BYTES:
        log.warning(
            "NATS takes messages of %d bytes only; larger objects are recorded without body; set max_payload: 8MB",
            connection.max_payload_bytes,
            extra={"url": connection.url},
        )
    return connection


class _Attempt:
    """The first attempt to connect, which is limited; after it, nats-py reconnects for ever."""

    def __init__(self, url: str, servers: Servers, access: NatsAccess) -> None:
        self._servers = servers
        self._access = access
        requires_tls = servers.requires_tls or access.requires_tls
        self._tls = access.tls_context() if requires_tls else None
        self._client = NatsClient(
            tls=self._tls_context,
            requires_tls=requires_tls,
            public_nkey=(lambda: access.sign(b"")[1]) if access.nkey_file is not None else None,
        )
        self.connection = Connection(self._client, url)
        self._failures: list[Exception] = []
        self._has_several = len(servers.urls) > 1
        self._is_hopeless = asyncio.Event()
        self._has_succeeded = False

    async def make(self, name: str, inbox: str, limit: timedelta) -> None:
        """Connect, or raise why that failed; each of several servers has its turn within the time."""
        if self._has_several:
            limit = max(limit, (len(self._servers.urls) + 1) * _SERVER_TIMEOUT)
        connecting = asyncio.ensure_future(self._client.connect(**self._options(name, inbox, limit)))
        giving_up = asyncio.ensure_future(self._is_hopeless.wait())
        try:
            await asyncio.wait(
                (connecting, giving_up), timeout=limit.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            giving_up.cancel()
            if not connecting.done():
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)
        if connecting.cancelled() or connecting.exception() is not None:
            raise _cannot_connect(self.connection.url, self._failures[-1] if self._failures else None, limit)
        self._has_succeeded = True
        self.connection.absence.ended()

    def _options(self, name: str, inbox: str, limit: timedelta) -> dict[str, Any]:
        return {
            "servers": self._servers.urls,
            "name": name,
            "user": self._servers.user,
            "password": self._servers.password,
            "token": self._servers.token,
            **self._access.options(),
            "inbox_prefix": inbox,
            "error_cb": self._note_error,
            "disconnected_cb": self._note_lost,
            "reconnected_cb": self.connection.note_made_again,
            "closed_cb": self.connection.note_closed,
            "pending_size": 0,  # else what is published while disconnected is sent later, after its time-out
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 1,
            "ping_interval": _PING_SECONDS,
            "connect_timeout": (_SERVER_TIMEOUT if self._has_several else max(limit, _AGAIN)).total_seconds(),
        }

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # it takes 40 ms to read the certificates that the system trusts
            self._tls = self._access.tls_context()
        return self._tls

    async def _note_error(self, error: Exception) -> None:
        if self._has_succeeded:
            await self.connection.note_error(error)
            return
        log.debug("NATS: %s", _explain(error), extra={"url": self.connection.url})
        if self._client.is_connected or self._is_hopeless.is_set():
            return
        # An end can overtake the server's word that it refuses the credentials: another attempt will hear it.
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            return
        self._failures.append(error)
        if len(self._failures) >= len(self._servers.urls) or is_refusal(error):
            self._is_hopeless.set()

    async def _note_lost(self) -> None:
        await self.connection.note_lost()
        if self._tls is None:
            return
        try:
            self._access.load_into(self._tls)  # certificates are replaced while processes run
        except ConfigurationError as error:
            log.warning("%s", error)


def _cannot_connect(url: str, cause: Exception | None, tried: timedelta) -> LevelogError:
    if isinstance(cause, ssl.SSLError):
        error: LevelogError = ConfigurationError(f"NATS at {url} cannot be used: {explain_tls(cause)}")
    elif cause is not None and is_refusal(cause):
        error = _refused_credentials(url, cause)
    elif cause is not None:
        error = Unavailable(f"NATS at {url} cannot be reached: {_explain(cause)}")
    else:
        error = Unavailable(f"NATS at {url} cannot be reached: no answer within {tried.total_seconds():g} s")
    error.__cause__ = cause
    return error


def _refused_credentials(url: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"NATS at {url} refused the credentials: {_explain(error)}")


async def require_jetstream(connection: Connection) -> None:
    """See that JetStream answers. Raises Unavailable, and ConfigurationError where it is not enabled."""
    missing = (
        f"JetStream is not enabled on NATS at {connection.url}: start it with `jetstream {{ sync_interval: always }}` "
        "in its configuration, or enable it for the account"
    )
    try:
        answer = await connection.request_again("$JS.API.INFO")
    except NoResponders as error:
        raise ConfigurationError(missing) from error
    if re.search(rb'"err_code":\s*(10039|10076)\b', answer.data):  # not enabled for the account, not enabled at all
        raise ConfigurationError(missing)


def _fail(answer: asyncio.Future[Msg], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _explain(error: BaseException) -> str:
    text = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error).removeprefix("nats: ").strip() or text
