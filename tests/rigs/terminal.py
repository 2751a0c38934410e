"""The terminals of somebody who follows a page: commands run as they stand there, in one folder, on a sandbox.

Limits: kubectl is played by requests (apply, delete, patch), sqlite3 by Python's module. `python` and `pytest` are
those of the tests. A second `levelog run` ends the first. Commands that read are repeated until they print what the
page shows. What a page shows after `(Pdb)` is typed into the debugger.
"""

import asyncio
import shlex
import sqlite3
import sys
from asyncio.subprocess import PIPE, STDOUT
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import yaml

from rigs.api import APPLY, MERGE_PATCH, Api
from rigs.levelog import Ended, Levelog, Running, python
from rigs.pages import Command, matches
from rigs.processes import Forked, Process
from rigs.waiting import until

SECONDS = 90.0
PROMPT = "(Pdb) "


class Terminal:
    """A folder in which commands are run; what they started ends with the context."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._levelog = Levelog(folder)
        self._levelog.env["COLUMNS"] = "80"
        self._running: list[Process] = []
        self._operator: Running | None = None
        self._kubeconfig = folder / "kubeconfig"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.kill()

    async def run(self, command: Command, *, status: int = 0) -> None:
        """Run a command; raises AssertionError if it ends otherwise or prints something else than is shown."""
        words = self._words(command.text)
        match words:
            case ["export", setting]:
                name, _, value = setting.partition("=")
                self._levelog.env[name] = str(self.folder / value)
            case ["python", "-m", "levelog_sandbox", *options]:
                await self._start_sandbox(options)
            case ["levelog", "run", *options]:
                await self._ensure_sandbox()
                if self._operator is not None:
                    await self._operator.stops()
                self._operator = self._levelog.start("run", *options)
                self._running.append(self._operator)
            case _:
                await self._until_it_prints(words, command, status)

    def select(self, query: str) -> None:
        """Run a query on the operator's database; raises sqlite3.OperationalError if it cannot be run."""
        file = f"{(self.folder / '.levelog/levelog.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as database:
            database.execute(query).fetchall()

    def _words(self, text: str) -> list[str]:
        words = shlex.split(text)
        while words and "=" in words[0] and words[0].partition("=")[0].isupper():
            words.pop(0)  # KUBECONFIG=… before a command: the sandbox's is set already
        return words

    async def _until_it_prints(self, words: list[str], command: Command, status: int) -> None:
        last = Ended(0, "", "")
        typed = "".join(f"{line.removeprefix(PROMPT)}\n" for line in command.shown if line.startswith(PROMPT))
        wanted = tuple(line for line in command.shown if not line.startswith(PROMPT))

        async def is_as_shown() -> bool:
            nonlocal last
            last = await self._ends(words, typed)
            is_shown = not wanted or matches(wanted, last.stdout.replace(PROMPT, ""))
            return last.status == status and is_shown

        try:
            seconds = SECONDS if words[0] in ("levelog", "sqlite3") else 0
            await until(is_as_shown, command.text, seconds=seconds, pause=0.5)
        except TimeoutError:
            shown = "\n".join(command.shown)
            raise AssertionError(
                f"$ {command.text}\nshown:\n{shown}\nended {last.status}, printed:\n{last.stdout}"
            ) from None

    async def _ends(self, words: list[str], typed: str) -> Ended:
        match words:
            case [*command, ">", file]:
                ended = await self._ends(command, typed)
                (self.folder / file).write_text(ended.stdout)
                return ended._replace(stdout="")
            case ["levelog", *options]:
                return await self._levelog.ends(*options, typed=typed)
            case ["pytest", *options]:
                return await self._python("-m", "pytest", *("-p", "no:cacheprovider", "-p", "no:asyncio"), *options)
            case ["python", *options]:
                return await self._python(*options)
            case ["git", *options]:
                if not (self.folder / ".git").exists():
                    await self._program("git", "init", "--quiet")
                return await self._program("git", *options)
            case ["cat" | "diff" | "grep" | "sed" as program, *options]:
                ended = await self._program(program, *options)
                return ended._replace(status=0) if program == "diff" and ended.status == 1 else ended
            case ["sqlite3", *options, database, query]:
                return Ended(0, self._select(self.folder / database, query, options), "")
            case ["kubectl", *rest]:
                await self._ensure_sandbox()
                return Ended(0, await self._kubectl(rest), "")
            case _:
                raise AssertionError(f"no test knows how to run {shlex.join(words)}: teach it, or say why not")

    async def _python(self, *arguments: str) -> Ended:
        ended = await python(*arguments, folder=self.folder, env=self._levelog.env)
        return ended._replace(stdout=ended.stdout + ended.stderr, stderr="")

    async def _program(self, *words: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=self.folder, env=self._levelog.env, stdout=PIPE, stderr=STDOUT
        )
        out, _ = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), "")

    def _select(self, file: Path, query: str, options: list[str]) -> str:
        """What sqlite3 prints in its mode `list`."""
        if not file.exists():
            return ""
        database = sqlite3.connect(file)
        try:
            rows = database.execute(query)
            head = [tuple(column[0] for column in rows.description)] if "-header" in options else []
            lines = ["|".join("" if cell is None else str(cell) for cell in row) for row in (*head, *rows)]
        except sqlite3.OperationalError:  # not made yet
            return ""
        finally:
            database.close()
        return "\n".join(lines) + "\n"

    async def _ensure_sandbox(self) -> None:
        self._levelog.env.setdefault("KUBECONFIG", str(self._kubeconfig))
        if not self._kubeconfig.exists():
            await self._start_sandbox(["--pods-run", "--kubeconfig", "kubeconfig"])

    async def _start_sandbox(self, options: list[str]) -> None:
        log = self.folder / "sandbox.log"
        arguments: list[str | Path] = [Path(sys.executable), "-m", "levelog_sandbox", *options, "--port", "0"]
        sandbox = Forked(arguments, log, env=self._levelog.env, folder=self.folder)
        self._running.append(sandbox)

        async def is_ready() -> bool:
            sandbox.check()
            return self._kubeconfig.exists() and bool(self._kubeconfig.read_text())

        await until(is_ready, "the sandbox's kubeconfig", seconds=SECONDS)

    async def _kubectl(self, words: list[str]) -> str:
        server = yaml.safe_load(self._kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        api = Api(server)
        match words:
            case ["apply", "-f", file]:
                for manifest in yaml.safe_load_all((self.folder / file).read_text()):
                    await self._apply(api, manifest)
            case ["delete", kind, name]:
                await self._request(api, "DELETE", await self._path(api, kind, name))
            case ["patch", kind, name, "--type", "merge", "-p", body]:
                path = await self._path(api, kind, name)
                await self._request(api, "PATCH", path, yaml.safe_load(body), MERGE_PATCH)
            case _:
                raise AssertionError(f"no test knows how to run kubectl {shlex.join(words)}")
        return ""

    async def _apply(self, api: Api, manifest: Any) -> None:
        path = await self._path(api, manifest["kind"], manifest["metadata"]["name"], manifest["apiVersion"], manifest)
        await self._request(api, "PATCH", f"{path}?fieldManager=kubectl", manifest, APPLY)

    async def _request(
        self, api: Api, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> None:
        status, answer = await api.request(method, path, body, content_type=kind)
        assert status < 300, answer

    async def _path(self, api: Api, kind: str, name: str, version: str = "", manifest: Any = None) -> str:
        """Path of an object, once its kind is served."""

        async def found() -> str:
            for served in [version] if version else await self._versions(api):
                base = f"/api/{served}" if "/" not in served else f"/apis/{served}"
                if not await api.is_ok(base):
                    continue
                _, answer = await api.request("GET", base)
                for resource in answer["resources"]:
                    names = (resource["kind"], resource["name"], resource.get("singularName"))
                    if kind in names and "/" not in resource["name"]:
                        namespace = (manifest or {}).get("metadata", {}).get("namespace", "default")
                        inner = f"/namespaces/{namespace}" if resource["namespaced"] else ""
                        return f"{base}{inner}/{resource['name']}/{name}"
            return ""

        return await until(found, f"the API of {kind}", seconds=SECONDS)

    async def _versions(self, api: Api) -> list[str]:
        _, groups = await api.request("GET", "/apis")
        return ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups["groups"])]
