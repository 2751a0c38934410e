"""Levels on pages: of which application each is, as a decision left it, and a page of many."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from levelog_base.wire.objects import Application
from levelog_history.pastlevels import is_chosen
from levelog_store.decide.decisions import Decision
from levelog_store.look.levelpages import LevelQuery, in_order
from levelog_store.look.overview import LevelLine, WriteLine

LevelName: TypeAlias = tuple[Application, str, str]
"""Application, view and parent."""


class LevelPlace(Struct, frozen=True):
    """A level, of an application."""

    application: Application
    line: LevelLine

    @property
    def name(self) -> LevelName:
        """The name that tells it from others."""
        return self.application, self.line.view, self.line.parent


def line_of(decision: Decision, *, since: datetime | None, writes: Sequence[WriteLine] = ()) -> LevelLine:
    """The level as a decision left it."""
    return LevelLine(
        view=decision.view,
        parent=decision.parent,
        status=decision.status,
        reason=decision.reason,
        drift=decision.drift,
        round=decision.round,
        evaluated_at=decision.decided_at,
        since=since,
        writes=[*writes],
    )


def round_of_news(level: LevelLine | Decision) -> int:
    """The first round whose refusals are told elsewhere: of a level that failed the last one, by its reason."""
    return level.round + (level.status != "failed")


def page_of(places: Iterable[LevelPlace], wanted: LevelQuery, *, skip: int, most: int) -> list[LevelPlace]:
    """A page of levels that are all in memory."""
    found = {
        id(each.line): each
        for each in places
        if wanted.takes(each.line.status) and is_chosen(wanted, each.line.view, each.line.parent)
    }
    ordered = in_order((each.line for each in found.values()), wanted.order)
    return [found[id(line)] for line in ordered[skip : skip + most]]
