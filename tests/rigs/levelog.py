"""The command `levelog` as a process of its own.

It is forked from one that has loaded it, but where its environment has to be there when Python starts.
"""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import yaml

from levelog_sandbox import Sandbox, StatusError
from rigs.preloaded import LOADED, PROGRAM, Preloaded
from rigs.processes import Child, Env, Process, Words
from rigs.waiting import until

WEBS = Path(__file__).parents[2] / "examples/webs"
WEBS_FILE = WEBS / "webs.py"
KEY = Path(__file__).with_name("redaction.key")


async def define(sandbox: Sandbox, definition: dict[str, Any]) -> None:
    """Install a definition in a sandbox, and wait until its resource is served."""
    sandbox.user.create(definition)
    resource = definition["metadata"]["name"]

    async def is_served() -> bool:
        try:
            sandbox.user.list(resource)
        except StatusError:
            return False
        return True

    await until(is_served, f"the API of {resource}")


async def define_webs(sandbox: Sandbox) -> None:
    """The same for Webs."""
    await define(sandbox, yaml.safe_load((WEBS / "crd.yaml").read_text()))


@asynccontextmanager
async def sandbox_of_shop() -> AsyncGenerator[Sandbox]:
    """A cluster with Webs, one of which wants three pods, and pods that run."""
    async with Sandbox(pods_run=True) as sandbox:
        await define_webs(sandbox)
        sandbox.user.create(yaml.safe_load((WEBS / "shop.yaml").read_text()))
        yield sandbox


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    stdout: str
    stderr: str


class Levelog:
    """Starts commands in one folder, with no settings from the environment of the tests."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self.folder = folder
        self.data = folder / ".levelog"
        self._started = 0
        foreign = ("LEVELOG_", "KUBE", "COLUMNS", "PYTEST_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env["HOME"] = str(folder)
        self.env["LEVELOG_REDACTION_KEY_FILE"] = str(KEY)
        if kubeconfig is not None:
            self.env["KUBECONFIG"] = str(kubeconfig)

    async def ends(
        self,
        *arguments: str | Path,
        seconds: float = 90.0,
        env: Mapping[str, str] | None = None,
        typed: str = "",
        is_preloaded: bool = True,
    ) -> Ended:
        """Run a command that ends by itself; `typed` is what it finds on stdin.

        Without `is_preloaded` it starts as users start it.
        """
        settings = {**self.env, **(env or {})}
        start = _forked if is_preloaded and _is_forkable(settings) else _executed
        return await _ends(start, [str(PROGRAM), *map(str, arguments)], settings, self.folder, seconds, typed)

    async def refused(self, *arguments: str | Path, status: int, env: Mapping[str, str] | None = None) -> str:
        """Run a command that is to be refused: one sentence on stderr, and nothing else but the log of how it began."""
        ended = await self.ends(*arguments, env=env)
        *logged, sentence = ended.stderr.splitlines() or [""]
        assert ended.status == status, ended
        assert ended.stdout == "", ended
        assert sentence.startswith("levelog: "), ended
        assert not any("Traceback" in line or " error " in line for line in logged), ended
        return sentence.removeprefix("levelog: ")

    async def levels(self, *arguments: str) -> list[dict[str, Any]]:
        """What `levels` shows; nothing until there is an application."""
        ended = await self.ends("levels", "--json", *arguments)
        found: list[dict[str, Any]] = json.loads(ended.stdout) if ended.status == 0 else []
        return found

    async def in_sync(self, rounds: int = 1) -> dict[str, Any]:
        """Wait until the only level is in sync after so many rounds, and return it."""

        async def is_in_sync() -> bool:
            return await self._rounds() == [("in_sync", rounds)]

        try:
            await until(is_in_sync, f"a level in sync after {rounds} rounds", seconds=90)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; there is {await self._rounds()}") from error
        [level] = await self.levels()
        return level

    async def _rounds(self) -> list[tuple[str, int]]:
        """Status and round of each level; nothing until there are tables. The embedded database is read itself."""
        if "LEVELOG_DATABASE_URL" in self.env:
            return [(level["status"], level["round"]) for level in await self.levels()]
        return self.rows("SELECT status, round FROM levels")

    def rows(self, query: str) -> list[Any]:
        """What the embedded database answers; nothing until there are tables."""
        address = f"{(self.data / 'levelog.db').absolute().as_uri()}?mode=ro"
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(address, uri=True)) as database:
            return database.execute(query).fetchall()
        return []

    def start(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> "Running":
        """Start a command that runs until it is stopped, logging JSON."""
        self._started += 1
        log = self.folder / f"levelog-{self._started}.log"
        log.write_text("")
        options = ("--log-format", "json")
        return Running([PROGRAM, *arguments, *options], log, env={**self.env, **(env or {})}, folder=self.folder)

    @asynccontextmanager
    async def pages(
        self, *options: str | Path, address: str = "127.0.0.1:0", env: Mapping[str, str] | None = None
    ) -> AsyncGenerator[str]:
        """Serve pages by `levelog ui`; their URL, which is at a free port unless an address is given."""
        running = self.start("ui", *options, "--address", address, env=env)
        try:
            yield await running.serves()
        finally:
            running.stop()


class Running(Process):
    """A command that runs."""

    def _spawn(self, argv: Words, output: BinaryIO, env: Env, folder: Path | None, user: str | None) -> Child:
        assert env is not None
        assert folder is not None
        if not _is_forkable(env):
            # The processes' guard passes the environment on as it is: what is missing in ours has to be emptied.
            missing = {name: "" for name in os.environ if name not in env}
            return super()._spawn(argv, output, {**missing, **env}, folder, user)
        with Path(os.devnull).open("rb") as stdin:
            return _forked([*map(str, argv)], (stdin, output, output), env, folder)

    async def says(self, *texts: str, seconds: float = 90.0) -> str:
        """Wait until its log has a line with all the texts; returns the first one."""

        async def said() -> str:
            lines = [line for line in self.log.read_text().splitlines() if all(text in line for text in texts)]
            if not lines:
                self.check()
            return lines[0] if lines else ""

        return await until(said, f"{' and '.join(texts)} in the log of {self.name}", seconds=seconds)

    async def serves(self) -> str:
        """Wait until it serves pages; their URL."""
        return (await self.says("pages of ", seconds=120)).rpartition(" ")[2]

    async def ends(self, *, seconds: float = 90.0) -> int:
        """Wait until it has ended; returns its status, negative for a signal."""
        await until(lambda: not self.is_running, f"the end of {self.name}", seconds=seconds)
        return int(self._child.returncode or 0)

    async def stops(self, wish: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and wait for that; returns its status."""
        os.kill(self.pid, wish)
        return await self.ends()


