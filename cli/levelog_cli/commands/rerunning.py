"""Commands that decide again on what was recorded, that write it into a file, and `ui`, whose pages do as well."""

from pathlib import Path
from typing import Annotated

from levelog_cli.commands.declaring import (
    Chosen,
    Deciders,
    End,
    FromBundle,
    Json,
    Labels,
    Start,
    Work,
    answering,
    argument,
    option,
    switch,
)
from levelog_cli.commands.run import Files
from levelog_cli.settings import DECIDING, NATS, Settings

_Network = Annotated[
    bool,
    switch("Let reconcile functions use the network, and functions named with --call do anything.", "--allow-network"),
]


@answering("database_url", *DECIDING, looks_back=True)
def plan(
    settings: Settings,
    files: Files,
    *,
    allow_network: Annotated[bool, switch("Let reconcile functions use the network.", "--allow-network")] = False,
    as_json: Json = False,
) -> Work:
    """Show what these operators would change: levels, and writes. Ends with status 1 if anything.

    They decide in memory on what the application's tables hold; nothing is written.
    """
    from levelog_cli.wiring.rerun import plan_changes

    return plan_changes(settings, files, allows_network=allow_network, as_json=as_json)


@answering(*NATS, "database_url", *DECIDING, looks_back=True, seen=("calls", "breaks"))
def replay(
    settings: Settings,
    file: Deciders,
    *,
    against: Annotated[str, option("recorded, or a file with other operators to compare with.", "FILE")] = "recorded",
    bundle: FromBundle = None,
    start: Start = "",
    end: End = "",
    objects: Chosen = None,
    handler: Annotated[str, option("Only decisions of a view, or with a reconcile function or index.", "NAME")] = "",
    calls: Annotated[
        list[str] | None, option("Call a handler, timer or effect again, and compare; repeatable.", "NAME", "--call")
    ] = None,
    allow_network: _Network = False,
    breaks: Annotated[
        list[str] | None,
        option(
            "Open the debugger in the decisions that a record caused (its sequence), in those on an object "
            "(RESOURCE/NAMESPACE/NAME), or in a function; may be repeated.",
            "WHERE",
            "--break",
        ),
    ] = None,
    is_pdb: Annotated[bool, switch("Open the debugger where a function raises, and at a difference.", "--pdb")] = False,
    as_json: Json = False,
) -> Work:
    """Repeat recorded decisions and compare the results. Ends with status 1 if one differs.

    Nothing is written.
    A function named with --call runs as it did then, but cannot change anything outside the process.
    """
    from levelog_cli.wiring.rerun import replay_history
    from levelog_replay.choice import Choice

    choice = Choice(
        file=file,
        against=against,
        start=start,
        end=end,
        objects=objects or [],
        handler=handler,
        allows_network=allow_network,
        bundle=bundle,
        breaks=breaks or [],
        calls=calls or [],
        is_pdb=is_pdb,
    )
    return replay_history(settings, choice, as_json=as_json)


@answering(*NATS, *DECIDING, looks_back=True)
def what_if(
    settings: Settings,
    file: Deciders,
    *,
    drop: Annotated[list[int] | None, option("Leave out a record, by its sequence; may be repeated.", "RECORD")] = None,
    swap: Annotated[tuple[int, int] | None, option("Put two records in each other's place.", "RECORD RECORD")] = None,
    delay_receipt: Annotated[str, option("Delay all receipts: 3s.", "TIME")] = "",
    value: Annotated[
        tuple[int, str] | None,
        option(
            "Change a field in the object of one record: 75 spec.replicas=2. The value is YAML.",
            "RECORD FIELD=VALUE",
            "--set",
        ),
    ] = None,
    code: Annotated[
        Path | None, option("Other operators, which decide on the changed history, or on history as it was.", "FILE")
    ] = None,
    bundle: FromBundle = None,
    as_json: Json = False,
) -> Work:
    """Change recorded history, or the code, decide on all of it again, and show which decisions differ.

    Ends with status 1 if any does. All other records stay as they are, those of the operator's own writes too.
    """
    from levelog_cli.wiring.travel import show_what_if
    from levelog_replay.travel.edits import WantedEdits

    changes = WantedEdits(dropped=drop or [], swapped=swap, delay=delay_receipt, value=value)
    return show_what_if(settings, file, changes, code=code or file, bundle=bundle, as_json=as_json)


@answering(*NATS, "database_url", *DECIDING, looks_back=True)
def bisect(
    settings: Settings,
    file: Annotated[Path | None, argument("Operators that decide for --inevitable.", "FILE")] = None,
    *,
    bad: Annotated[
        str,
        option(
            """A Python expression: object("pods/default/shop-0").status.phase == "Failed", deleted("…"), """
            """len(objects("pods/default")) > 9, level("shop").status == "failed", wrote("delete", "…").""",
            "EXPRESSION",
        ),
    ] = "",
    inevitable: Annotated[
        str,
        option(
            "Find the record after which this expression becomes true in every order of records, and the two records "
            "that race before it.",
            "EXPRESSION",
        ),
    ] = "",
    orders: Annotated[int, option("Try at most this many orders for --inevitable.", "NUMBER", min=1)] = 200,
    bundle: FromBundle = None,
    as_json: Json = False,
) -> Work:
    """Find the record that made an expression true, or inevitable.

    Ends with status 1 if there is none.
    """
    from levelog_base.errors import ConfigurationError
    from levelog_cli.wiring.travel import show_first_bad, show_inevitable

    if bool(bad) == bool(inevitable):
        raise ConfigurationError("give one of --bad EXPRESSION and --inevitable EXPRESSION")
    if bad:
        return show_first_bad(settings, bad, bundle=bundle, as_json=as_json)
    if file is None:
        raise ConfigurationError("--inevitable decides again with FILE: name the operators")
    return show_inevitable(settings, file, inevitable, most=orders, bundle=bundle, as_json=as_json)


@answering(*NATS, "database_url", "data_dir", "application", "cluster", looks_back=True)
def export(
    settings: Settings,
    file: Annotated[Path, argument("The bundle to write, as in shop.jsonl.", "FILE")],
    *,
    start: Start = "",
    end: End = "",
    objects: Chosen = None,
    selector: Labels = "",
    bookmarks: Annotated[
        bool, switch("Include the bookmarks of each minute, for indices with expires=.", "--bookmarks")
    ] = False,
) -> Work:
    """Write decisions, and the records that they were made on, into one file, redacted as the log is.

    `levelog replay` and `levelog history` read it with --bundle, and pytest does.
    """
    from levelog_base.errors import ConfigurationError
    from levelog_cli.wiring.rerun import export_history

    if file.exists():
        raise ConfigurationError(f"{file} is there already: give another name, or remove it")
    return export_history(
        settings, file, start=start, end=end, objects=objects or [], selector=selector, has_bookmarks=bookmarks
    )


@answering(*NATS, "database_url", *DECIDING, looks_back=True)
def ui(
    settings: Settings,
    *,
    bundle: FromBundle = None,
    address: Annotated[
        str, option("Where to serve the pages; default: 127.0.0.1:8765, or a free port.", "HOST:PORT")
    ] = "",
    code: Annotated[Path | None, option("Operators that decide again, on pages that ask what if.", "FILE")] = None,
    name: Annotated[list[str] | None, option("Also answer requests for this host name.", "NAME")] = None,
) -> Work:
    """Serve pages that show objects, levels and decisions with their causes. They change nothing."""
    from levelog_cli.wiring.pages import serve_pages

    return serve_pages(settings, bundle=bundle, address=address, names=name or [], code=code)
