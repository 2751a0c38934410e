"""What other code would decide, as it is printed: levels that change, like ones together, and writes that follow."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from levelog.handlers.callnames import title_of
from levelog_base.counting import counted
from levelog_cli.printing.comparisons import verdict_lines
from levelog_cli.printing.tables import folded, labelled, table_lines
from levelog_replay.planning import Planned, PlannedLevel
from levelog_store.rows import Verdict

_COLUMNS: Final = ("VIEW", "LEVELS", "STAY", "CHANGE", "NEW", "GONE", "")
_NAMED: Final = 5
"""Levels that are named of a group, and writes of a level."""
_REASONS: Final = 5
"""Most levels that are shown each where they are otherwise alike."""
_NOTHING: Final = Verdict(status="")


def plan_lines(plan: Planned) -> Iterator[str]:
    """The lines of a plan that is only looked at."""
    yield from change_lines(plan)
    yield "nothing was written"


def change_lines(plan: Planned) -> Iterator[str]:
    """The lines of a plan."""
    yield from table_lines(_COLUMNS, list(_rows(plan)))
    for heading, levels in _grouped(plan.levels):
        yield ""
        yield from folded(f"{levels[0].change.view}, {counted(len(levels), 'level')}: {heading.partition(': ')[2]}")
        yield from _example(levels)
    yield ""
    yield from _remarks(plan)


def _rows(plan: Planned) -> Iterator[tuple[str, ...]]:
    for view, of in plan.counts.items():
        mine = [level.change for level in plan.levels if level.change.view == view]
        gone = sum(change.after is None for change in mine)
        new = sum(change.before is None for change in mine)
        changed = len(mine) - gone - new
        yield view, str(of.after), str(of.before - gone - changed), str(changed), str(new), str(gone), ""


def _grouped(levels: Iterable[PlannedLevel]) -> Iterator[tuple[str, list[PlannedLevel]]]:
    """Levels with what they have in common: those of one heading by their reasons, the commonest ones first.

    After some reasons of a heading all others stand together.
    """
    groups: defaultdict[str, defaultdict[str, list[PlannedLevel]]] = defaultdict(lambda: defaultdict(list))
    for level in levels:
        groups[_group(level)][_reason(level)].append(level)
    for heading, by_reason in groups.items():
        alike = sorted(by_reason.values(), key=len, reverse=True)
        for some in alike[:_REASONS]:
            yield heading, some
        if rest := alike[_REASONS:]:
            yield f"{heading}, for {len(rest)} other reasons", [level for some in rest for level in some]


def _reason(level: PlannedLevel) -> str:
    """The reason for its status, without the name of the parent."""
    after = level.change.after
    return after.reason.replace(level.change.parent, "") if after is not None else ""


def _group(level: PlannedLevel) -> str:
    """The key of levels that are shown together."""
    before, after = level.change.before, level.change.after
    if level.is_later:
        what = "decided on after others"
    elif after is None:
        what = "gone"
    elif before is None:
        what = f"new, {after.status}"
    elif before.status != after.status:
        what = f"{before.status} -> {after.status}"
    else:
        differing = " and ".join(p for p in ("reason", "desired", "actual") if getattr(before, p) != getattr(after, p))
        what = f"{after.status} as before{', with another ' if differing else ''}{differing}"
    written = counted_writes([level])
    return f"{level.change.view}: {what}{'; ' if written else ''}{written}"


def _example(levels: Sequence[PlannedLevel]) -> Iterator[str]:
    level = levels[0]
    yield from labelled("such as" if len(levels) > 1 else "parent", level.change.parent)
    if level.is_due:
        yield from labelled("due", "the code that runs would decide on it now too")
    before, after = level.change.before or _NOTHING, level.change.after
    if after is not None and not level.is_later:
        if after.reason:
            yield from labelled("reason", after.reason)
        yield from verdict_lines(before, after)
    if writes := [f"{verb} {target}" for verb, target in _writes(level)]:
        yield from labelled("writes", _some(writes))
    if len(levels) > 1:
        yield from labelled("others", _some([each.change.parent for each in levels[1:]]))


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def _writes(level: PlannedLevel) -> Iterator[tuple[str, str]]:
    """Verb and target of each write; an Event that says the same in several rounds is one."""
    told: set[str] = set()
    for write in level.writes:
        if write.verb == "event":
            if write.target in told:
                continue
            told.add(write.target)
        yield write.verb, write.target


def counted_writes(levels: Iterable[PlannedLevel]) -> str:
    """The number of writes by verb and resource; empty: none."""
    numbers = Counter(
        f"call {title_of(level.change.view, target)}" if verb == "call" else f"{verb} {target.partition('/')[0]}"
        for level in levels
        for verb, target in _writes(level)
    )
    return ", ".join(f"{what} ({number})" for what, number in sorted(numbers.items()))


def _remarks(plan: Planned) -> Iterator[str]:
    written = counted_writes(plan.levels)
    at_once = " at once" if plan.unlisted else ""
    remarks = [f"writes that would follow{at_once}: {written or 'none'}"]
    if deletions := Counter(name.partition("/")[0] for level in plan.levels for name in level.deletions):
        numbers = ", ".join(f"{kind} ({number})" for kind, number in sorted(deletions.items()))
        remarks.append(f"{counted(deletions.total(), 'deletion')} may follow, now or once all else is done: {numbers}")
    if plan.dropped:
        remarks.append(f"writes that are decided, not sent yet, and would be dropped: {plan.dropped}")
    if plan.waiting:
        names = _some([f"{view} of {parent}" for view, parent in plan.waiting])
        remarks.append(f"more may follow, since writes are under way for {names}")
    for view, resources in plan.unlisted.items():
        awaited = ", ".join(resources) or "all that it reads, of the same namespaces"
        remarks.append(f"{view} decides, and perhaps writes, once this is listed: {awaited}")
    if plan.later:
        remarks.append(f"{', '.join(plan.later)} {'decides' if len(plan.later) == 1 else 'decide'} after that")
    for remark in remarks:
        yield from folded(remark)
