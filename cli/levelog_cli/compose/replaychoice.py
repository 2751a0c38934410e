"""What somebody wants to have replayed: checked, and turned into a choice among decisions."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from levelog.errors import ConfigurationError
from levelog.wire.objects import ObjectKey
from levelog_cli.compose.recordsources import refuse_expired
from levelog_history.moments import Moment
from levelog_history.selection import Selected, has_any
from levelog_processors.program import Program
from levelog_replay.sources import Recording, Selection

RECORDED: Final = "recorded"


class Wanted(Struct, frozen=True, kw_only=True):
    """What is replayed."""

    file: Path
    against: str
    start: str = ""
    end: str = ""
    objects: Sequence[str] = ()
    resource: str = ""
    handler: str = ""
    allows_network: bool = False
    is_in_order: bool = False
    """Mode `log`."""
    bundle: Path | None = None
    """History is in this file."""
    breaks: Sequence[str] = ()
    """What to stop at: records, functions, objects."""
    is_pdb: bool = False
    """Stop where a function raises, and at the first decision that comes out otherwise."""


def refuse_misfits(wanted: Wanted, *, as_json: bool) -> None:
    """Raise ConfigurationError for options that do not go together."""
    if wanted.is_in_order and wanted.against == RECORDED:
        raise ConfigurationError(
            "--mode log decides at other moments than were recorded, so that only two versions of the code can be "
            "compared: give --against FILE"
        )
    if (wanted.breaks or wanted.is_pdb) and (as_json or wanted.is_in_order):
        raise ConfigurationError(
            "--break and --pdb ask on the terminal: leave out --json"
            if as_json
            else "--break and --pdb stop at decisions that were recorded: leave out --mode log, or write breakpoint() "
            "into the function"
        )


def refuse_strangers(wanted: Wanted, one: Program, other: Program) -> None:
    """Raise ConfigurationError for two files that decide nothing alike: each decision would be made by one alone."""
    if not one.views.keys() & other.views.keys():
        views = [", ".join(sorted(program.views)) or "no view" for program in (one, other)]
        raise ConfigurationError(
            f"{wanted.against} has none of the views of {wanted.file} ({views[0]}) but {views[1]}: versions of one "
            "operator are compared, by the names of operator and view"
        )


def selection_of(wanted: Wanted, program: Program, now: datetime) -> Selection:
    """The decisions that are wanted; raises ConfigurationError for what there is nothing of in the code."""
    selected = [Selected.parse(text) for text in wanted.objects]
    resource = Selected.parse(wanted.resource) if wanted.resource else None

    def has(key: ObjectKey) -> bool:
        return (not selected or has_any(selected, key)) and (resource is None or resource.has(key))

    return Selection(
        start=Moment.parse(wanted.start, now) if wanted.start else None,
        end=Moment.parse(wanted.end, now) if wanted.end else None,
        views=_views(wanted.handler, program) if wanted.handler else frozenset(),
        has_parent=has,
    )


def _views(handler: str, program: Program) -> frozenset[str]:
    """Views by their name, that of their reconcile function, or of an index that they read."""
    found: set[str] = set()
    names: set[str] = set()
    for view in program.views.values():
        named = [view.name, *view.sources]
        if view.reconcile is not None:
            named.append(view.reconcile_name)
        names.update(named)
        if any(handler in (name, name.partition("/")[2]) for name in named):
            found.add(view.name)
    if not found:
        raise ConfigurationError(
            f"no view, index or reconcile function {handler!r}: there are {', '.join(sorted(names))}"
        )
    return frozenset(found)


def refuse_moments(history: Recording, first: Moment | None, selection: Selection) -> None:
    """Raise ConfigurationError for moments that history does not reach; `first` is where it begins."""
    start, end = selection.start, selection.end
    if history.last == 0:
        raise ConfigurationError(f"the log of cluster {history.origin.cluster} is empty")
    for moment in (start, end):
        if moment is not None and moment.time is None and moment.sequence > history.last:
            raise ConfigurationError(f"the log ends at sequence {history.last}, before {moment}")
    if start is not None and end is not None and start.is_later(end):
        raise ConfigurationError(f"--from {start} is after --to {end}")
    for moment in (start, end):
        refuse_expired(first, moment)


def described(wanted: Wanted) -> str:
    """Words for what was chosen."""
    parts = [f"on {' or '.join(wanted.objects)}" if wanted.objects else ""]
    parts += [f"on {wanted.resource}" if wanted.resource else "", f"by {wanted.handler}" if wanted.handler else ""]
    parts += [f"from {wanted.start}" if wanted.start else "", f"up to {wanted.end}" if wanted.end else ""]
    return " ".join(part for part in parts if part) or "yet"
