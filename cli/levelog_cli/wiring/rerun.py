"""Recorded history, decided again or written into a file, and the state as other code has it: opened and printed."""

import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from levelog.escapes import escaped
from levelog_base.counting import counted
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_cli.loading import LoadedApplication, load_application
from levelog_cli.logs import quieten
from levelog_cli.printing.bars import Bars
from levelog_cli.printing.comparisons import divergence_lines, report_lines, stop_lines
from levelog_cli.printing.lines import print_answer, print_line, print_lines
from levelog_cli.printing.plain import plain
from levelog_cli.printing.planned import plan_lines
from levelog_cli.running import MISUSED
from levelog_cli.servers.backing import known_redactor
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import LogLevel, Settings
from levelog_cli.wiring.lookback import chosen_scopes
from levelog_history.reach import Moment, beginning
from levelog_history.records import LogSource, read_about
from levelog_history.selection import Selected, Shown
from levelog_log.stream import LogStream
from levelog_replay.bundles.reading import Bundle, open_bundle, refuse_other
from levelog_replay.bundles.writing import export
from levelog_replay.calling import ReplayCaller
from levelog_replay.choice import RECORDED, Choice, Selection, described, refuse_moments, refuse_strangers, selection_of
from levelog_replay.comparing import Divergence
from levelog_replay.effects.chosen import find_broken_calls, find_calls
from levelog_replay.historysources import History, open_history
from levelog_replay.planning import Course, Planned, plan
from levelog_replay.stops.breaks import find_breaks
from levelog_replay.stops.debugger import DebuggerLeft
from levelog_replay.stops.stopping import Breaks, Stop, Stops
from levelog_replay.versions import Versions
from levelog_store.connect.database import Database
from levelog_store.fold.statereads import read_syncs
from levelog_store.rows import Scope


async def replay_history(settings: Settings, choice: Choice, *, as_json: bool) -> bool:
    """Replay and print; tells whether all decisions came out the same.

    Raises ConfigurationError for files, objects, handlers and moments that there is nothing of.
    """
    if as_json and (choice.breaks or choice.is_pdb):
        raise ConfigurationError("--break and --pdb ask on the terminal: leave out --json")
    bars = Bars()
    async with AsyncExitStack() as stack:
        opening = opened_versions(settings, choice, bars)
        first, versions, source, begins = await stack.enter_async_context(opening)
        history: History
        if isinstance(source, Bundle):
            history = source
        else:
            database = await stack.enter_async_context(await open_to_read(settings))
            scope = await _recorded_scope(settings, database, source.stream, first.name)
            history = await open_history(source.stream, database, scope)
        selection = selection_of(choice, first.program, datetime.now(UTC))
        refuse_moments(history, begins, selection)
        broken = find_broken_calls(choice.breaks, versions.programs)
        stops = None
        if not as_json:  # else nobody can be asked, since a program reads the output
            breaks = Breaks()
            if choice.breaks:
                called = broken.values()
                breaks = await find_breaks(choice.breaks, versions.programs, history, selection, called=called)
            stops = Stops(breaks, asks_of_errors=choice.is_pdb, tell=_stop_lines, before_asking=bars.put_away)

        def show(divergence: Divergence) -> None:
            bars.put_away()
            print_lines(divergence_lines(divergence, versions.names))
            sys.stdout.flush()

        deciding = replace(versions, stops=stops, functions=find_calls(choice.calls, versions.programs) | broken)
        try:
            report = await deciding.compare(history, selection, show=show if choice.is_pdb else None)
        except DebuggerLeft:
            sys.stderr.write("levelog: the debugger was left: not all decisions were made again\n")
            raise SystemExit(MISUSED) from None
    if not report.comparison.tallies:
        parents = sorted({str(view.handler.resource.group_resource) for view in first.program.views.values()})
        chosen = described(choice.objects, handler=choice.handler, start=choice.start, end=choice.end)
        raise ConfigurationError(
            f"no decision of application {first.name} was recorded {chosen}: it decides on objects of "
            f"{', '.join(parents)}"
        )
    print_answer(plain(report), lines=report_lines(report), as_json=as_json)
    return report.is_same


