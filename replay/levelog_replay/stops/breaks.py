"""Where a replay stops: resolves `--break` against the code and the recorded decisions."""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from levelog_base.errors import ConfigurationError
from levelog_history.selection import Selected, named
from levelog_processors.program import Program
from levelog_replay.choice import Selection
from levelog_replay.effects.chosen import callable_names
from levelog_replay.historysources import History
from levelog_replay.stops.stopping import Breaks
from levelog_store.decide.decisions import Decision

Identity: TypeAlias = tuple[str, str, int]


async def find_breaks(
    texts: Sequence[str],
    programs: Sequence[Program],
    history: History,
    selection: Selection,
    *,
    called: Collection[str] = (),
) -> Breaks:
    """The functions and decisions that texts name.

    A number is a record: the decisions that it asked for, else the first one that had seen it. With two slashes it is
    an object: the decisions on it, or if there are none, those that wrote it. Anything else is the name of a function;
    `called` are those of them that are called again, as `find_broken_calls` has found them.

    Raises ConfigurationError for what there is nothing of.
    """
    every = [view for program in programs for view in program.views.values()]
    deciding = {view.name for view in every if not _is_levelogs(view.handler.function)}
    deciding |= {view.reconcile_name for view in every if view.reconcile and not _is_levelogs(view.reconcile.function)}
    chosen: set[Identity] = set()
    functions: set[str] = set()
    for text in texts:
        if text.isdecimal() and len(text) < 19:
            chosen |= await _of_record(int(text), history, selection)
        elif text.count("/") == 2:
            chosen |= await _of_object(text, history, selection)
        else:
            found = named(text, deciding | set(called))
            indices = {name for program in programs for name in program.indices}
            if not found and named(text, indices):
                raise ConfigurationError(
                    f"--break {text}: that is an index, and --break stops in views, reconcile functions and what is "
                    "called: write breakpoint() into its function"
                )
            if not found:
                known = ", ".join(sorted(deciding | callable_names(programs)))
                raise ConfigurationError(
                    f"--break {text}: no view, reconcile function, handler, timer or effect is named so: there are "
                    f"{known}; a record is given by its sequence, an object as RESOURCE/NAMESPACE/NAME"
                )
            functions |= found
    return Breaks(functions=frozenset(functions | set(called)), decisions=frozenset(chosen))


async def _of_record(sequence: int, history: History, selection: Selection) -> set[Identity]:
    if sequence > history.last:
        raise ConfigurationError(f"--break {sequence}: the log ends at sequence {history.last}")
    asked: set[Identity] = set()
    first: Decision | None = None
    async for past, _ in history.decisions():
        if not selection.has(past):
            continue
        if sequence == past.cause or sequence in past.causes.sequences:
            asked.add(past.identity)
        if first is None and past.seen_to >= sequence:
            first = past
    if asked:
        return asked
    if first is None:
        raise ConfigurationError(f"--break {sequence}: no decision that is made again had seen this record")
    return {first.identity}


async def _of_object(text: str, history: History, selection: Selection) -> set[Identity]:
    key = Selected.parse(text).key
    on: set[Identity] = set()
    wrote: set[Identity] = set()
    async for past, asked in history.decisions():
        if selection.has(past) and past.parent == str(key):
            on.add(past.identity)
        elif selection.has(past) and any(each.target == str(key) for each in asked):
            wrote.add(past.identity)
    if not on and not wrote:
        raise ConfigurationError(f"--break {text}: no decision that is made again was on this object, or wrote it")
    return on or wrote


def _is_levelogs(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("levelog.")
