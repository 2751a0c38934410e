"""`levelog open`: the past as a Kubernetes API."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "data_dir", "cluster", looks_back=True)
def open_past(
    settings: Settings,
    bundle: Annotated[
        Path | None,
        typer.Argument(
            help="A file from `levelog export`; without one: the log.", metavar="BUNDLE", show_default=False
        ),
    ] = None,
    *,
    at: Annotated[
        str, typer.Option(help="The moment: a sequence, a time, or how long ago; default: the last.", metavar="MOMENT")
    ] = "",
    play: Annotated[
        float,
        typer.Option(
            help="Go on from there, so many times as fast; a pause takes 10 s at most.",
            min=0,
            metavar="SPEED",
        ),
    ] = 0,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", show_default="a free one")] = 0,
) -> None:
    """Serve all recorded objects, as they were at a moment, as a Kubernetes API on 127.0.0.1, until Ctrl-C.

    Any client can read and watch it. Nothing can be written.
    """

    async def work() -> None:
        from levelog_cli.wiring.pastcluster import serve_past

        await serve_past(settings, bundle, at=at, speed=play, port=port)

    execute(settings, work)
