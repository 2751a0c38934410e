"""`levelog history`: all changes of an object, by whomever; `levelog writers`: who writes what, how often."""

from typing import Annotated

import typer

from levelog_cli.printing.forms import PlainForm, plain_form_of
from levelog_cli.running import execute
from levelog_cli.settings import NATS, FromBundle, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster", looks_back=True)
def history(
    settings: Settings,
    objects: Annotated[
        list[str],
        typer.Argument(
            help="RESOURCE[.GROUP]/NAMESPACE/NAME, or how it ends: webs.example.com/default/shop, default/shop, shop; "
            "webs.example.com/default and webs.example.com: all objects there. _ stands for no namespace.",
            metavar="OBJECT",
        ),
    ],
    *,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only objects with these labels: app=web,tier!=db", metavar="LABELS")
    ] = "",
    since: Annotated[
        str, typer.Option(help="Only what came after: a sequence, a time, or how long ago (15m).", metavar="MOMENT")
    ] = "",
    at: Annotated[
        str, typer.Option(help="Print the object as it was: at a sequence, a time, or how long ago.", metavar="MOMENT")
    ] = "",
    blame: Annotated[
        str,
        typer.Option(
            help="Print who set a field of the object, and its parts, and in which record: spec, or . for all fields.",
            metavar="FIELD",
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing what happens.")] = False,
    receipts: Annotated[
        bool, typer.Option("--receipts", help="Show the receipts of levelog's own writes too.")
    ] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Show what was decided on the objects, and which records caused it.")
    ] = False,
    bundle: FromBundle = None,
    output: Annotated[
        PlainForm | None,
        typer.Option(
            "--output", "-o", help="One line of JSON, or document of YAML, for each entry.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show each recorded revision of an object: when, who wrote it, which fields changed."""

    async def work() -> None:
        from levelog.errors import ConfigurationError
        from levelog_cli.wiring.lookback import Wanted, show_history, show_object

        form = plain_form_of(output, as_json=as_json)
        wanted = Wanted(
            selector=selector, since=since, is_followed=follow, has_receipts=receipts, has_decisions=decisions
        )
        if at or blame:
            if wanted != Wanted():
                raise ConfigurationError(
                    "--at and --blame print one object: only --bundle, --output and --json go with them, and the "
                    "settings"
                )
            await show_object(settings, objects, bundle=bundle, at=at, blamed=blame, form=form)
            return
        await show_history(settings, objects, wanted, bundle=bundle, form=form)

    execute(settings, work)


@taking(*NATS, "data_dir", "cluster", looks_back=True)
def writers(
    settings: Settings,
    objects: Annotated[
        list[str] | None,
        typer.Argument(
            help="RESOURCE[.GROUP]/NAMESPACE/NAME; without a name, or without both, all objects there, as in "
            "webs.example.com or pods/default. Without any: which fields writers undo for each other, in all objects.",
            metavar="OBJECTS",
            show_default=False,
        ),
    ] = None,
    *,
    since: Annotated[
        str, typer.Option(help="Count what came after: a sequence, a time, or how long ago (15m).", metavar="MOMENT")
    ] = "",
    output: Annotated[
        PlainForm | None, typer.Option("--output", "-o", help="json or yaml.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Show who writes objects, how often, which writes changed nothing, and which come at a fixed period."""

    async def work() -> None:
        from levelog_cli.wiring.lookback import show_writers

        await show_writers(settings, objects or [], since=since, form=plain_form_of(output, as_json=as_json))

    execute(settings, work)
