"""`levelog migrate`: bring the database to the revision of this code."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import Settings, taking


@taking("database_url", "data_dir", "application")
def migrate(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Operators whose SQL views are made, too.", show_default=False),
    ] = None,
) -> None:
    """Bring the database to the revision of this code."""

    async def work() -> None:
        from levelog_cli.wiring.sqlviews import migrate_database

        await migrate_database(settings, files or [])

    execute(settings, work)
