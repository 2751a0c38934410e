"""An actuator in a process of its own: `python -m rigs.actuatorprocess NATS_URL DATABASE_URL KUBECONFIG [FOLDER]`.

Its deadlines are short, or long with `--patient` for the folder; it prints a line once it runs, and works until it is
stopped or killed.
Its effect `note` adds a line to the file `calls` of the folder, and kills the process if there is a file `kill`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from levelog import Operator
from levelog_actuator import Actuator
from levelog_kube.client import connect as connect_kube
from levelog_kube.discovery import cluster_uid
from levelog_log.notifications import Notifier
from levelog_log.publisher import BatchPublisher
from levelog_log.stream import open_stream
from levelog_log.transport.connection import connect as connect_nats
from levelog_store.connect.database import Database
from rigs.acting import APPLICATION, BRIEF, PATIENT, Acting, effects_of
from rigs.leasing import scope_of
from rigs.nats import NatsServer
from rigs.processes import Forked, Process
from rigs.waiting import until

TESTS = Path(__file__).parents[1]


class ActuatorProcess:
    """One that can be killed, and started again."""

    def __init__(self, acting: Acting, nats: NatsServer, folder: Path) -> None:
        given = (nats.url, acting.database_url, acting.kubeconfig)
        self._argv: list[str | Path] = [sys.executable, "-m", "rigs.actuatorprocess", *given]
        self._log = folder / "actuator.log"
        self._process: Process | None = None

    async def start(self, *more: str | Path) -> None:
        """Start it, and wait until it runs; `more` is what the module takes beside its servers."""
        before = self._runs()
        self._process = Forked([*self._argv, *more], self._log, env={"PYTHONPATH": str(TESTS)})

        async def runs() -> bool:
            if self._runs() > before:
                return True
            self.process.check()
            return False

        await until(runs, "an actuator that runs")

    def _runs(self) -> int:
        return self._log.read_text().count("RUNS") if self._log.exists() else 0

    @property
    def process(self) -> Process:
        """The one that was started last."""
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL it, if it was started."""
        if self._process is not None:
            self._process.kill()


def noting(folder: Path) -> Operator:
    """An operator whose effect leaves a trace outside the process before that ends."""
    op = Operator("webs")

    @op.effect
    def note(request: str, idempotency_key: str) -> int:
        with (folder / "calls").open("a") as file:
            print(idempotency_key, request, file=file, flush=True)
        if (folder / "kill").exists():
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return len((folder / "calls").read_text().splitlines())

    return op


async def main(nats_url: str, database_url: str, kubeconfig: str, folder: str = "") -> None:
    settings = PATIENT if folder == "--patient" else BRIEF
    effects = effects_of(noting(Path(folder)) if folder and settings is BRIEF else None)
    async with (
        await connect_nats(nats_url) as connection,
        await Database.open(database_url) as database,
        await connect_kube(Path(kubeconfig)) as client,
    ):
        cluster = await cluster_uid(client)
        stream = await open_stream(connection, cluster)
        scope = await scope_of(database, stream=stream)
        async with Notifier(connection, cluster, APPLICATION) as notifier:
            publisher = BatchPublisher(stream)
            actuator = Actuator(database, scope, client, publisher, notifier, settings=settings, effects=effects)
            task = asyncio.create_task(actuator.run())
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            print("RUNS", flush=True)
            await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
