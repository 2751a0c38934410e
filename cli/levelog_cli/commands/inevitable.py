"""`levelog inevitable`: from which record on something could not be avoided, and which two records raced."""

from pathlib import Path
from typing import Annotated

import typer

from levelog_cli.running import FAILED, execute
from levelog_cli.settings import NATS, FromBundle, Settings, taking


@taking(
    *NATS, "data_dir", "application", "cluster", "redaction_key_file", "redact", "redaction", "threads", looks_back=True
)
def inevitable(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="Operators to decide with.", metavar="FILE")],
    expression: Annotated[
        str,
        typer.Argument(
            help="""What they decide, as for `levelog bisect`: wrote("delete", "pods/default/shop-0").""",
            metavar="EXPRESSION",
        ),
    ],
    *,
    orders: Annotated[int, typer.Option(help="Try so many orders at most.", min=1)] = 200,
    bundle: FromBundle = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Decide again on other orders of the records that the log did not order, going back from where it came out.

    Shows from which record on it comes out in every order, and which two records race before that. Ends with status 1
    if it does not come out at all.
    """

    async def work() -> None:
        from levelog_cli.wiring.travel import show_inevitable

        if not await show_inevitable(settings, file, expression, most=orders, bundle=bundle, as_json=as_json):
            raise SystemExit(FAILED)

    execute(settings, work)