@asynccontextmanager
async def opened_versions(
    settings: Settings, choice: Choice, bars: Bars
) -> AsyncGenerator[tuple[LoadedApplication, Versions, LogSource | Bundle, Moment | None]]:
    """The application, one or two versions of its code, the source of its records, and where they begin.

    Raises ConfigurationError for files and history that are not there, or do not fit.
    """
    quieten_decisions(settings)
    applications = [load_application(settings, [choice.file])]
    if choice.against != RECORDED:
        applications.append(load_application(settings, [Path(choice.against)]))
        refuse_strangers(choice, *(each.program for each in applications))
    has_two = choice.against not in (RECORDED, str(choice.file))
    application = applications[0]
    async with AsyncExitStack() as stack:
        redactor = known_redactor(settings)
        source: LogSource | Bundle
        if choice.bundle is not None:
            source = open_bundle(choice.bundle)
            for each in applications:
                refuse_other(source, application.name, each.program)
            begins: Moment | None = source.begins
        else:
            stream = await stack.enter_async_context(opened_log(settings))
            begins = await beginning(stream, application.program.watched)
            source = LogSource(stream, application.name)
        redactor.refuse_history(f"bundle {choice.bundle}" if choice.bundle else "the log", source.redaction)
        versions = Versions(
            programs=[each.program for each in applications],
            names=(choice.file.name, Path(choice.against).name) if has_two else ("then", "now"),
            redactor=redactor,
            threads=settings.threads,
            allows_network=choice.allows_network,
            stops=None,
            following=bars.records,
        )
        yield application, versions, source, begins


async def _recorded_scope(settings: Settings, database: Database, stream: LogStream, application: str) -> Scope:
    """The scope of an application whose decisions were made on a log.

    Raises ConfigurationError if there is none, there are several, or they come from another log.
    """
    chosen = replace(settings, application=application, cluster=stream.cluster)
    scope = await _only_scope(chosen, database, "application")
    if scope.stream_created != stream.identity.created:
        raise ConfigurationError(
            f"the log {stream.name} was made at {stream.identity.created}, the decisions in {database.name} come from "
            f"one made at {scope.stream_created}: they cannot be made again"
        )
    return scope


async def _only_scope(settings: Settings, database: Database, which: str) -> Scope:
    """The one scope that the settings name. Raises ConfigurationError if there are several."""
    scope, *others = await chosen_scopes(settings, database)
    if others:
        several = ", ".join(getattr(each, which) for each in (scope, *others))
        raise ConfigurationError(f"database {database.name} holds several {which}s, {several}: give --{which}")
    return scope


async def plan_changes(settings: Settings, files: Sequence[Path], *, allows_network: bool, as_json: bool) -> bool:
    """Try operators on what their application's tables hold, and print; tells whether they would change nothing.

    Raises ConfigurationError if the database does not hold the application, or on several clusters.
    """
    found = await planned(settings, load_application(settings, files), allows_network=allows_network, course=Course())
    print_answer(plain(found), lines=plan_lines(found), as_json=as_json)
    return found.is_same


async def planned(
    settings: Settings, application: LoadedApplication, *, allows_network: bool, course: Course
) -> Planned:
    """The changes that an application would make to its stored levels. Raises as `plan_changes` does."""
    quieten_decisions(settings)
    redactor = known_redactor(settings)
    async with await open_to_read(settings) as database:
        scope = await _only_scope(replace(settings, application=application.name), database, "cluster")
        caller = ReplayCaller(threads=settings.threads, allows_network=allows_network)
        with Bars().meanwhile("plan"):
            return await plan(database, scope, application.program, redactor=redactor, caller=caller, course=course)


def quieten_decisions(settings: Settings) -> None:
    """Leave out what the log says of decisions, which are not made for real."""
    if settings.log_level is not LogLevel.DEBUG:
        quieten("levelog_processors", "levelog_store")


async def export_history(
    settings: Settings,
    file: Path,
    *,
    start: str,
    end: str,
    objects: Sequence[str],
    selector: str,
    has_bookmarks: bool,
) -> None:
    """Write a bundle, and print what is in it.

    Raises ConfigurationError if it cannot be written, or for objects and moments that there is nothing of.
    """
    now = datetime.now(UTC)
    selected = [Selected.parse(text) for text in objects]
    moments = [Moment.parse(text, now) if text else None for text in (start, end)]
    async with opened_log(settings) as stream, await open_to_read(settings) as database:
        scope = await _recorded_scope(settings, database, stream, settings.application)
        history = await open_history(stream, database, scope)
        async with database.reading() as connection:
            resources = {resource for _, resource in await read_syncs(connection, scope)}
        shown = Shown(selected or [Selected(GroupResource.parse(name)) for name in sorted(resources)], selector)
        selection = Selection(start=moments[0], end=moments[1], has_parent=lambda key: shown.has(str(key)))
        first = await beginning(stream, resources)
        refuse_moments(history, first, selection)
        if selector:
            await shown.read_ahead(read_about(stream, shown.selected))
        begins = first or Moment(sequence=history.first)
        before = history.first - 1
        async with Bars().records("export", history.last - before, lambda: history.read_to - before):
            written = await export(
                history,
                file,
                resources=resources,
                begins=begins,
                selection=selection,
                chosen=described(objects, labels=selector, start=start, end=end),
                has_bookmarks=has_bookmarks,
            )
    print_line(f"{file}: {counted(written.decisions, 'decision')}, {counted(written.records, 'record')}")


def _stop_lines(stop: Stop) -> Iterator[str]:
    return map(escaped, stop_lines(stop))
