"""A connection to NATS that tells when it was lost, and speaks of failures in levelog's words."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, Self
from urllib.parse import urlsplit

import nats.errors
from nats.aio.msg import Msg

from levelog.errors import ConfigurationError, LevelogError, Unavailable
from levelog_log.wire import Message, NatsClient

log = logging.getLogger(__name__)

CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(seconds=10)
SMALL_PAYLOAD_BYTES: Final = 2 * 1024 * 1024  # etcd takes objects up to 1.5 MiB; NATS' own default is 1 MiB
_PING_SECONDS: Final = 10  # a peer that vanished without a word is noticed after three of them


class NoResponders(Unavailable):
    """Nobody listens on a subject: no JetStream, no such stream, or none of the kind now."""


class Connection:
    """One connection to NATS, shared by everything in a process; it reconnects by itself for ever.

    What is published or asked while it is down raises Unavailable at once and is never sent later. Requests that are
    under way when it breaks raise Unavailable then, not at their time-out.
    """

    def __init__(self, client: NatsClient, url: str) -> None:
        self.client = client
        self.url = without_credentials(url)
        self.reconnects = 0
        """How often the connection was lost and made again: who sees it change has to check what it relied on."""
        self._up = asyncio.Event()
        self._up.set()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
        headers: dict[str, str] | None = None,
        step: str = "",
        timeout: timedelta = REQUEST_TIMEOUT,  # noqa: ASYNC109
    ) -> Msg:
        """Ask and wait for the answer.

        Raises Unavailable, naming the step, when the connection breaks or no answer comes in time, and NoResponders
        if nobody listens.
        """
        asked = self.client.request(subject, payload, timeout=timeout.total_seconds(), headers=headers)
        return await self._until_lost(asked, step or f"request {subject}")

    async def publish_all(self, messages: Sequence[Message], step: str = "publishing") -> None:
        """Send messages in order without waiting for an answer. Raises Unavailable while disconnected."""
        try:
            await self.client.publish_all(messages)
        except nats.errors.Error as error:
            raise Unavailable(f"{step}: {_explain(error)} (NATS at {self.url})") from error

    async def wait_connected(self) -> None:
        """Wait until the connection is up."""
        await self._up.wait()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener each time the connection breaks or is made again; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def close(self) -> None:
        """Close the connection; what was published before is sent first."""
        await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def note_lost(self) -> None:
        """The client says that the connection broke or was closed."""
        if self._up.is_set():
            self._up.clear()
            self._lost.set_result(None)
            if not self.client.is_closed:
                log.warning("connection to NATS lost", extra={"url": self.url})
            self._notify()

    async def note_made_again(self) -> None:
        """The client says that the connection is up again."""
        self.reconnects += 1
        self._lost = asyncio.get_running_loop().create_future()
        self._up.set()
        log.info("connected to NATS again", extra={"url": self.url})
        self._notify()

    async def _until_lost(self, waiting: Coroutine[Any, Any, Msg], step: str) -> Msg:
        task = asyncio.ensure_future(waiting)
        try:
            await asyncio.wait((task, self._lost), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise Unavailable(f"{step}: the connection to NATS at {self.url} was lost before an answer came")
        try:
            return task.result()
        except nats.errors.NoRespondersError as error:
            raise NoResponders(f"{step}: nobody answers on NATS at {self.url}") from error
        except nats.errors.TimeoutError as error:
            raise Unavailable(f"{step}: NATS at {self.url} gave no answer in time") from error
        except nats.errors.Error as error:
            raise Unavailable(f"{step}: {_explain(error)} (NATS at {self.url})") from error

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


async def connect(url: str, *, name: str = "levelog", timeout: timedelta = CONNECT_TIMEOUT) -> Connection:  # noqa: ASYNC109
    """Connect to NATS, at one URL or at several with commas between, and see that JetStream is there.

    Raises Unavailable, naming the URL without its credentials, once every server has failed or the time-out is over;
    ConfigurationError if the URL is none, the credentials are refused or JetStream is not enabled.
    """
    servers = _servers(url)
    client = NatsClient()
    connection = Connection(client, url)
    failures: list[Exception] = []
    hopeless = asyncio.Event()

    async def on_error(error: Exception) -> None:
        log.debug("NATS: %s", _explain(error), extra={"url": connection.url})
        if client.is_connected or hopeless.is_set():
            return
        if isinstance(error, ConnectionResetError):
            return  # it can overtake the server's word that it refuses the credentials: another attempt will hear it
        failures.append(error)
        if len(failures) >= len(servers) or _is_refusal(error):
            hopeless.set()

    connecting = asyncio.ensure_future(
        client.connect(
            servers,
            name=name,
            error_cb=on_error,
            disconnected_cb=connection.note_lost,
            reconnected_cb=connection.note_made_again,
            pending_size=0,  # else what is published while disconnected is sent later, after its time-out
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            ping_interval=_PING_SECONDS,
            connect_timeout=max(1, int(timeout.total_seconds())),
        )
    )
    giving_up = asyncio.ensure_future(hopeless.wait())
    try:
        await asyncio.wait(
            (connecting, giving_up), timeout=timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        giving_up.cancel()
        if not connecting.done():
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            await client.close()
    if connecting.cancelled() or connecting.exception() is not None:
        cause = failures[-1] if failures else None
        if cause is not None and _is_refusal(cause):
            raise ConfigurationError(f"NATS at {connection.url} refused the credentials: {_explain(cause)}") from cause
        why = _explain(cause) if cause is not None else f"no answer within {timeout.total_seconds():g} s"
        raise Unavailable(f"NATS at {connection.url} cannot be reached: {why}") from cause
    try:
        await _require_jetstream(connection)
    except LevelogError:
        await client.close()
        raise
    if client.max_payload < SMALL_PAYLOAD_BYTES:
        log.warning(
            "NATS takes messages of %d bytes only; larger objects are recorded without body; set max_payload: 8MB",
            client.max_payload,
            extra={"url": connection.url},
        )
    return connection


async def _require_jetstream(connection: Connection) -> None:
    missing = (
        f"JetStream is not enabled on NATS at {connection.url}: start it with `jetstream {{ sync_interval: always }}` "
        "in its configuration, or enable it for the account"
    )
    try:
        answer = await connection.request("$JS.API.INFO")
    except NoResponders as error:
        raise ConfigurationError(missing) from error
    if re.search(rb'"err_code":\s*(10039|10076)\b', answer.data):  # not enabled for the account, not enabled at all
        raise ConfigurationError(missing)


def without_credentials(url: str) -> str:
    """The URL, or the URLs, as they may be shown."""
    return ",".join(re.sub(r"//[^/@]*@", "//", part) for part in url.split(","))


def _servers(url: str) -> list[str]:
    servers = [part.strip() for part in url.split(",") if part.strip()]
    for server in servers:
        try:
            parts = urlsplit(server)
            valid = parts.scheme in ("nats", "tls", "ws", "wss") and parts.hostname and (parts.port or True)
        except ValueError:
            valid = False
        if not valid:
            raise ConfigurationError(
                f"{without_credentials(server)!r} is not the URL of a NATS server: write nats://HOST:PORT"
            )
    if not servers:
        raise ConfigurationError("no URL of a NATS server is given: write nats://HOST:PORT")
    return servers


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower()


def _explain(error: BaseException) -> str:
    return str(error).removeprefix("nats: ").strip() or type(error).__name__
