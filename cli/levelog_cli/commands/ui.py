"""`levelog ui`: pages in a browser for what happened and why, of a running application or of a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import DECIDING, NATS, FromBundle, Settings, taking


@taking(*NATS, "database_url", *DECIDING, looks_back=True)
def ui(
    settings: Settings,
    *,
    bundle: FromBundle = None,
    audit: Annotated[
        list[Path] | None,
        typer.Option(help="Show what an audit log says, as `levelog wakes` does.", metavar="FILE", show_default=False),
    ] = None,
    address: Annotated[
        str,
        typer.Option(help="Where to serve the pages; default: 127.0.0.1:8765, or a free port.", metavar="HOST:PORT"),
    ] = "",
    code: Annotated[
        Path | None,
        typer.Option(
            help="Operators that decide again, on pages that ask what if.", metavar="FILE", show_default=False
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which the pages may be asked for.", metavar="NAME", show_default=False),
    ] = None,
) -> None:
    """Serve pages that show objects, levels and decisions with their causes. They change nothing."""

    async def work() -> None:
        from levelog_cli.wiring.pages import serve_pages

        await serve_pages(settings, bundle=bundle, audit=audit or [], address=address, names=name or [], code=code)

    execute(settings, work)
