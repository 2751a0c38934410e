"""`levelog doctor`: what would keep an application from running, and how to mend it."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from levelog_cli.running import FAILED, execute
from levelog_cli.settings import NATS, LogLevel, Settings, taking


@taking(
    *(*NATS, "database_url", "application", "cluster", "kubeconfig", "context", "namespace", "data_dir"),
    *("redaction_key_file", "redact", "redaction"),
)
def doctor(
    settings: Settings,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Operators whose permissions are checked.", show_default=False),
    ] = None,
    *,
    role: Annotated[
        str, typer.Option(help="ingest, process or actuate: what it needs; default: all.", metavar="ROLE")
    ] = "",
) -> None:
    """Check the cluster and the permissions, NATS, and the database. Ends with status 1 if something is wrong."""

    async def work() -> None:
        from levelog_cli.checks.examination import examine
        from levelog_cli.wiring.roles import named_role

        if not await examine(settings, files or [], named_role(role)):
            raise SystemExit(FAILED)

    # The findings say what the log would warn of.
    is_quiet = settings.log_level is not LogLevel.DEBUG
    execute(msgspec.structs.replace(settings, log_level=LogLevel.ERROR) if is_quiet else settings, work)
