"""`levelog bisect`: where it began: at which record, or with which commit."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import FAILED, execute
from levelog_cli.settings import NATS, FromBundle, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster", "redaction_key_file", looks_back=True)
def bisect(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Argument(help="Operators that --code tries, of each commit.", metavar="FILE", show_default=False),
    ] = None,
    *,
    bad: Annotated[
        str,
        typer.Option(
            help="""A Python expression: object("pods/default/shop-0").status.phase == "Failed", deleted("…"), """
            """len(objects("pods/default")) > 9, level("shop").status == "failed", wrote("delete", "…").""",
            metavar="EXPRESSION",
        ),
    ] = "",
    code: Annotated[
        str,
        typer.Option(
            help="Find the first commit after GOOD, up to BAD, with which a replay of the bundle decides otherwise.",
            metavar="GOOD..BAD",
        ),
    ] = "",
    bundle: FromBundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the first record after which something is so, or the first commit that decides otherwise.

    Ends with status 1 if there is none.
    """

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.wiring.commits import show_first_commit
        from levelog_cli.wiring.travel import show_first_bad

        if bool(bad) == bool(code):
            raise ConfigurationError("give --bad EXPRESSION to look for a record, or --code GOOD..BAD for a commit")
        if not code:
            is_found = await show_first_bad(settings, bad, bundle=bundle, as_json=as_json)
        elif operators is None or recorded is None:
            raise ConfigurationError("--code tries FILE of each commit on a --bundle: give both")
        else:
            is_found = await show_first_commit(settings, operators, code, bundle=recorded, as_json=as_json)
        if not is_found:
            raise SystemExit(FAILED)

    operators, recorded = file and file.absolute(), bundle and bundle.absolute()
    execute(settings, work)
