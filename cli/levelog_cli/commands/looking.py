"""Commands that look back on what happened, or on how it stands."""

from pathlib import Path
from typing import Annotated

from levelog_cli.commands.declaring import (
    NAMES,
    PORTS,
    FromBundle,
    Json,
    JsonLines,
    Labels,
    View,
    Work,
    answering,
    argument,
    moment,
    option,
    switch,
)
from levelog_cli.settings import NATS, Settings

_STORED = (*NATS, "database_url", "data_dir", "application", "cluster")
_Since = Annotated[str, moment("Only what came after a moment")]
_Objects = Annotated[
    list[str],
    argument(f"An object, {NAMES} webs.example.com/default, webs.example.com: all objects there.", "OBJECT"),
]
_Written = Annotated[
    list[str] | None,
    argument(
        "RESOURCE[.GROUP]/NAMESPACE/NAME; without a name, or without both, all objects there, as in webs.example.com "
        "or pods/default. Without any: which fields writers undo for each other, in all objects.",
        "OBJECTS",
    ),
]


@answering(*_STORED, looks_back=True)
def levels(
    settings: Settings,
    name: Annotated[str, argument(f"A parent, {NAMES}", "NAME")] = "",
    *,
    view: View = "",
    status: Annotated[str, option("in_sync, drifting, settling, failed, blocked or deleting.", "STATUS")] = "",
    at: Annotated[str, moment("As they were at a moment")] = "",
    watch: Annotated[bool, switch("Go on, and print levels that change.", "--watch", "-w")] = False,
    as_json: Json = False,
) -> Work:
    """Show the status of each level and how actual differs from desired, while the application runs or afterwards."""
    from levelog_base.errors import ConfigurationError
    from levelog_cli.wiring.levelwatch import watch_levels
    from levelog_cli.wiring.lookback import show_levels, show_levels_at
    from levelog_store.look.levelpages import LevelQuery

    wanted = LevelQuery(name=name, view=view, statuses=(status,) if status else ())
    if watch and at:
        raise ConfigurationError("--watch shows what changes from now on: drop one of --watch and --at")
    if at:
        return show_levels_at(settings, wanted, at=at, as_json=as_json)
    return (watch_levels if watch else show_levels)(settings, wanted, as_json=as_json)


@answering(*_STORED, looks_back=True)
def retry(
    settings: Settings,
    names: Annotated[list[str] | None, argument(f"A parent, {NAMES}", "NAME")] = None,
    *,
    view: View = "",
    all_failed: Annotated[bool, switch("Every level that is failed.", "--all-failed")] = False,
) -> Work:
    """Try again at once: levels that failed, are blocked, or wait for their next attempt, and records that failed."""
    from levelog_cli.wiring.retrying import retry_selected

    return retry_selected(settings, names or [], view=view, all_failed=all_failed)


@answering(*_STORED, looks_back=True)
def history(
    settings: Settings,
    objects: _Objects,
    *,
    selector: Labels = "",
    since: _Since = "",
    at: Annotated[str, moment("Print the object as it was at a moment")] = "",
    blame: Annotated[
        str, option("Print who set a field of the object, or its parts, and in which record; . for all.", "FIELD")
    ] = "",
    follow: Annotated[bool, switch("Keep printing what happens.", "--follow", "-f")] = False,
    receipts: Annotated[bool, switch("Show the receipts of levelog's own writes too.", "--receipts")] = False,
    decisions: Annotated[bool, switch("Show decisions on them too, and what caused these.", "--decisions")] = False,
    bundle: FromBundle = None,
    as_json: JsonLines = False,
) -> Work:
    """Show each recorded revision of an object: when, who wrote it, which fields changed."""
    from levelog_base.errors import ConfigurationError
    from levelog_cli.wiring.lookback import Wanted, show_history, show_object

    wanted = Wanted(selector=selector, since=since, is_followed=follow, has_receipts=receipts, has_decisions=decisions)
    if not (at or blame):
        return show_history(settings, objects, wanted, bundle=bundle, as_json=as_json)
    if wanted != Wanted():
        raise ConfigurationError(
            "--at and --blame print one object: only --bundle and --json go with them, and the settings"
        )
    return show_object(settings, objects, bundle=bundle, at=at, blamed=blame, as_json=as_json)


