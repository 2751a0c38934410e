"""`levelog demo`: everything embedded, an example operator and a story; what happened and why."""

import asyncio
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from levelog.errors import ConfigurationError
from levelog_cli.running import execute
from levelog_cli.settings import LogLevel, Settings

HERE = Path(__file__).parent.parent / "demo"


def demo(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="End with a summary as one line of JSON.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Stay up afterwards, with a kubeconfig to try it by hand.")
    ] = False,
    ui: Annotated[
        bool, typer.Option("--ui", help="Stay up, and serve pages that show what happened: see `levelog ui`.")
    ] = False,
    debug: Annotated[bool, typer.Option(help="Show the log, and the traceback if the command fails.")] = False,
) -> None:
    """Run an example operator on a cluster in this process; show what woke, what drifted and what was written."""
    settings = Settings(log_level=LogLevel.INFO if debug else LogLevel.ERROR, debug=debug)
    execute(settings, lambda: _demonstrate(settings, as_json=as_json, keep=keep, ui=ui))


async def _demonstrate(settings: Settings, *, as_json: bool, keep: bool, ui: bool) -> None:
    from msgspec.structs import replace

    with _temporary_folder() as folder:
        own = replace(settings, data_dir=folder / "data", kubeconfig=str(folder / "kubeconfig"))
        await _run(own, as_json=as_json, keep=keep, ui=ui)


@contextmanager
def _temporary_folder() -> Generator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="levelog-demo-")
    except OSError as error:
        raise ConfigurationError(
            f"the demo keeps its data in a temporary folder, and cannot make one: {error}; set TMPDIR"
        ) from error
    with folder as name:
        yield Path(name)


async def _run(settings: Settings, *, as_json: bool, keep: bool, ui: bool) -> None:
    import msgspec
    from rich.console import Console

    from levelog.wire.manifests import manifests_of
    from levelog_cli.demo.steps import STORY
    from levelog_cli.demo.telling import Watching, tell, tell_how_to_try, tell_lists, tell_start, tell_sum
    from levelog_cli.loading import load_application
    from levelog_cli.wiring.roles import EVERYTHING
    from levelog_cli.wiring.stack import run_stack
    from levelog_processors.processor import Processor
    from levelog_sandbox import Sandbox
    from levelog_store.connect.database import Database

    console = Console()
    started = time.monotonic()
    processors: list[Processor] = []
    is_ready = asyncio.Event()

    def follow(processor: Processor) -> None:
        processors.append(processor)
        is_ready.set()

    tell_start(console)
    async with Sandbox() as sandbox:
        sandbox.kubeconfig(settings.kubeconfig)
        for manifest in manifests_of(HERE / "crd.yaml"):
            sandbox.user.create(manifest)
        application = load_application(settings, [HERE / "webs.py"])
        running = asyncio.create_task(run_stack(settings, application, EVERYTHING, on_processor=follow))
        try:
            await _first(running, is_ready.wait())
            async with await Database.open(str(settings.data_dir / "levelog.db"), read_only=True) as database:
                resources = list(processors[0].program.resources)
                watching = Watching(sandbox, database, resources)
                tell_lists(console, resources, await _first(running, watching.settled()))
                writes = 0
                for number, step in enumerate(STORY, start=1):
                    step.act(sandbox)
                    outcome = await _first(running, watching.settled())
                    writes += len(outcome.writes)
                    tell(console, number, step, outcome)
            calls = processors[0].calls
            summary = {
                "converged": True,
                "writes": writes,
                "calls": dict(sorted(calls.functions.items())),
                "spurious_wakes": calls.spurious,
                "records": processors[0].records,
                "seconds": round(time.monotonic() - started, 2),
            }
            tell_sum(console, summary)
            if as_json:
                print(msgspec.json.encode(summary).decode(), flush=True)  # noqa: T201 - for a program to read
            if keep or ui:
                tell_how_to_try(console, settings.kubeconfig, settings.data_dir)
            if ui:
                from levelog_cli.wiring.pages import serve_pages

                await _first(running, serve_pages(settings, path="/o/pods/default/shop-1"))
            if keep:
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _first(running: "asyncio.Task[None]", waiting: Any) -> Any:
    """Wait for something while the stack runs; what ends the stack is raised."""
    task = asyncio.ensure_future(waiting)
    await asyncio.wait((running, task), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        task.cancel()
        running.result()
    return task.result()
