"""The command `levelog` as a process of its own, as users start it."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from levelog_sandbox import Sandbox, StatusError
from rigs.processes import Process
from rigs.waiting import until

PROGRAM = Path(sys.executable).parent / "levelog"
WEBS = Path(__file__).parents[2] / "examples/webs"
WEBS_FILE = WEBS / "webs.py"


async def define_webs(sandbox: Sandbox) -> None:
    """Install the definition of Webs in a sandbox, and wait until they are served."""
    sandbox.user.create(yaml.safe_load((WEBS / "crd.yaml").read_text()))

    async def is_served() -> bool:
        try:
            sandbox.user.list("webs.example.com")
        except StatusError:
            return False
        return True

    await until(is_served, "the API of webs.example.com")


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
        foreign = ("LEVELOG_", "KUBE", "COLUMNS")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.env["HOME"] = str(folder)
        self.env["LEVELOG_REDACTION_KEY_FILE"] = str(Path(__file__).with_name("redaction.key"))
        if kubeconfig is not None:
            self.env["KUBECONFIG"] = str(kubeconfig)

    async def ends(
        self, *arguments: str | Path, seconds: float = 60.0, env: Mapping[str, str] | None = None, typed: str = ""
    ) -> Ended:
        """Run a command that ends by itself; `typed` is what it finds on stdin."""
        process = await asyncio.create_subprocess_exec(
            *map(str, (PROGRAM, *arguments)),
            cwd=self.folder,
            env={**self.env, **(env or {})},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate(typed.encode())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return Ended(process.returncode or 0, out.decode(), err.decode())

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

        async def is_in_sync() -> list[dict[str, Any]]:
            found = await self.levels()
            return found if [(one["status"], one["round"]) for one in found] == [("in_sync", rounds)] else []

        return (await until(is_in_sync, f"a level in sync after {rounds} rounds", seconds=90))[0]

    def start(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> "Running":
        """Start a command that runs until it is stopped, logging JSON."""
        self._started += 1
        log = self.folder / f"levelog-{self._started}.log"
        log.write_text("")
        options = ("--log-format", "json")
        # The processes' guard passes the environment on as it is, so that what is missing in ours has to be emptied.
        missing = {name: "" for name in os.environ if name not in self.env}
        return Running(
            [PROGRAM, *arguments, *options], log, env={**missing, **self.env, **(env or {})}, folder=self.folder
        )


class Running(Process):
    """A command that runs."""

    async def says(self, *texts: str, seconds: float = 60.0) -> str:
        """Wait until its log has a line with all the texts; returns the first one."""

        async def said() -> str:
            lines = [line for line in self.log.read_text().splitlines() if all(text in line for text in texts)]
            if not lines:
                self.check()
            return lines[0] if lines else ""

        return await until(said, f"{' and '.join(texts)} in the log of {self.name}", seconds=seconds)

    async def ends(self, *, seconds: float = 60.0) -> int:
        """Wait until it has ended; returns its status, negative for a signal."""

        async def has_ended() -> bool:
            return not self.is_running

        await until(has_ended, f"the end of {self.name}", seconds=seconds)
        return int(self._child.returncode or 0)

    async def stops(self, wish: signal.Signals = signal.SIGTERM, *, seconds: float = 30.0) -> int:
        """Ask it to end and wait for that; returns its status."""
        os.kill(self.pid, wish)
        return await self.ends(seconds=seconds)
