"""`levelog rbac`: the rights that the processes of an application need, as manifests."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import execute
from levelog_cli.settings import Settings, taking


@taking("application", "namespace")
def rbac(
    settings: Settings,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Operators, as `levelog run` takes them.", show_default=False),
    ],
    *,
    accounts_in: Annotated[
        str, typer.Option(help="Namespace in which the processes run.", metavar="NAMESPACE")
    ] = "default",
) -> None:
    """Print accounts and roles for ingest, process and actuate, with just what these operators need."""

    async def work() -> None:
        from levelog_cli.loading import load_application
        from levelog_cli.wiring.manifests import roles_of

        application = load_application(settings, files)
        sys.stdout.write(roles_of(application, accounts_in=accounts_in, namespaces=settings.namespaces))

    execute(settings, work)
