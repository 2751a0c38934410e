"""Decisions made again: the history that is given, the code that decides, and what is printed of it."""

import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from levelog.errors import ConfigurationError
from levelog.secrets.redaction import Redactor
from levelog_cli.compose.levels import selected_scopes
from levelog_cli.compose.replaychoice import (
    RECORDED,
    Wanted,
    described,
    refuse_misfits,
    refuse_moments,
    refuse_strangers,
    selection_of,
)
from levelog_cli.loading import LoadedApplication, load_application
from levelog_cli.printing.comparisons import as_json as told
from levelog_cli.printing.comparisons import divergence_lines, lines, stop_lines
from levelog_cli.printing.progress import RecordBar
from levelog_cli.servers.backing import known_redactor
from levelog_cli.servers.databases import open_to_read
from levelog_cli.servers.nats import opened_log
from levelog_cli.settings import LogLevel, Settings
from levelog_history.moments import Moment
from levelog_history.records import beginning
from levelog_log.stream import LogStream
from levelog_processors.decide.functions import Caller
from levelog_processors.program import Program
from levelog_replay.bundles.reading import Bundle, open_bundle, refuse_other
from levelog_replay.calling import ReplayCaller
from levelog_replay.comparing import Comparison
from levelog_replay.judging import Judge
from levelog_replay.logmode import LogReplay, pairs
from levelog_replay.recordedmode import RecordedReplay, Side
from levelog_replay.scratch import Scratch, open_scratch
from levelog_replay.sources import (
    History,
    LiveHistory,
    LogRecording,
    Recording,
    Selection,
    open_history,
    open_recording,
)
from levelog_replay.stops.breaks import find_breaks
from levelog_replay.stops.stopping import Breaks, Stops
from levelog_store.connect.database import Database
from levelog_store.look.overview import find_scopes
from levelog_store.rows import Scope


class Report(Struct, frozen=True, kw_only=True):
    """What a replay came to."""

    comparison: Comparison
    names: tuple[str, str]
    """What is compared: the first with the second."""
    records: int
    seconds: float
    is_first_told: bool = False
    """The first difference was printed already."""


async def replay_history(settings: Settings, wanted: Wanted, *, as_json: bool) -> bool:
    """Replay and print; tells whether all decisions came out the same.

    Raises ConfigurationError for files, objects, handlers and moments that there is nothing of.
    """
    refuse_misfits(wanted, as_json=as_json)
    if settings.log_level is LogLevel.INFO:  # what is decided again did not happen now
        logging.getLogger("levelog_processors").setLevel(logging.WARNING)
    programs = [load_application(settings, [wanted.file])]
    if wanted.against != RECORDED:
        programs.append(load_application(settings, [Path(wanted.against)]))
        refuse_strangers(wanted, *(each.program for each in programs))
    application = programs[0].name
    now = datetime.now(UTC)
    async with AsyncExitStack() as stack:
        redactor = known_redactor(settings)
        history, first = await _opened(stack, settings, wanted, programs)
        selection = selection_of(wanted, programs[0].program, now)
        refuse_moments(history, first, selection)
        bar = RecordBar()
        stops = await _stops(wanted, [each.program for each in programs], history, selection, bar, as_json=as_json)
        if stops is not None:
            stack.enter_context(stops.heeding())
        caller = partial(ReplayCaller, threads=settings.threads, allows_network=wanted.allows_network, stops=stops)
        names = ("then", "now") if len(programs) == 1 else (wanted.file.name, Path(wanted.against).name)
        sides: list[Side] = []
        for name, each in zip(("",) if len(programs) == 1 else names, programs, strict=True):
            judge = partial(Judge, caller=caller(), redactor=redactor, stops=stops, name=name)
            sides.append(
                await stack.enter_async_context(_side(each.program, history, judge, is_waking=wanted.is_in_order))
            )
        if wanted.is_in_order or not isinstance(history, LiveHistory | Bundle):
            report = await _compare_in_order(history, selection, sides, names, redactor, caller, bar)
        else:
            replay = RecordedReplay(history, selection, sides)
            end = selection.end.sequence if selection.end is not None else 0
            total, before = (end or history.last) - history.first + 1, history.first - 1
            look = (
                partial(_look_at, history, replay, names, stops, bar) if stops is not None and wanted.is_pdb else None
            )
            async with bar.following("replay", total, lambda: max(replay.position - before, 0)):
                report = await _compare(history, replay, sides, names, look)
    if not report.comparison.views:
        parents = sorted({str(view.handler.resource.group_resource) for view in programs[0].program.views.values()})
        raise ConfigurationError(
            f"no decision of application {application} was recorded {described(wanted)}: it decides on objects of "
            f"{', '.join(parents)}"
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(told(report)).decode() + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(report))
    return report.comparison.is_same


