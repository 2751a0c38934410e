"""`levelog why`: the causes of a level, and of each write."""

from typing import Annotated

import typer

from levelog_cli.printing.forms import PlainForm, plain_form_of
from levelog_cli.running import execute
from levelog_cli.settings import NATS, Settings, taking


@taking(*NATS, "database_url", "data_dir", "application", "cluster", looks_back=True)
def why(
    settings: Settings,
    name: Annotated[
        str,
        typer.Argument(
            help="A parent, an object written for one, or the end of its name: webs.example.com/default/shop, "
            "default/shop, shop. _ stands for no namespace.",
            metavar="OBJECT",
        ),
    ],
    *,
    view: Annotated[str, typer.Option(help="One view: webs/pods, or pods.", metavar="VIEW")] = "",
    since: Annotated[
        str, typer.Option(help="Decisions after a moment: a sequence, a time, or how long ago (15m).", metavar="MOMENT")
    ] = "",
    at: Annotated[
        str,
        typer.Option(
            help="The decision that was in force at a moment: a sequence, a time, or how long ago.", metavar="MOMENT"
        ),
    ] = "",
    all_decisions: Annotated[bool, typer.Option("--all", help="Every stored decision.")] = False,
    suppressed: Annotated[
        bool, typer.Option("--suppressed", help="Which changes caused no decision, and why.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Show every decision, with what it read and the receipts of its writes.")
    ] = False,
    output: Annotated[
        PlainForm | None,
        typer.Option(
            "--output", "-o", help="One line of JSON, or document of YAML, for each decision.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show what caused a level or a write: the records, what the view read, the level, the writes."""

    async def work() -> None:
        from levelog_cli.wiring.lookback import show_why
        from levelog_history.why import Question

        question = Question(name=name, view=view, since=since, at=at, is_all=all_decisions, is_suppressed=suppressed)
        await show_why(settings, question, is_full=full, form=plain_form_of(output, as_json=as_json))

    execute(settings, work)
