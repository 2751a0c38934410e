"""What to replay: a selection of recorded decisions, checked against the code and the history."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import ObjectKey
from levelog_history.reach import Moment, refuse_expired
from levelog_history.selection import Selected, has_any, named
from levelog_processors.program import Program
from levelog_replay.historysources import History
from levelog_store.decide.decisions import Decision

RECORDED: Final = "recorded"


class Choice(Struct, frozen=True, kw_only=True):
    """The decisions to replay, and the code to replay them with."""

    file: Path
    against: str
    start: str = ""
    end: str = ""
    objects: Sequence[str] = ()
    handler: str = ""
    allows_network: bool = False
    bundle: Path | None = None
    """History is in this file."""
    breaks: Sequence[str] = ()
    """The records, functions and objects to stop at."""
    calls: Sequence[str] = ()
    """Handlers, timers and effects that are called again."""
    is_pdb: bool = False
    """Stop where a function raises, and at the first decision that differs."""


class Selection(Struct, frozen=True, kw_only=True):
    """Selects decisions; a field that is empty or None takes all."""

    start: Moment | None = None
    """Those made before this record was folded, or before this time, are not among them."""
    end: Moment | None = None
    """Those that a later record led to, or that were made later, are not among them."""
    views: frozenset[str] = frozenset()
    """Names, `operator/view`."""
    has_parent: Callable[[ObjectKey], bool] | None = None
    ordinal: int = 0
    """This decision alone."""

    def has(self, past: Decision) -> bool:
        """Tell whether a decision is among them."""
        is_meant = self.ordinal in (0, past.ordinal) and (not self.views or past.view in self.views)
        is_meant = is_meant and (self.has_parent is None or self.has_parent(ObjectKey.parse(past.parent)))
        start = self.start or Moment()
        is_early = past.decided_at < start.time if start.time is not None else past.seen_to < start.sequence
        return is_meant and not is_early and (self.end is None or not self.end.is_before(past.cause, past.decided_at))


def refuse_strangers(choice: Choice, one: Program, other: Program) -> None:
    """Raise ConfigurationError for two files that decide nothing alike: each decision would be made by one alone."""
    if not one.views.keys() & other.views.keys():
        views = [", ".join(sorted(program.views)) or "no view" for program in (one, other)]
        raise ConfigurationError(
            f"{choice.against} has none of the views of {choice.file} ({views[0]}) but {views[1]}: versions of one "
            "operator are compared, by the names of operator and view"
        )


def selection_of(choice: Choice, program: Program, now: datetime) -> Selection:
    """The decisions that are wanted; raises ConfigurationError for what there is nothing of in the code."""
    selected = [Selected.parse(text) for text in choice.objects]

    def has(key: ObjectKey) -> bool:
        return not selected or has_any(selected, key)

    return Selection(
        start=Moment.parse(choice.start, now) if choice.start else None,
        end=Moment.parse(choice.end, now) if choice.end else None,
        views=_views(choice.handler, program) if choice.handler else frozenset(),
        has_parent=has,
    )


def _views(handler: str, program: Program) -> frozenset[str]:
    """Views by their name, that of their reconcile function, or of an index that they read."""
    names = {view.name: {view.name, *view.sources} for view in program.views.values()}
    for view in program.views.values():
        if view.reconcile is not None:
            names[view.name].add(view.reconcile_name)
    found = frozenset(view for view, known in names.items() if named(handler, known))
    if not found:
        known = ", ".join(sorted(set().union(*names.values())))
        raise ConfigurationError(f"no view, index or reconcile function {handler!r}: there are {known}")
    return found


def refuse_moments(history: History, first: Moment | None, selection: Selection) -> None:
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


def described(objects: Sequence[str], *, handler: str = "", labels: str = "", start: str = "", end: str = "") -> str:
    """Words for what was chosen."""
    parts = [("on", " or ".join(objects)), ("with", labels), ("by", handler), ("from", start), ("up to", end)]
    return " ".join(f"{word} {chosen}" for word, chosen in parts if chosen) or "yet"