async def _opened(
    stack: AsyncExitStack, settings: Settings, wanted: Wanted, programs: Sequence[LoadedApplication]
) -> tuple[LiveHistory | LogRecording | Bundle, Moment | None]:
    """The history that is wanted, and where it begins."""
    application = programs[0].name
    if wanted.bundle is not None:
        bundle = open_bundle(wanted.bundle)
        for each in programs:
            refuse_other(bundle, application, each.program.watched)
        return bundle, bundle.begins
    stream = await stack.enter_async_context(opened_log(settings))
    first = await beginning(stream, programs[0].program.watched)
    if wanted.is_in_order:
        return await open_recording(stream, application), first
    database = await stack.enter_async_context(await open_to_read(settings))
    scope = await recorded_scope(settings, database, stream, application)
    return await open_history(stream, database, scope), first


@asynccontextmanager
async def _side(
    program: Program, history: Recording, make: Callable[[Scratch], Judge], *, is_waking: bool
) -> AsyncGenerator[Side]:
    async with open_scratch(program, history.origin, is_waking=is_waking) as scratch:
        judge = make(scratch)
        try:
            yield Side(scratch, judge)
        finally:
            await judge.close()


async def _stops(
    wanted: Wanted,
    programs: Sequence[Program],
    history: Recording,
    selection: Selection,
    bar: RecordBar,
    *,
    as_json: bool,
) -> Stops | None:
    """Where to stop; None where nobody could be asked, since the output is read by a program."""
    if as_json:
        return None
    breaks = Breaks()
    if wanted.breaks and isinstance(history, LiveHistory | Bundle):
        breaks = await find_breaks(wanted.breaks, programs, history, selection)
    return Stops(breaks, asks_of_errors=wanted.is_pdb, tell=stop_lines, before_asking=bar.put_away)


async def _compare(
    history: History,
    replay: RecordedReplay,
    sides: Sequence[Side],
    names: tuple[str, str],
    look: Callable[[Comparison], Awaitable[bool]] | None,
) -> Report:
    """`look`: what is to be done at the first decision that comes out otherwise; tells whether that was printed."""
    comparison = Comparison()
    begun = time.monotonic()
    is_told = False
    async with aclosing(replay.run()) as made:
        async for judged in made:
            was_same = comparison.is_same
            if len(judged) == 1:
                comparison.take_recorded(judged[0], sides[0].scratch.program.fingerprint)
            else:
                comparison.take_both(*judged)
            if was_same and not comparison.is_same and look is not None:
                is_told = await look(comparison)
    await comparison.complete(history)
    seconds = time.monotonic() - begun
    return Report(comparison=comparison, names=names, records=replay.records, seconds=seconds, is_first_told=is_told)


async def _look_at(
    history: History,
    replay: RecordedReplay,
    names: tuple[str, str],
    stops: Stops,
    bar: RecordBar,
    comparison: Comparison,
) -> bool:
    """Print the first difference and make its decision again in the debugger, unless that has asked of it already."""
    await comparison.complete(history)
    if comparison.first is None or stops.has_asked_of_error(comparison.first.past):
        return False
    bar.put_away()
    sys.stdout.writelines(f"{line}\n" for line in divergence_lines(comparison.first, names))
    sys.stdout.flush()
    with stops.choosing(comparison.first.past):
        await replay.again(comparison.first.past)
    return True


async def _compare_in_order(
    history: Recording,
    selection: Selection,
    sides: Sequence[Side],
    names: tuple[str, str],
    redactor: Redactor,
    caller: Callable[[], Caller],
    bar: RecordBar,
) -> Report:
    comparison = Comparison()
    begun = time.monotonic()
    records = 0
    total = history.last - history.first + 1
    for name, side in zip(names, sides, strict=True):
        replay = LogReplay(history, side.scratch, redactor=redactor, caller=caller())
        try:
            async with bar.following(name, total, partial(getattr, replay, "records")):
                async for _ in replay.run():
                    pass
        finally:
            await replay.close()
        records += replay.records
    async for one, other in pairs(*(side.scratch for side in sides)):
        if selection.has(one.past):
            comparison.take_both(one, other)
    return Report(comparison=comparison, names=names, records=records, seconds=time.monotonic() - begun)


async def recorded_scope(settings: Settings, database: Database, stream: LogStream, application: str) -> Scope:
    """The scope of an application whose decisions were made on a log.

    Raises ConfigurationError if there is none, there are several, or they come from another log.
    """
    chosen = replace(settings, application=application, cluster=stream.cluster)
    async with database.reading() as connection:
        [scope, *others] = selected_scopes(chosen, database.name, await find_scopes(connection))
    if others:
        held = ", ".join(each.application for each in (scope, *others))
        raise ConfigurationError(f"database {database.name} holds several applications, {held}: give --application")
    if scope.stream_created != stream.identity.created:
        raise ConfigurationError(
            f"the log {stream.name} was made at {stream.identity.created}, the decisions in {database.name} come from "
            f"one made at {scope.stream_created}: they cannot be made again"
        )
    return scope
