"""The page of an object: how it came to be as it is, its lanes over the log, and every record with its causes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import ObjectKey
from levelog_history.differences import drift_text
from levelog_history.revisions import Revision
from levelog_ui.lanes import picture_of
from levelog_ui.links import number_of, object_path, with_query
from levelog_ui.marks import Mark, folded, marks_of, why_marks
from levelog_ui.past import Past
from levelog_ui.places import round_of_news
from levelog_ui.stories import Story, read_story

_MOST: Final = 120
"""Marks on one page; links lead to those before and after."""


async def object_page(past: Past, name: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    """The values of the template; None: nothing is recorded of the object. Raises ConfigurationError.

    `?to=75` shows the records up to that one, `?at=75` those around it.
    """
    story = await read_story(past, ObjectKey.parse(name))
    if story.last is None and not story.levels:
        return None
    marks = marks_of(story)
    why = why_marks(story, marks)
    shown = folded(marks)
    end = _end(shown, query)
    begin = max(0, end - _MOST)
    window = shown[begin:end]
    path = object_path(story.object)
    return {
        "story": story,
        "now": _now(story.last, why if not story.is_parent else (), marks),
        "levels": await _levels(past, story),
        "why": why,
        "picture": picture_of(window, story.objects, [(view, parent) for _, view, parent in story.levels]),
        "marks": window,
        "names": _names(shown),
        "older": with_query(path, {"to": shown[begin - 1].number}) if begin else "",
        "newer": with_query(path, {"to": shown[min(len(shown), end + _MOST) - 1].number}) if end < len(shown) else "",
    }


async def _levels(past: Past, story: Story) -> list[dict[str, Any]]:
    """The status of each level, and what failed before."""
    newest = {level: decisions[-1].decision for level, decisions in story.levels.items() if decisions}
    refusals = await past.refusals({level: round_of_news(each) for level, each in newest.items()})
    return [
        {"decision": each, "drift": drift_text(each.differing), "refusals": refusals.get(level)}
        for level, each in newest.items()
    ]


def _end(marks: Sequence[Mark], query: Mapping[str, str]) -> int:
    for name, beyond in (("to", 0), ("at", _MOST // 2)):
        if not (text := query.get(name, "")):
            continue
        if (sequence := number_of(text)) is None:
            raise ConfigurationError(f"?{name}={text[:40]} is no sequence of a record")
        until = sum(mark.number <= sequence for mark in marks)
        return min(len(marks), max(_MOST, until + beyond))
    return len(marks)


def _now(last: Revision | None, why: Sequence[Mark], marks: Sequence[Mark]) -> dict[str, Any]:
    """One line: who made of the object what it is; the last of `why` about it, else the last record."""
    if last is None:
        return {}
    own = [mark for mark in marks if mark.number == last.sequence and mark.lane == last.object]
    mark = [*own, *(mark for mark in why if mark.lane == last.object)][-1]
    return {"revision": last, "mark": mark}


def _names(marks: Sequence[Mark]) -> dict[str, str]:
    """The name of a cause, by its id; of a folded record, the id is that of the fold."""
    return {each.id: each.label if not each.is_decision else each.text.split(":")[0] for each in marks}
