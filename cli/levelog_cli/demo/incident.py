"""The story of an outage: the log tells when it began and why, proves the fix, and becomes its test."""

import asyncio
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp
from rich.console import Console
from rich.markup import escape

from levelog_base.errors import LevelogError
from levelog_cli.demo.stage import HERE, Stage
from levelog_cli.loading import load_application
from levelog_cli.running import FAILED
from levelog_cli.servers.backing import known_redactor
from levelog_cli.settings import Settings
from levelog_replay.bundles.golden import check

_SHOP: Final[dict[str, Any]] = {
    "apiVersion": "example.com/v1",
    "kind": "Web",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"image": "nginx:1.29", "replicas": 3},
}
_MIGRATION: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "migrate-orders", "namespace": "default", "labels": {"app": "shop"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "migrate", "image": "shop-migrations:42"}]},
}
_BUNDLE: Final = "night.jsonl"
_CREATED: Final = re.compile(r"^ *(\d+) .* created", re.MULTILINE)
_RECORDS: Final = re.compile(r"^ *(\d+) ", re.MULTILINE)
_START: Final = "from levelog_cli.start import main; main()"


class Incident:
    """Tells the story in a folder, by commands that anybody could type there."""

    def __init__(self, console: Console, settings: Settings, folder: Path) -> None:
        self._console = console
        self._settings = settings
        self._folder = folder
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LEVELOG_", "KUBE"))},
            "LEVELOG_DATA_DIR": str(settings.data_dir),
            "COLUMNS": str(console.width),
        }
        shutil.copy(HERE / "lastnight.txt", folder / "webs.py")
        shutil.copy(HERE / "fixed.txt", folder / "fixed.py")

    async def tell(self, stage: Stage) -> int:
        """Let it happen, and find out; returns the record that caused it. Raises LevelogError if a command fails."""
        self._title("In the night: a pod with the label app=shop is created, and is gone")
        stage.sandbox.user.create(_SHOP)
        await stage.first(stage.watching.settled())
        stage.sandbox.user.create(_MIGRATION)
        await stage.first(stage.watching.settled())
        await self._run("levels", "shop")
        await self._run("export", _BUNDLE)
        self._title("When did it begin, and who was it?")
        told = await self._run("bisect", "--bundle", _BUNDLE, "--bad", 'deleted("pods/default/migrate-orders")')
        found = _CREATED.search(told)
        if found is None:
            raise LevelogError("demo: levelog bisect does not say which record created the pod")
        record = found[1]
        self._title("What did the cluster look like just then?")
        await self._open(record)
        self._title("Was it that pod? What if it had never been there?")
        told = await self._run("history", "pods/default/migrate-orders", "--bundle", _BUNDLE)
        drops = [word for each in _RECORDS.findall(told) for word in ("--drop", each)]
        await self._run("what-if", "webs.py", "--bundle", _BUNDLE, *drops)
        self._title("Would the fix have helped? It goes by owners, not by labels")
        await self._run("replay", "webs.py", "--against", "fixed.py", "--bundle", _BUNDLE)
        self._title("What would the fix change now?")
        await self._run("plan", "fixed.py")
        self._title("Never again: the night becomes a test, which the fix passes once its result is accepted")
        await self._test()
        return int(record)

    async def _open(self, record: str) -> None:
        """Print the pods of the past, as its API has them."""
        arguments = ("open", _BUNDLE, "--at", record)
        self._command(*arguments)
        process = await self._started(*arguments)
        try:
            said = (await process.stdout.readline()).decode() if process.stdout is not None else ""
            found = re.search(r"http://\S+", said)
            if found is None:
                raise LevelogError(f"demo: levelog open ended: {(await process.communicate())[1].decode()}")
            self._print(said)
            async with aiohttp.ClientSession() as session, session.get(f"{found[0]}/api/v1/pods") as answer:
                pods = (await answer.json())["items"]
            self._console.print("[bold]$ kubectl get pods -o name[/bold]")
            self._print("".join(f"pod/{pod['metadata']['name']}\n" for pod in pods))
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def _test(self) -> None:
        application = load_application(self._settings, [self._folder / "fixed.py"])
        for is_updated in (True, False):
            differing = await check(
                self._folder / _BUNDLE,
                application.program,
                application=application.name,
                is_updated=is_updated,
                redactor=known_redactor(self._settings),
            )
            self._command("pytest", *(["--levelog-update"] if is_updated else []), of="")
            self._print(f"{differing}\n" if differing else "all decisions come out as the bundle says\n")

    async def _run(self, *arguments: str) -> str:
        self._command(*arguments)
        process = await self._started(*arguments)
        out, err = await process.communicate()
        if process.returncode not in (0, FAILED) or (process.returncode == FAILED and not out):
            raise LevelogError(f"demo: levelog {arguments[0]} failed: {err.decode().strip()}")
        self._print(out.decode())
        return out.decode()

    async def _started(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _START, *arguments), cwd=self._folder, env=self._env, stdout=pipe, stderr=pipe
        )

    def _title(self, text: str) -> None:
        self._console.print(f"\n[bold cyan]{escape(text)}[/bold cyan]", soft_wrap=True)

    def _command(self, *arguments: str, of: str = "levelog ") -> None:
        self._console.print(f"[bold]$ {of}{escape(shlex.join(arguments))}[/bold]", highlight=False, soft_wrap=True)

    def _print(self, text: str) -> None:
        self._console.print(escape(text.rstrip("\n")), highlight=False, soft_wrap=True)
