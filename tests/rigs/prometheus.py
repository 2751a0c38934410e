"""A real Prometheus of one's own, in a folder and on a free port, that scrapes one process."""

import asyncio
import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import yaml

from rigs.ports import free_port
from rigs.processes import Process
from rigs.server import Server
from rigs.waiting import until

PROGRAM: Final = "prometheus"


class Prometheus(Server):
    """Scrapes port `scraped` as the job `levelog` each second, and evaluates rules as often; killed with this process.

    `rules` is the content of a rule file.
    """

    def __init__(self, folder: Path, scraped: int, rules: dict[str, Any]) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: Process | None = None
        (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
        often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        job = {"job_name": "levelog", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}
        configuration = {"global": often, "rule_files": ["rules.yaml"], "scrape_configs": [job]}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))

    async def start(self) -> None:
        """Start the server, and wait until it is ready. Raises ProcessEnded, TimeoutError."""
        options = {
            "config.file": self._folder / "prometheus.yaml",
            "storage.tsdb.path": self._folder / "tsdb",
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        process = self._process = Process([PROGRAM, *flags], self._folder / "prometheus.log")

        async def is_ready() -> bool:
            process.check()
            try:
                return (await self._get("/-/ready"))[0] == 200
            except OSError:
                return False

        await until(is_ready, f"a Prometheus that is ready at port {self.port}", seconds=60)

    def kill(self) -> None:
        """SIGKILL the server."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """Kill the server; the folder is the caller's."""
        self.kill()

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression comes to now."""
        found: list[dict[str, Any]] = (await self._asks("query", query=expression))["result"]
        return found

    async def rules(self) -> list[dict[str, Any]]:
        """The rules with their health and state."""
        return [rule for group in (await self._asks("rules"))["groups"] for rule in group["rules"]]

    async def _asks(self, what: str, **parameters: str) -> dict[str, Any]:
        status, text = await self._get(f"/api/v1/{what}?{urlencode(parameters)}")
        assert status == 200, f"{parameters}: {text}"
        found: dict[str, Any] = json.loads(text)["data"]
        return found

    async def _get(self, path: str) -> tuple[int, str]:
        def get() -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        return await asyncio.to_thread(get)