def _is_forkable(env: Mapping[str, str]) -> bool:
    """Whether a fork does the same as a start of Python with this environment."""
    names = [name for name in {**os.environ, **env} if name.startswith(LOADED)]
    return all(env.get(name) == os.environ.get(name) for name in names)


_OURS = ("anyio", "hypothesispytest", "pytest_cov", "timeout", "xdist", "xdist.looponfail")
_WITHOUT_OUR_PLUGINS = " ".join(f"-p no:{name}" for name in _OURS)
"""Users need not have them, and to load them takes two thirds of a short run."""


async def python(
    *arguments: str | Path, folder: Path, env: Mapping[str, str] | None = None, seconds: float = 120.0
) -> Ended:
    """Run `python -m …`, which ends by itself and finds levelog and pytest loaded."""
    argv = [sys.executable, *map(str, arguments)]
    settings = {**(os.environ if env is None else env), "PYTEST_ADDOPTS": _WITHOUT_OUR_PLUGINS}
    return await _ends(_forked, argv, settings, folder, seconds)


async def _ends(
    start: Callable[[Sequence[str], Sequence[BinaryIO], Mapping[str, str], Path], Child],
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    seconds: float,
    typed: str = "",
) -> Ended:
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(typed.encode())
        stdin.seek(0)
        child = start(argv, (stdin, out, err), env, folder)
        try:
            async with asyncio.timeout(seconds):
                status = await _end_of(child)
        except BaseException:
            child.kill()
            child.wait()
            raise
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read().decode(), err.read().decode())


def _forked(argv: Sequence[str], files: Sequence[BinaryIO], env: Mapping[str, str], folder: Path) -> Preloaded:
    return Preloaded(argv, env=env, folder=folder, files=[file.fileno() for file in files])


def _executed(
    argv: Sequence[str], files: Sequence[BinaryIO], env: Mapping[str, str], folder: Path
) -> "subprocess.Popen[bytes]":
    stdin, stdout, stderr = files
    return subprocess.Popen(argv, cwd=folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr)


async def _end_of(child: Child) -> int:
    if isinstance(child, Preloaded):
        return await child.ended()
    await until(lambda: child.poll() is not None, "the end of the command", seconds=3600)
    return child.wait()
