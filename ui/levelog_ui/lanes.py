"""The picture of a story: a lane for each object and level, a column for each record, lines from cause to effect."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from levelog_ui.links import object_path
from levelog_ui.marks import WRITES, Mark, level_lane
from levelog_ui.times import clock, day_of, span

COLUMN: Final = 26
"""Pixels, as all lengths here."""
ROW: Final = 30
_TOP: Final = 34
_PAUSE: Final = timedelta(seconds=10)
"""After so long a pause the picture says how long it was."""
_LABEL_COLUMNS: Final = 3
"""A time needs so much room."""


class LaneHead(Struct, frozen=True, kw_only=True):
    """The heading of a lane."""

    name: str
    of: str = ""
    """Resource or parent, shown small."""
    href: str = ""
    kind: str
    """`object`, `level` or `writes`."""


class Dot(Struct, frozen=True, kw_only=True):
    """A mark in the picture."""

    mark: Mark
    x: float
    y: float
    others: list[float] = []
    """Further lanes of folded records."""
    lines: list[str] = []
    """SVG paths from each cause to here."""


class TimeLabel(Struct, frozen=True, kw_only=True):
    """A time above the lanes."""

    x: float
    text: str
    is_below: bool = False
    """In the second line, for pauses and days."""


class Picture(Struct, frozen=True, kw_only=True):
    """All of it."""

    heads: list[LaneHead]
    dots: list[Dot]
    labels: list[TimeLabel]
    width: int
    height: int
    row: int = ROW
    top: int = _TOP

    @property
    def rows(self) -> list[int]:
        """The middle of each lane."""
        return [_TOP + ROW * number + ROW // 2 for number in range(len(self.heads))]


def picture_of(marks: Sequence[Mark], objects: Sequence[str], levels: Sequence[tuple[str, str]]) -> Picture:
    """Draw the marks, in their order, on a lane for each object and level (view and parent) and one for writes."""
    used = {each.lane for mark in marks for each in (mark.folded or [mark])}
    heads = {name: _object_head(name) for name in objects if name in used}
    for view, parent in dict.fromkeys(levels):
        if (lane := level_lane(view, parent)) in used:
            heads[lane] = LaneHead(name=view, of=parent.rpartition("/")[2], kind="level", href=object_path(parent))
    if WRITES in used:
        heads[WRITES] = LaneHead(name="writes", of="receipts of the API", kind="writes")
    middle = {lane: _TOP + ROW * number + ROW / 2 for number, lane in enumerate(heads)}
    places: dict[str, tuple[float, float]] = {}
    dots: list[Dot] = []
    labels: list[TimeLabel] = []
    column, labelled, labelled_day, before = 0.6, -9.0, "", None
    for mark in marks:
        if before is not None and mark.time - before >= _PAUSE:
            labels.append(TimeLabel(x=column * COLUMN + 4, text=span(mark.time - before), is_below=True))
            column += 1.6
            labelled = -9.0
        if column - labelled >= _LABEL_COLUMNS and (
            before is None or clock(mark.time) != clock(before) or labelled < 0
        ):
            labels.append(TimeLabel(x=column * COLUMN, text=clock(mark.time)))
            if (day := day_of(mark.time)) != labelled_day:
                labels.append(TimeLabel(x=column * COLUMN, text=day, is_below=True))
                labelled_day = day
            labelled = column
        before = max(mark.time, before) if before else mark.time
        lanes = list(dict.fromkeys(middle.get(each.lane, _TOP) for each in (mark.folded or [mark])))
        x, y = column * COLUMN, lanes[0]
        lines = [_line(*places[cause], x, y) for cause in mark.because if cause in places]
        dots.append(Dot(mark=mark, x=x, y=y, others=lanes[1:], lines=lines))
        places[mark.id] = x, y
        column += 1
    return Picture(
        heads=list(heads.values()),
        dots=dots,
        labels=labels,
        width=round((column + 1) * COLUMN),
        height=_TOP + ROW * len(heads) + 6,
    )


def _object_head(name: str) -> LaneHead:
    resource, namespace, last = name.split("/", 2)
    return LaneHead(name=last, of=f"{resource}/{namespace}", href=object_path(name), kind="object")


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    if y == to_y:
        return f"M{x:g} {y:g}Q{(x + to_x) / 2:g} {y - 14:g} {to_x:g} {to_y:g}"
    bend = min(30.0, (to_x - x) / 2)
    return f"M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
