"""`levelog demo`: everything embedded, an example operator and a story; what happened and why."""

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_cli.commands.declaring import switch
from levelog_cli.running import execute
from levelog_cli.settings import LogLevel, Settings

if TYPE_CHECKING:
    from rich.console import Console

    from levelog_cli.demo.stage import Stage


class DemoStory(StrEnum):
    """The story that the demo tells."""

    WEBS = "webs"
    INCIDENT = "incident"


def demo(
    story: Annotated[
        DemoStory, typer.Argument(help="webs: what an operator does; incident: how to find out what one did wrong.")
    ] = DemoStory.WEBS,
    *,
    as_json: Annotated[bool, switch("End with a summary as one line of JSON.", "--json")] = False,
    keep: Annotated[bool, switch("Stay up afterwards, with a kubeconfig to try it by hand.", "--keep")] = False,
    ui: Annotated[bool, switch("Stay up, and serve pages that show what happened: see `levelog ui`.", "--ui")] = False,
    debug: Annotated[bool, switch("Show the log, and the traceback if the command fails.", "--debug")] = False,
) -> None:
    """Run an example operator on a cluster in this process; show what woke, what drifted and what was written."""
    settings = Settings(log_level=LogLevel.INFO if debug else LogLevel.ERROR, debug=debug)
    ending = Ending(as_json=as_json, keep=keep, ui=ui)
    execute(settings, lambda: _demonstrate(settings, story, ending))


class Ending(Struct, frozen=True, kw_only=True):
    """The end of the demo, after the story."""

    as_json: bool
    keep: bool
    ui: bool


async def _demonstrate(settings: Settings, story: DemoStory, ending: Ending) -> None:
    from msgspec.structs import replace

    with _temporary_folder() as folder:
        own = replace(settings, data_dir=folder / "data", kubeconfig=str(folder / "kubeconfig"))
        if story is DemoStory.WEBS:
            await _run(own, ending)
        else:
            await _run_incident(own, folder, ending)


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


async def _run(settings: Settings, ending: Ending) -> None:
    from rich.console import Console

    from levelog_cli.demo.stage import HERE, staged
    from levelog_cli.demo.steps import STORY
    from levelog_cli.demo.telling import tell, tell_lists, tell_start, tell_sum

    console = Console()
    started = time.monotonic()
    tell_start(console)
    async with staged(settings, HERE / "webs.py") as stage:
        tell_lists(console, stage.resources, await stage.first(stage.watching.settled()))
        writes = 0
        for number, step in enumerate(STORY, start=1):
            step.act(stage.sandbox)
            outcome = await stage.first(stage.watching.settled())
            writes += len(outcome.writes)
            tell(console, number, step, outcome)
        calls = stage.processor.calls
        summary = {
            "converged": True,
            "writes": writes,
            "calls": dict(sorted(calls.functions.items())),
            "spurious_wakes": calls.spurious,
            "records": stage.processor.records,
            "seconds": round(time.monotonic() - started, 2),
        }
        tell_sum(console, summary)
        await _end(console, settings, stage, summary, ending)


async def _run_incident(settings: Settings, folder: Path, ending: Ending) -> None:
    from rich.console import Console

    from levelog_cli.demo.incident import Incident
    from levelog_cli.demo.stage import staged

    console = Console()
    started = time.monotonic()
    incident = Incident(console, settings, folder)
    async with staged(settings, folder / "webs.py") as stage:
        record = await incident.tell(stage)
        summary = {"record": record, "seconds": round(time.monotonic() - started, 2)}
        await _end(console, settings, stage, summary, ending)


async def _end(console: "Console", settings: Settings, stage: "Stage", summary: dict[str, Any], ending: Ending) -> None:
    import msgspec

    from levelog_cli.demo.telling import tell_how_to_try

    if ending.as_json:
        print(msgspec.json.encode(summary).decode(), flush=True)  # noqa: T201 - for a program to read
    if ending.keep or ending.ui:
        tell_how_to_try(console, settings.kubeconfig, settings.data_dir)
    if ending.ui:
        from levelog_cli.wiring.pages import serve_pages

        await stage.first(serve_pages(settings, path="/o/pods/default/shop-1"))
    if ending.keep:
        await stage.running
