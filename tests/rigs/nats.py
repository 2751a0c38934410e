"""A real nats-server of one's own, in a folder and on a free port."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from levelog_cli.servers.embedded import nats_program
from rigs.ports import free_port
from rigs.processes import Process
from rigs.server import Server
from rigs.waiting import until

START_SECONDS = 60.0
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024  # Kubernetes objects reach 1.5 MiB, which is more than the server's default


class NatsServer(Server):
    """nats-server with JetStream as levelog needs it: acknowledged means synced to disk; killed when this process ends.

    `url`, port and data stay the same over `kill()` and `start()`. `settings` is added to the server's configuration
    as it stands. Without `has_jetstream` it is a plain message bus.
    """

    def __init__(self, *, has_jetstream: bool = True, settings: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="levelog-nats-"))
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.store_dir = self.folder / "store"
        self.log = self.folder / "nats-server.log"
        self.process: Process | None = None
        self._has_jetstream = has_jetstream
        self._configuration = self.folder / "nats-server.conf"
        self.configure(settings)

    def configure(self, settings: str) -> None:
        """Have other settings from the next start on."""
        jetstream = f"jetstream {{ store_dir: {json.dumps(str(self.store_dir))}, sync_interval: always }}"
        self._configuration.write_text(
            f"listen: 127.0.0.1:{self.port}\n"
            f"max_payload: {MAX_PAYLOAD_BYTES}\n"
            f"{jetstream if self._has_jetstream else ''}\n"
            f"{settings}\n"
        )

    async def start(self) -> None:
        """Start the server, with the data that it has, and wait until it answers. Raises ProcessEnded, TimeoutError."""
        if self.process is None or not self.process.is_running:
            self.process = Process([nats_program(), "--config", self._configuration], self.log)
        process = self.process

        async def is_up() -> bool:
            process.check()
            greeting = await self._greeting()
            return greeting is not None and bool(greeting.get("jetstream")) is self._has_jetstream

        await until(is_up, f"a nats-server that answers at {self.url}", seconds=START_SECONDS)

    def kill(self) -> None:
        """SIGKILL the server; its data stay."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Have the server answer nobody until `resume`, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            os.kill(self.process.pid, number)

    async def start_empty(self) -> None:
        """Kill the server, remove its data, and start it again."""
        self.kill()
        await asyncio.to_thread(shutil.rmtree, self.store_dir)
        await self.start()

    def stop(self) -> None:
        """Kill the server and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _greeting(self) -> dict[str, Any] | None:
        """What the server tells each client first; it listens only once its streams are recovered."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return None
        try:
            line = await reader.readline()
        finally:
            writer.close()
        return json.loads(line.removeprefix(b"INFO ")) if line.startswith(b"INFO ") else None
