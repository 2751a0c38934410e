"""What happened, and why: log and database are opened, the history is asked, and its answer printed."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from levelog_base.counting import counted
from levelog_base.errors import ConfigurationError
from levelog_cli.printing.columns import (
    blame_lines,
    contests_lines,
    print_age,
    print_blanks,
    print_levels,
    writers_lines,
)
from levelog_cli.printing.explained import explained_lines, ignored_lines
from levelog_cli.printing.lines import print_answer, print_json, print_line, print_lines, print_yaml
from levelog_cli.printing.plain import (
    entry_plain,
    explained_plain,
    level_plain,
    levels_plain,
    plain,
)
from levelog_cli.printing.timeline import Timeline
from levelog_cli.servers.databases import has_database, open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import Settings
from levelog_history.blame import Blame
from levelog_history.pastlevels import levels_at, levels_now, none_of
from levelog_history.reach import Moment, nothing_of, refuse_beyond
from levelog_history.records import LogSource, RecordSource, chosen
from levelog_history.revisions import Missing
from levelog_history.selection import Shown
from levelog_history.timeline import DecisionEntry, decisions_on, entries_of, interleaved, is_after, object_at
from levelog_history.why import Looking, Question
from levelog_history.writers import Contests, Writers, revisions_after
from levelog_log.stream import LogStream
from levelog_store.connect.database import Database
from levelog_store.look.levelpages import LevelQuery
from levelog_store.owners.scopes import scopes_of
from levelog_store.rows import Scope

if TYPE_CHECKING:
    from levelog_replay.bundles.reading import Bundle


class Wanted(Struct, frozen=True, kw_only=True):
    """The parts of a timeline besides revisions, and its limits."""

    selector: str = ""
    since: str = ""
    is_followed: bool = False
    has_receipts: bool = False
    has_decisions: bool = False


async def chosen_scopes(settings: Settings, database: Database, *, cluster: str = "") -> list[Scope]:
    """The scopes of the applications that the settings name, on the cluster of a log if one is given.

    Raises ConfigurationError if there are none.
    """
    return await scopes_of(database, application=settings.application, cluster=cluster or settings.cluster)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[tuple[LogStream, Database, list[Scope]]]:
    """The log, the database, and what it holds of the applications on that log. Raises as what opens each."""
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        yield stream, database, await chosen_scopes(settings, database, cluster=stream.cluster)


async def show_why(settings: Settings, question: Question, *, is_full: bool, as_json: bool) -> None:
    """Print what led to the levels of a parent, or to the writes of an object. Raises as `Looking` does."""
    async with opened(settings) as opened_now:
        looking = Looking(*opened_now)
        for number, level in enumerate(await looking.levels(question)):
            if number and not as_json:
                print_line("")
            if question.is_suppressed:
                ignored = await looking.ignored(level, question.moment() if question.since else None)
                answer = [{"view": level.view, "parent": level.parent, **plain(each)} for each in ignored]
                lines = ignored_lines(level.view, level.parent, ignored)
            else:
                explained = await looking.decisions(level, question)
                answer = [explained_plain(level, each) for each in explained]
                lines = explained_lines(level.decisions[-1], explained, target=level.target, is_full=is_full)
            print_answer(*answer, lines=lines, as_json=as_json)


async def show_levels(settings: Settings, wanted: LevelQuery, *, as_json: bool) -> None:
    """Print the levels that are selected, of all applications that the settings select. Raises as `levels_now`."""
    async with await open_to_read(settings) as database:
        scopes = await chosen_scopes(settings, database)
        async with database.reading() as connection:
            levels = await levels_now(connection, scopes, wanted)
    if as_json:
        print_json(levels_plain(levels))
        return
    nothing = none_of(wanted) if wanted.statuses or wanted.name else "no levels: no object of a view's resource yet"
    print_levels(levels.lines, nothing, has_several=len(scopes) > 1)
    print_blanks(levels)
    print_age(levels, datetime.now(UTC))


async def show_levels_at(settings: Settings, wanted: LevelQuery, *, at: str, as_json: bool) -> None:
    """Print the levels that are selected, as of a moment. Raises as `levels_at`."""
    moment = Moment.parse(at, datetime.now(UTC))
    async with opened(settings) as (stream, database, scopes):
        found = await levels_at(stream, database, scopes, wanted, moment)
    if as_json:
        print_json([level_plain(*each) for each in found])
        return
    print_levels(found, f"{none_of(wanted, 'was')} at {moment}", has_several=len(scopes) > 1)


async def show_writers(settings: Settings, objects: Sequence[str], *, since: str, as_json: bool) -> None:
    """Print a row for each field manager and resource; without objects, for each field that managers undo.

    Raises ConfigurationError if nobody wrote such an object.
    """
    start = Moment.parse(since, datetime.now(UTC)) if since else Moment()
    writers, contests = Writers(), Contests()
    async with opened_log(settings) as stream:
        source = LogSource(stream)
        selected = await chosen(source, objects)
        async for revision in revisions_after(source, selected, start):
            (writers if objects else contests).take(revision)
    if not objects:
        print_answer(contests.found(), lines=contests_lines(contests.found()), as_json=as_json)
        return
    found = writers.found()
    if not found and not as_json:
        when = f" since {start}" if since else ""
        raise ConfigurationError(f"the log shows no write to {' or '.join(map(str, selected))}{when}")
    print_answer(found, lines=writers_lines(found), as_json=as_json)


async def show_history(
    settings: Settings, objects: Sequence[str], wanted: Wanted, *, bundle: Path | None = None, as_json: bool
) -> None:
    """Print the revisions of the objects in the order of the log; receipts of writes and decisions if asked for.

    Raises ConfigurationError if something cannot be read, or there is no record of such an object.
    """
    if wanted.has_decisions and wanted.is_followed:
        raise ConfigurationError(
            "--follow shows records as they come, which decisions are not: drop one of --follow and --decisions"
        )
    start = Moment.parse(wanted.since, datetime.now(UTC)) if wanted.since else None
    has_any_entry = False
    async with opened_source(settings, bundle) as source, AsyncExitStack() as stack:
        selected = await chosen(source, objects)
        shown = Shown(selected, wanted.selector)
        timeline = Timeline(only=str(selected[0]) if len(selected) == 1 and selected[0].key else "")
        decisions: list[AsyncIterator[DecisionEntry]] = []
        if wanted.has_decisions:
            decisions = await stack.enter_async_context(opened_decisions(settings, source, shown))
        if not as_json:
            await _tell_beginning(source)
        if wanted.selector and (wanted.has_receipts or wanted.has_decisions):
            await shown.read_ahead(source.about(selected))  # what made an object stands above its first revision
        records = source.about(selected, has_receipts=wanted.has_receipts, is_followed=wanted.is_followed)
        entries = entries_of(records, shown)
        for some in decisions:
            entries = interleaved(entries, some)
        async for entry, sequence in entries:
            has_any_entry |= not isinstance(entry, Missing)
            if start is None or is_after(start, entry, sequence):
                answer = [entry_plain(entry, sequence)] if as_json else []
                print_answer(*answer, lines=timeline.lines(entry, sequence), as_json=as_json)
                if wanted.is_followed:
                    sys.stdout.flush()
        if not has_any_entry:
            raise ConfigurationError(await nothing_of(source, selected, wanted.selector))


async def show_object(
    settings: Settings,
    objects: Sequence[str],
    *,
    bundle: Path | None = None,
    at: str,
    blamed: str,
    as_json: bool,
) -> None:
    """Print one object as it was at a moment, YAML or JSON; or who set a field, `blamed`, with its parts.

    Raises as `object_at` and `Blame` do, and for a moment out of reach.
    """
    blame = Blame()
    async with opened_source(settings, bundle) as source:
        selected = await chosen(source, objects)
        if len(selected) != 1 or selected[0].key is None:
            option = "--blame" if blamed else "--at"
            raise ConfigurationError(f"{option} prints one object: name it as RESOURCE[.GROUP]/NAMESPACE/NAME")
        moment = Moment.parse(at, datetime.now(UTC)) if at else Moment(sequence=(await source.ends())[2])
        await refuse_beyond(source, moment)
        revision = await object_at(source, selected[0], moment, see=blame.take if blamed else None)
    if blamed:
        fields = blame.of(blamed)
        answer = [{"field": path, "value": value, **plain(revision)} for path, value, revision in fields]
        print_answer(answer, lines=blame_lines(fields), as_json=as_json)
    elif as_json:
        print_lines([revision.body.decode()])
    else:
        print_yaml(revision.manifest())


@asynccontextmanager
async def opened_source(settings: Settings, bundle: Path | None) -> AsyncGenerator["LogSource | Bundle"]:
    """The bundle if one is named, else the log that the settings name. Raises as `opened_log` and `open_bundle`."""
    if bundle is not None:
        from levelog_replay.bundles.reading import open_bundle  # noqa: PLC0415 - loads what folds, which takes a second

        yield open_bundle(bundle)
        return
    async with opened_log(settings) as stream:
        yield LogSource(stream)


@asynccontextmanager
async def opened_decisions(
    settings: Settings, source: "LogSource | Bundle", shown: Shown
) -> AsyncGenerator[list[AsyncIterator[DecisionEntry]]]:
    """Decisions on the objects that are shown, and those that wrote to one: for each application, in their order.

    Raises ConfigurationError if there is no database, or it holds no such application.
    """
    if not isinstance(source, LogSource):
        yield [source.entries(shown.has)]
        return
    if not has_database(settings):
        raise ConfigurationError(
            f"decisions are in the database of the application, and there is none in {settings.data_dir}: give "
            "--database-url, or the --data-dir that `levelog run` used"
        )
    began = datetime.fromisoformat(source.stream.identity.created)
    async with await open_to_read(settings) as database, AsyncExitStack() as stack:
        scopes = await chosen_scopes(settings, database, cluster=source.cluster)
        made = [decisions_on(database, scope, shown.selected, shown.has, log_began=began) for scope in scopes]
        yield [await stack.enter_async_context(aclosing(each)) for each in made]


async def _tell_beginning(source: RecordSource) -> None:
    """Say on stderr that older history has expired, or was cut off, and that some is missing since."""
    first, record, _ = await source.ends()
    if first > 1:
        since = f", {record.record.time:%Y-%m-%d %H:%M:%S} UTC" if record else ""
        sys.stderr.write(f"{source.name} begins with record {first}{since}; it holds no older ones\n")
    if isinstance(source, LogSource) and (missing := (await source.stream.state()).missing):
        sys.stderr.write(f"{source.name} lacks {counted(missing, 'record')} from between its first and its last\n")
