"""The hosts of a PostgreSQL URL: one that hangs is one that is away."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy.engine import URL

from levelog_base.counting import counted
from levelog_base.errors import ConfigurationError, Unavailable
from levelog_base.wire.timelines import DatabaseTimeline

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
HOST_SECONDS: Final = 4.0
"""How long each of several hosts may take to let a client in; also one that is asked whether it still answers."""
PATIENCE_SECONDS: Final = 5.0
"""A transaction that takes longer has its host asked. So a host that hangs is noticed within 9 s."""

# pg_control_checkpoint() has the timeline of the last checkpoint, which comes some time after a promotion
_TIMELINE: Final = (
    "SELECT system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int "
    "FROM pg_control_system()"
)

_connect: Any = asyncpg.connect  # whose declared types are narrower than what it takes


class _Superseded(Exception):
    """A host is no standby, and another has taken over from it."""


_AWAY: Final = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched, _Superseded)
"""Why the next host is tried."""
_ENDED: Final = (
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
)
"""The server ended a connection that it had just let in."""
_OF_TLS: Final = (ssl.SSLError, FileNotFoundError, PermissionError)
"""What is told as it is: something has to be changed."""


class Hosts:
    """Opens asyncpg's connections, and ends those to a host that does not answer.

    asyncpg's own time-out is for all hosts together, so that the first that hangs would use it up. The host that let a
    client in last is the first to be tried.
    """

    def __init__(self, url: URL, name: str, on_left: Callable[[str], None]) -> None:
        """`on_left` is told why a host is left, before the connections to it are ended."""
        # What follows the ? is read as libpq does it: sslmode and so on, and settings of the session such as
        # search_path; SQLAlchemy's documentation has `ssl` for sslmode.
        query = {"sslmode" if key == "ssl" else key: value for key, value in url.normalized_query.items()}
        hosts = ",".join(query.pop("host", ())).split(",")
        ports = ",".join(query.pop("port", ())).split(",")
        if len(ports) not in (1, len(hosts)):
            said = f"{counted(len(hosts), 'host')} and {counted(len(ports), 'port')}"
            raise ConfigurationError(f"the URL of database {name} has {said}: give one port, or one for each host")
        self._dsns: dict[str, str] = {}
        """What asyncpg is given for each host; empty: nothing besides the URL."""
        for at, host in enumerate(hosts):
            place = {"host": host} if host else {}
            port = ports[at if len(ports) > 1 else 0]
            parameters = {**query, **place, **({"port": port} if port else {})}
            shown = (f"{host}:{port}" if port else host) or f"{url.host or 'localhost'}:{url.port or 5432}"
            self._dsns[shown] = f"postgresql://?{urlencode(parameters, doseq=True)}" if parameters else ""
        self._name = name
        self._on_left = on_left
        self._open: WeakKeyDictionary[asyncpg.Connection, tuple[str, dict[str, Any]]] = WeakKeyDictionary()
        """Host and arguments of each connection."""
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._newest: DatabaseTimeline | None = None
        """None while no primary has said its own, as Aurora's cannot."""
        self._is_there = False
        """Connections are to a host on it."""
        self.promoted_at: float | None = None
        """When it was found to be another one, by the event loop's clock."""

    async def connect(self, **arguments: Any) -> asyncpg.Connection:
        """Connect to the first host that lets a client in, as asyncpg does.

        Raises what asyncpg does for one host; for several that are all away, Unavailable that says so of each.
        """
        limit = CONNECT_SECONDS if len(self._dsns) == 1 else HOST_SECONDS
        failures: dict[str, Exception] = {}
        for host, dsn in tuple(self._dsns.items()):
            try:
                connection = await _connect(**({"dsn": dsn} if dsn else {}), **arguments, timeout=limit)
                if arguments.get("target_session_attrs") == "primary":
                    await self._compare(host, connection)
            except _AWAY as error:
                failures[host] = error
            else:
                self._open[connection] = host, arguments
                self._prefer(host)
                return connection
        last = [*failures.values()][-1]
        if isinstance(last, _OF_TLS) or (len(failures) == 1 and not isinstance(last, _Superseded)):
            raise last
        told = "; ".join(f"{host}: {_why(error)}" for host, error in failures.items())
        raise Unavailable(f"database {self._name} cannot be reached: {told}") from last

    async def _compare(self, host: str, connection: asyncpg.Connection) -> None:
        """Raise _Superseded, and end the connection, if its timeline is not the newest one; note a newer one."""
        try:
            row: Any = await connection.fetchrow(_TIMELINE, timeout=HOST_SECONDS)
            found = DatabaseTimeline(*row)
        except _ENDED as error:
            connection.terminate()
            raise ConnectionResetError(str(error)) from error
        except asyncpg.PostgresError:
            return  # an engine that has no such functions
        except BaseException:
            connection.terminate()
            raise
        newest = self._newest
        if newest is not None and not found.may_follow(newest):
            connection.terminate()
            raise _Superseded(f"it is on {found.shown}, and {newest.shown} is in use")
        if newest is not None and found != newest:
            log.warning(
                "database %s is on %s now, before on %s: a standby was promoted, which may lack the newest commits",
                *(f"{self._name} at {host}", found.shown, newest.shown),
            )
        self._go_on(found)
        self._is_there = True

    def _go_on(self, timeline: DatabaseTimeline) -> None:
        """Leave all hosts on other timelines for good."""
        if timeline != self._newest:
            if self._newest is not None:
                self.promoted_at = asyncio.get_running_loop().time()
            self._newest, self._is_there = timeline, False
            for connection, (_, arguments) in tuple(self._open.items()):
                if arguments.get("target_session_attrs") == "primary":
                    connection.terminate()

    @property
    def timeline(self) -> DatabaseTimeline | None:
        """Which history connections are to; None while that is not known, or no host is on the newest."""
        return self._newest if self._is_there else None

    def require(self, timeline: DatabaseTimeline, used_by: str) -> None:
        """Use no host on another timeline from now on, since another process works on this one."""
        if timeline != self._newest:
            mine = self._newest.shown if self._newest is not None else "none"
            self._on_left(f"{used_by} works on {timeline.shown} of it, and this process on {mine}")
            self._go_on(timeline)

    def _prefer(self, host: str) -> None:
        self._dsns = {host: self._dsns[host], **self._dsns}

    def watch(self, connection: asyncpg.Connection) -> Callable[[], None]:
        """Ask the host now and then whether it answers, until the function that this returns is called."""
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def look() -> None:
            if connection in self._open and not connection.is_closed():
                host, arguments = self._open[connection]
                if host not in self._looks:
                    task = self._looks[host] = loop.create_task(self._look(host, arguments))
                    task.add_done_callback(lambda _: self._looks.pop(host, None))
                timers[:] = [loop.call_later(PATIENCE_SECONDS, look)]

        timers.append(loop.call_later(PATIENCE_SECONDS, look))

        def stop() -> None:
            timers[0].cancel()

        return stop

    async def _look(self, host: str, arguments: dict[str, Any]) -> None:
        dsn = self._dsns[host]
        asked = {**arguments, **({"dsn": dsn} if dsn else {}), "target_session_attrs": "any"}
        try:
            connection = await _connect(**asked, timeout=HOST_SECONDS)
        except OSError as error:
            self.end(host, f"{host}: {_why(error)}")
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            return  # a refusal is an answer
        else:
            connection.terminate()

    def end(self, host: str, why: str) -> None:
        """End all connections to a host; others are tried before it."""
        self._on_left(why)
        self._dsns[host] = self._dsns.pop(host)
        for connection, (its, _) in tuple(self._open.items()):
            if its == host:
                connection.terminate()

    async def close(self) -> None:
        """Ask no host any more."""
        looks = tuple(self._looks.values())
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {HOST_SECONDS:g} s"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is no primary, which can be written to"
    return " ".join(str(error).split()) or type(error).__name__