@answering(*_STORED, looks_back=True)
def why(
    settings: Settings,
    name: Annotated[str, argument(f"A parent or an object that was written for one: its full name, {NAMES}", "OBJECT")],
    *,
    view: View = "",
    since: _Since = "",
    at: Annotated[str, moment("The decision that was in force at a moment")] = "",
    all_decisions: Annotated[bool, switch("Every stored decision.", "--all")] = False,
    suppressed: Annotated[bool, switch("Which changes caused no decision, and why.", "--suppressed")] = False,
    full: Annotated[bool, switch("Show every decision, with its reads and receipts.", "--full")] = False,
    as_json: JsonLines = False,
) -> Work:
    """Show what caused a level or a write: the records, what the view read, the level, the writes."""
    from levelog_cli.wiring.lookback import show_why
    from levelog_history.why import Question

    question = Question(name=name, view=view, since=since, at=at, is_all=all_decisions, is_suppressed=suppressed)
    return show_why(settings, question, is_full=full, as_json=as_json)


@answering(*NATS, "data_dir", "cluster", looks_back=True)
def writers(settings: Settings, objects: _Written = None, *, since: _Since = "", as_json: Json = False) -> Work:
    """Show who writes objects, how often, which writes changed nothing, and which come at a fixed period."""
    from levelog_cli.wiring.lookback import show_writers

    return show_writers(settings, objects or [], since=since, as_json=as_json)


@answering(*NATS, "data_dir", "cluster", looks_back=True)
def wakes(
    settings: Settings,
    files: Annotated[
        list[Path] | None, argument("Audit logs: JSON lines or EventLists, plain or gzip; - is stdin.", "FILE")
    ] = None,
    *,
    user_agent: Annotated[str, option("Only clients with this in their program or user.", "TEXT")] = "",
    listen: Annotated[str, option("Be an audit webhook at HOST:PORT until Ctrl-C, without files.", "ADDRESS")] = "",
    log: Annotated[bool, switch("Take bodies that the audit log does not have from levelog's log.", "--log")] = False,
    bundle: Annotated[Path | None, option("Take them from a file from `levelog export` instead.", "FILE")] = None,
    draft: Annotated[Path | None, option("Write levelog code for each condition into a new folder.", "FOLDER")] = None,
    as_json: Json = False,
) -> Work:
    """Show when each client wakes, for which field, and what waking on that field alone would save."""
    from levelog_cli.wiring.audits import show_wakes

    return show_wakes(
        settings,
        files or (),
        client=user_agent,
        listen=listen,
        has_log=log,
        bundle=bundle,
        draft=draft,
        as_json=as_json,
    )


@answering(*NATS, "data_dir", "cluster", looks_back=True)
def open_past(
    settings: Settings,
    bundle: Annotated[Path | None, argument("A file from `levelog export`; without one: the log.", "BUNDLE")] = None,
    *,
    at: Annotated[str, moment("The moment, by default the last")] = "",
    play: Annotated[float, option("Go on, this many times as fast; pauses take at most 10 s.", "SPEED", min=0)] = 0,
    port: Annotated[int, option("Port on 127.0.0.1.", "PORT", show_default="a free one", **PORTS)] = 0,
) -> Work:
    """Serve all recorded objects, as they were at a moment, as a Kubernetes API on 127.0.0.1, until Ctrl-C.

    Any client can read and watch it. Nothing can be written.
    """
    from levelog_cli.wiring.pastcluster import serve_past

    return serve_past(settings, bundle, at=at, speed=play, port=port)
