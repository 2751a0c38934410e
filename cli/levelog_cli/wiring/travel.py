"""History as it would have been otherwise: opened, decided again, and printed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import GroupResource
from levelog_cli.printing.bars import Bars
from levelog_cli.printing.comparisons import differing_lines, inevitable_lines, verdict_lines
from levelog_cli.printing.lines import print_answer, print_json, print_line, print_lines
from levelog_cli.printing.plain import entry_plain, plain
from levelog_cli.printing.timeline import Timeline
from levelog_cli.servers.databases import has_database
from levelog_cli.settings import Settings
from levelog_cli.wiring.lookback import opened_decisions, opened_source
from levelog_cli.wiring.rerun import opened_versions
from levelog_history.selection import Selected, Shown
from levelog_history.timeline import DecisionEntry
from levelog_replay.bundles.reading import Bundle
from levelog_replay.choice import Choice
from levelog_replay.travel.bisecting import Bisection, revisions_of
from levelog_replay.travel.edits import WantedEdits
from levelog_replay.travel.expressions import Expression


async def show_what_if(
    settings: Settings, file: Path, changes: WantedEdits, *, code: Path, bundle: Path | None, as_json: bool
) -> bool:
    """Decide on history as it was and as it is changed, and print what differs; tells whether nothing does.

    Raises ConfigurationError for files and records that there is nothing of.
    """
    edits = changes.edits()
    if not edits and code == file:
        raise ConfigurationError(
            "say what to change, by --drop, --swap, --set or --delay-receipt, or give other operators by --code"
        )
    choice = Choice(file=file, against=str(code), bundle=bundle)
    async with opened_versions(settings, choice, Bars()) as (_, versions, source, _):
        history = await source.recorded()
        found = [each async for each in versions.differing(history, edits)]
    answer = {"is_same": not found, "differing": plain(found)}
    print_answer(answer, lines=differing_lines(found, versions.names), as_json=as_json)
    return not found


async def show_inevitable(
    settings: Settings, file: Path, text: str, *, most: int, bundle: Path | None, as_json: bool
) -> bool:
    """Print from which record on something comes out in every order that was tried; tells whether it comes out at all.

    Raises ConfigurationError as `Expression` and `opened_versions` do.
    """
    expression = Expression(text)
    choice = Choice(file=file, against=str(file), bundle=bundle)
    async with opened_versions(settings, choice, Bars()) as (_, versions, source, _):
        history = await source.recorded()
        found = await versions.inevitable(history, expression, most=most)
        wanted = {found.symptom, found.since, *(found.race or ())} if found else set[int]()
        entries = await revisions_of(history, wanted, history.last)
    if as_json:
        print_json(found)
    elif found is None:
        print_line(f"{text} does not come out in the order of the log")
    else:
        timeline = Timeline()
        print_lines(inevitable_lines(found))
        print_lines(line for each in entries for line in timeline.lines(*each))
    return found is not None


async def show_first_bad(settings: Settings, text: str, *, bundle: Path | None, as_json: bool) -> bool:
    """Print the first record after which an expression holds, and what led to it; tells whether there is one.

    Raises ConfigurationError as `Expression` does, and for history that is not there.
    """
    expression = Expression(text)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened_source(settings, bundle))
        decisions: list[AsyncIterator[DecisionEntry]] = []
        if expression.needs_decisions or isinstance(source, Bundle) or has_database(settings):
            shown = Shown([Selected(GroupResource.parse(each)) for each in await source.resources()], "")
            decisions = await stack.enter_async_context(opened_decisions(settings, source, shown))
        history = await source.recorded()
        bisection = Bisection(history, expression)
        every = history.last - history.first + 1
        async with Bars().records("bisect", every, lambda: bisection.records):
            found = await bisection.run(decisions)
    if as_json:
        entries = [entry_plain(*each) for each in found.entries] if found else []
        record = found.sequence if found else None
        print_json({"record": record, "held_always": not found and bisection.held, "led_to": entries})
    elif found is None:
        held = "holds from the beginning on" if bisection.held else "begins to hold after no record"
        print_line(f"{text} {held}")
    else:
        print_line(f"first after record {found.sequence}: {text}")
        timeline = Timeline()
        print_lines(line for each in found.entries for line in timeline.lines(*each))
        last = found.entries[-1][0] if found.entries else None
        if found.before is not None and isinstance(last, DecisionEntry):
            print_lines(verdict_lines(found.before, last.decision))
    return found is not None
