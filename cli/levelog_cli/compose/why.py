"""Why levels are as they are, read from decisions in SQL and from the log, and printed."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.objects import ObjectKey
from levelog_cli.compose.levels import selected_scopes
from levelog_cli.compose.recordsources import LogSource, refuse_beyond
from levelog_cli.compose.unrecorded import unread
from levelog_cli.printing.explained import explained_lines, ignored_lines
from levelog_cli.printing.timeline import plain
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.explaining import Explained, explain, is_by, newest_chain
from levelog_history.happenings import read_happened
from levelog_history.ignoring import Asking, Ignored, ignored_changes
from levelog_history.moments import Moment
from levelog_history.selection import Selected
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decision, PastIntent
from levelog_store.decide.inputreads import read_checkpoints
from levelog_store.look.overview import find_scopes
from levelog_store.look.recall import read_decisions, read_intents, read_intents_on, read_objects_read, read_unconsumed
from levelog_store.rows import Scope

_MOST_READ = 200
"""Objects that a level reads whose changes are looked at; of more, some."""


class Asked(Struct, frozen=True, kw_only=True):
    """What somebody wants to know."""

    name: str
    view: str = ""
    since: str = ""
    at: str = ""
    is_all: bool = False
    is_suppressed: bool = False


class _Level(Struct, kw_only=True):
    """A level with all that is kept of it."""

    scope: Scope
    view: str
    parent: str
    decisions: list[Decision]
    target: str = ""
    """What was asked about, if it is not the parent."""


async def show_why(settings: Settings, asked: Asked, *, as_json: bool) -> None:
    """Print what led to the levels of a parent, or to the writes of an object.

    Raises ConfigurationError for what cannot be read, an object or view without a decision, and a moment before them.
    """
    key = Selected.parse(asked.name).key
    if key is None:
        raise ConfigurationError(
            f"{asked.name} names no object, but all of a resource or of a namespace: write "
            "RESOURCE[.GROUP]/NAMESPACE/NAME"
        )
    if sum(map(bool, (asked.since, asked.at, asked.is_all))) > 1:
        raise ConfigurationError("say one of --since, --at and --all")
    moment = Moment.parse(asked.since or asked.at, datetime.now(UTC)) if asked.since or asked.at else None
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        if moment is not None and (asked.at or moment.time is None):
            await refuse_beyond(LogSource(stream), moment)
        levels = await _levels(settings, stream, database, key, asked.view)
        for level in levels:
            if asked.is_suppressed:
                await _show_ignored(stream, database, level, moment if asked.since else None, as_json=as_json)
            else:
                await _show_decisions(stream, database, level, asked, moment, as_json=as_json)


async def _levels(settings: Settings, stream: LogStream, database: Database, key: ObjectKey, view: str) -> list[_Level]:
    """Levels of the parent, else those that wrote the object."""
    found: list[_Level] = []
    views: set[str] = set()
    name = str(key)
    async with database.reading() as connection:
        scopes = selected_scopes(settings, database.name, await find_scopes(connection))
        for scope in (each for each in scopes if each.cluster == stream.cluster):
            targets = {(name, ""): ""}
            decisions = await read_decisions(connection, scope, [name])
            if not decisions:
                parents = dict.fromkeys(intent.parent for intent in await read_intents_on(connection, scope, name))
                decisions = await read_decisions(connection, scope, list(parents)) if parents else []
                keys = {intent.key for intent in await read_intents_on(connection, scope, name)}
                writers = {(each.view, each.parent) for each in decisions if keys & set(each.intents)}
                decisions = [each for each in decisions if (each.view, each.parent) in writers]
                targets = {}
            views.update(each.view for each in decisions)
            for place in dict.fromkeys((each.view, each.parent) for each in decisions):
                if view in ("", place[0], place[0].partition("/")[2]):
                    own = [each for each in decisions if (each.view, each.parent) == place]
                    target = "" if targets else name
                    found.append(_Level(scope=scope, view=place[0], parent=place[1], decisions=own, target=target))
    if not found and views:
        raise ConfigurationError(
            f"no view {view!r} decided on {name}; there are decisions of {', '.join(sorted(views))}"
        )
    if not found:
        nothing = await unread(LogSource(stream), key.group_resource)
        raise ConfigurationError(
            f"nothing was decided on {name} or written to it: "
            + (nothing or f"`levelog history {name}` shows who changed it, `levelog levels` what there are levels of")
        )
    return found


async def _show_decisions(
    stream: LogStream, database: Database, level: _Level, asked: Asked, moment: Moment | None, *, as_json: bool
) -> None:
    explained = await _explained(stream, database, level)
    if level.target:
        explained = [each for each in explained if any(w.intent.target == level.target for w in each.writes)]
    chosen = _chosen(level, explained, asked, moment)
    if as_json:
        for each in chosen:
            sys.stdout.write(msgspec.json.encode({"type": "decision", **_plain(level, each)}).decode() + "\n")
        return
    sys.stdout.writelines(f"{line}\n" for line in explained_lines(level.decisions[-1], chosen, target=level.target))


def _chosen(level: _Level, explained: list[Explained], asked: Asked, moment: Moment | None) -> list[Explained]:
    if moment is not None:
        first = explained[0].decision if explained else level.decisions[0]
        if asked.at and not is_by(moment, first):
            what = f"did not write {level.target}" if level.target else f"decided nothing on {level.parent}"
            raise ConfigurationError(
                f"{level.view} {what} by {moment}: the first such decision that is kept is of "
                f"sequence {first.sequence}, {first.decided_at:%Y-%m-%d %H:%M:%S} UTC"
            )
        before = [each for each in explained if is_by(moment, each.decision)]
        return (before[-1:] if level.target else newest_chain(before)) if asked.at else explained[len(before) :]
    if asked.is_all:
        return explained
    if level.target:
        return explained[-1:]
    return newest_chain(explained)


async def _explained(stream: LogStream, database: Database, level: _Level) -> list[Explained]:
    keys = [key for each in level.decisions for key in each.intents]
    async with database.reading() as connection:
        intents: dict[str, PastIntent] = await read_intents(connection, level.scope, keys) if keys else {}
    sequences = {sequence for each in level.decisions for sequence in each.causes.sequences}
    targets = {intent.target for intent in intents.values() if intent.is_watched}
    happened = await read_happened(
        stream, sequences, {level.parent, *targets}, parent=level.parent, application=level.scope.application
    )
    return explain(level.decisions, intents, happened)


async def _show_ignored(
    stream: LogStream, database: Database, level: _Level, since: Moment | None, *, as_json: bool
) -> None:
    keys = [key for each in level.decisions for key in each.intents]
    async with database.reading() as connection:
        intents = await read_intents(connection, level.scope, keys) if keys else {}
        looked, waiting = await read_unconsumed(connection, level.scope, level.view, level.parent)
        read = await read_objects_read(connection, level.scope, level.view, level.parent, _MOST_READ)
        folded = await read_checkpoints(connection, level.scope)
    sequences = {sequence for each in level.decisions for sequence in each.causes.sequences}
    objects = {level.parent, *(intent.target for intent in intents.values() if intent.is_watched)}
    objects.update(name for name in read if not name.startswith("@"))
    happened = await read_happened(stream, sequences, objects, parent=level.parent, application=level.scope.application)
    asking = Asking(decisions=level.decisions, looked=looked, waiting=waiting, intents=intents, folded=folded)
    ignored: Sequence[Ignored] = ignored_changes(asking, happened, since, stream.partitions)
    if as_json:
        for each in ignored:
            told = {"type": "ignored", "view": level.view, "parent": level.parent, **msgspec.to_builtins(each)}
            sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    sys.stdout.writelines(f"{line}\n" for line in ignored_lines(level.view, level.parent, ignored))


def _plain(level: _Level, explained: Explained) -> dict[str, object]:
    decision, before = explained.decision, explained.before

    def side(each: Decision | None) -> dict[str, object] | None:
        if each is None:
            return None
        return {
            "status": each.status,
            "reason": each.reason,
            "desired": msgspec.Raw(each.desired or b"null"),
            "actual": msgspec.Raw(each.actual or b"null"),
            "drift": each.differing,
        }

    return {
        "application": level.scope.application,
        "view": decision.view,
        "parent": decision.parent,
        "parent_uid": decision.parent_uid,
        "decided_at": decision.decided_at,
        "sequence": decision.sequence,
        "round": decision.round,
        "is_called": decision.is_called,
        "is_due": decision.basis.is_due,
        "fingerprint": decision.fingerprint,
        "causes": [
            {"sequence": each.sequence, "entries": [plain(entry, each.sequence) for entry in each.entries]}
            for each in explained.causes
        ],
        "has_more_causes": decision.causes.has_more,
        "reads": explained.reads,
        "before": side(before),
        "after": side(decision),
        "writes": [
            {
                "key": each.intent.key,
                "verb": each.intent.verb,
                "target": each.intent.target,
                "state": each.intent.state,
                "error": each.intent.error,
                "receipt": {
                    "sequence": each.receipt_sequence,
                    "outcome": each.receipt.outcome,
                    "target_version": each.receipt.target_version,
                    "time": each.receipt.time,
                }
                if each.receipt
                else None,
                "shown_by": each.shown.sequence if each.shown else None,
            }
            for each in explained.writes
        ],
    }
