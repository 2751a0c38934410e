"""What a story plays on: a cluster in memory, and an operator on it with embedded servers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from levelog_base.wire.manifests import manifests_of
from levelog_cli.demo.telling import Watching
from levelog_cli.loading import load_application
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import EVERYTHING
from levelog_cli.wiring.stack import run_stack
from levelog_processors.processor import Processor
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database

HERE = Path(__file__).parent


class Stage(Struct, frozen=True):
    """An operator that runs."""

    sandbox: Sandbox
    processor: Processor
    resources: list[str]
    watching: Watching
    running: "asyncio.Task[None]"

    async def first(self, waiting: Any) -> Any:
        """Wait for something while the operator runs; what ends the operator is raised."""
        return await _first(self.running, waiting)


@asynccontextmanager
async def staged(settings: Settings, file: Path) -> AsyncGenerator[Stage]:
    """Run the operator of a file on a cluster that knows Webs, while the context lasts."""
    processors: list[Processor] = []
    is_ready = asyncio.Event()

    def follow(processor: Processor) -> None:
        processors.append(processor)
        is_ready.set()

    async with Sandbox() as sandbox:
        sandbox.kubeconfig(settings.kubeconfig)
        for manifest in manifests_of(HERE / "crd.yaml"):
            sandbox.user.create(manifest)
        application = load_application(settings, [file])
        running = asyncio.create_task(run_stack(settings, application, EVERYTHING, on_processor=follow))
        try:
            await _first(running, is_ready.wait())
            async with await Database.open(str(settings.data_dir / "levelog.db"), read_only=True) as database:
                resources = list(processors[0].program.resources)
                yield Stage(sandbox, processors[0], resources, Watching(sandbox, database, resources), running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _first(running: "asyncio.Task[None]", waiting: Any) -> Any:
    task = asyncio.ensure_future(waiting)
    await asyncio.wait((running, task), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        task.cancel()
        running.result()
    return task.result()
