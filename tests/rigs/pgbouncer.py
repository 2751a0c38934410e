"""A real PgBouncer before a PostgreSQL server."""

import os
import shutil
import tempfile
from pathlib import Path

import asyncpg
from sqlalchemy.engine import URL, make_url

from rigs.ports import free_port
from rigs.postgres import ACCOUNT_FOR_ROOT
from rigs.processes import Process
from rigs.server import Server
from rigs.waiting import until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_SETTINGS = """
[databases]
{database} = host={host} port={port} user={user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = {ignored}
"""


class PgBouncer(Server):
    """Pools connections to the database of a URL; clients ask for `ignored` settings without getting them."""

    def __init__(self, url: str, *, mode: str, ignored: str = "") -> None:
        server = make_url(url)
        self._url = server.set(host="127.0.0.1", port=free_port())
        self._account = ACCOUNT_FOR_ROOT if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="levelog-pgbouncer-"))
        self._folder.chmod(0o755)
        self._file = self._folder / "pgbouncer.ini"
        named = {"database": server.database, "user": server.username, "password": server.password or "none"}
        place = {"host": server.host, "port": server.port or 5432, "own": self._url.port}
        self._file.write_text(_SETTINGS.format(mode=mode, ignored=ignored, **named, **place))
        self._process: Process | None = None

    @property
    def url(self) -> str:
        """The URL of the same database through the pooler."""
        return self._url.render_as_string(hide_password=False)

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        assert PROGRAM is not None
        process = self._process = Process([PROGRAM, self._file], self._folder / "log", user=self._account)
        plain: URL = self._url.set(drivername="postgresql")

        async def is_up() -> bool:
            process.check()
            try:
                await (await asyncpg.connect(plain.render_as_string(hide_password=False))).close()
            except OSError:
                return False
            return True

        await until(is_up, "a PgBouncer that answers")

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """SIGKILL it, and remove its folder."""
        self.kill()
        shutil.rmtree(self._folder)
