"""The stage of the story: a cluster in memory, an operator on it with embedded servers, and one step after another."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from rich.console import Console

from levelog_cli.crds.definitions import definitions_of
from levelog_cli.demo.steps import STORY
from levelog_cli.demo.telling import Watching, tell, tell_how_to_try, tell_lists, tell_start, tell_sum
from levelog_cli.loading import load_application, load_classes
from levelog_cli.settings import Settings
from levelog_cli.wiring.roles import EVERYTHING
from levelog_cli.wiring.stack import run_stack
from levelog_processors.processor import Processor
from levelog_sandbox import Sandbox
from levelog_store.connect.database import Database

_WEBS: Final = Path(__file__).with_name("webs.py")
ResultT = TypeVar("ResultT")


def followed(link: Path) -> Path:
    """A file, or the one that it names: git writes links as text where it cannot, or is not to, make any."""
    text = link.read_text()
    return link if "\n" in text else link.parent / text


async def play(settings: Settings, *, as_json: bool, ui: bool) -> None:
    """Play and tell the story; afterwards stay up, if that is wanted. What ends the operator is raised."""
    started, console = time.monotonic(), Console()
    tell_start(console)
    async with Sandbox() as sandbox:
        sandbox.kubeconfig(settings.kubeconfig)
        webs = followed(_WEBS)
        for definition in definitions_of(load_classes([webs])):
            sandbox.user.create(definition)
        begun: asyncio.Future[Processor] = asyncio.get_running_loop().create_future()
        application = load_application(settings, [webs])
        running = asyncio.create_task(run_stack(settings, application, EVERYTHING, on_processor=begun.set_result))
        try:
            processor = await _first(running, begun)
            async with await Database.open(str(settings.data_dir / "levelog.db"), read_only=True) as database:
                summary = await _tell_steps(console, running, sandbox, processor, database)
            summary["seconds"] = round(time.monotonic() - started, 2)
            tell_sum(console, summary)
            if as_json:
                print(msgspec.json.encode(summary).decode(), flush=True)  # noqa: T201 - for a program to read
            if ui:
                tell_how_to_try(console, settings.kubeconfig, settings.data_dir)
                from levelog_cli.wiring.pages import serve_pages  # noqa: PLC0415 - it loads what reads bundles

                await _first(running, serve_pages(settings, path="/o/pods/default/shop-1"))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _tell_steps(
    console: Console, running: "asyncio.Task[None]", sandbox: Sandbox, processor: Processor, database: Database
) -> dict[str, object]:
    resources = list(processor.program.resources)
    watching = Watching(sandbox, database, resources)
    tell_lists(console, resources, await _first(running, watching.settled()))
    writes = 0
    for number, step in enumerate(STORY, start=1):
        step.act(sandbox)
        outcome = await _first(running, watching.settled())
        writes += len(outcome.writes)
        tell(console, number, step, outcome)
    return {
        "converged": True,
        "writes": writes,
        "calls": dict(sorted(processor.calls.functions.items())),
        "spurious_wakes": processor.calls.spurious,
        "records": processor.records,
    }


async def _first(running: "asyncio.Task[None]", waiting: Awaitable[ResultT]) -> ResultT:
    """Wait for something while the operator runs; what ends the operator is raised."""
    task = asyncio.ensure_future(waiting)
    await asyncio.wait((running, task), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        task.cancel()
        running.result()
    return await task
