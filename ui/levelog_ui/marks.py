"""The marks of a story, in order, to be drawn and listed: records, decisions and receipts, with their causes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

from msgspec import Struct

from levelog.handlers.callnames import in_words
from levelog_base.counting import counted
from levelog_base.wire.objects import ObjectKey
from levelog_base.wire.records import ReceiptNoted, TargetObserved
from levelog_history.differences import drift_text
from levelog_history.explaining import Explained, is_quiet, newest_chain
from levelog_history.happenings import Entry
from levelog_history.keys import wake_text
from levelog_history.revisions import Revision
from levelog_history.wording import decider_text, happened_text, receipt_text, woken, write_text
from levelog_ui.links import decision_path, object_path
from levelog_ui.stories import Story

WRITES: Final = "writes"
"""Lane of the receipts."""
_FOLDED: Final = 3
"""So many records in a row that caused nothing are shown as one."""
_MOST_FIELDS: Final = 8
_MOST_CAUSES: Final = 40
_MOST_WAKES: Final = 3


class Mark(Struct, kw_only=True):
    """One of them."""

    id: str
    """Anchor in the page: `r75`, or `d12` for a decision."""
    number: int
    """Sequence in the log; of a decision that of the last record it saw."""
    time: datetime
    lane: str
    kind: str
    """`created`, `changed`, `deleted`, `doomed`, `noted`, a status, or an outcome; a class of the stylesheet."""
    text: str
    href: str = ""
    """The target of the link in `text`."""
    who: str = ""
    """The writer; empty: the API names none."""
    who_href: str = ""
    by: str = "by"
    """Stands before `who`."""
    fields: list[str] = []
    because: list[str] = []
    """Ids of what caused it."""
    is_quiet: bool = False
    of: list[int] = []
    """Of a record that shows a new object: all records of it."""
    folded: "list[Mark]" = []
    """Records of which none caused anything, in place of which this one stands."""

    @property
    def label(self) -> str:
        """The number, as it is shown."""
        return "=>" if self.id.startswith("d") else str(self.number)

    @property
    def is_decision(self) -> bool:
        """Tell whether it is no record of the log."""
        return self.id.startswith("d")


def marks_of(story: Story) -> list[Mark]:
    """All of a story, in the order of the log; a decision follows the last record that it can have seen."""
    concerning = story.concerning()
    causes = {number for _, each in concerning for number in each.decision.causes.sequences}
    writers = story.writes()
    decided_by = {write.intent.key: each for _, each in concerning for write in each.writes}
    marks: list[Mark] = []
    deleted_by = {
        write.intent.result_uid: each
        for _, each in concerning
        for write in each.writes
        if write.intent.verb == "delete" and write.intent.result_uid and write.intent.state != "failed"
    }
    gone: dict[str, str] = {}
    seen: dict[int, int] = {}
    of: dict[str, list[int]] = {}
    for number, entry in story.entries:
        seen[number] = seen.get(number, 0) + 1
        mark = _entry_mark(number, entry, f"r{number}" if seen[number] == 1 else f"r{number}.{seen[number]}")
        if isinstance(entry, Revision):
            if entry.is_gone or entry.is_doomed:
                deleter = deleted_by.get(entry.uid)
                if deleter is not None and deleter.decision.seen_to < number:
                    _attribute(mark, deleter)
                else:
                    _attribute_to_owner(mark, entry, gone)
                gone.setdefault(entry.uid, mark.id)
            elif (found := writers.get((entry.object, number))) is not None:
                _attribute(mark, found[0])
            records = of.setdefault(entry.uid, [])
            records.append(number)
            if len(records) == 1:
                mark.of = records
            mark.is_quiet = number not in causes and (entry.object, number) not in writers and mark.kind == "changed"
            if mark.kind == "changed" and number not in causes:
                mark.kind = "noted"
        elif isinstance(entry, ReceiptNoted | TargetObserved):
            if (made := decided_by.get(entry.key)) is None:
                continue
            mark.because.append(f"d{made.decision.ordinal}")
        marks.append(mark)
    names = {mark.number: mark.id for mark in reversed(marks)}
    decisions = [_decision_mark(each, names) for _, each in concerning]
    return sorted([*marks, *decisions], key=lambda mark: (mark.number, mark.is_decision))


def why_marks(story: Story, marks: Sequence[Mark]) -> list[Mark]:
    """Those that tell how it came to the object as it is, or to its levels: `levelog why` in short."""
    last = story.last
    if story.is_parent and (last is None or not last.is_gone):
        chains = [each for decisions in story.levels.values() for each in newest_chain(decisions) if not is_quiet(each)]
        ids = {f"d{each.decision.ordinal}" for each in chains}
        ids |= {f"r{number}" for each in chains for number in each.decision.causes.sequences}
        ids |= {f"r{write.shown.sequence}" for each in chains for write in each.writes if write.shown is not None}
    else:
        own = [mark for mark in marks if mark.lane == story.object and not mark.is_quiet]
        told = [mark for mark in own if mark.because or mark.kind != "changed" or not _is_report(mark)] or own
        ids = _causes_of(told[-1], marks) if told else set()
    return [mark for mark in marks if mark.id in ids and mark.lane != WRITES][-_MOST_CAUSES:]


def _is_report(mark: Mark) -> bool:
    """Tell whether a record changed the status alone, as a kubelet does all the time."""
    return all(field.lstrip("+- ").startswith("status") for field in mark.fields)


def _causes_of(last: Mark, marks: Sequence[Mark]) -> set[str]:
    """A mark, what caused it, what caused that, and so on; ids."""
    known = {mark.id: mark for mark in marks}
    found = {last.id}
    ahead = [last.id]
    while ahead and len(found) < _MOST_CAUSES:
        ahead = [cause for each in ahead for cause in known[each].because if cause in known and cause not in found]
        found.update(ahead)
    return found


def folded(marks: Sequence[Mark]) -> list[Mark]:
    """The same, with one in place of each run of records that caused nothing."""
    found: list[Mark] = []
    run: list[Mark] = []
    for mark in (*marks, None):
        if mark is not None and mark.is_quiet:
            run.append(mark)
            continue
        found += [_fold(run)] if len(run) >= _FOLDED else run
        run = []
        if mark is not None:
            found.append(mark)
    return found


def _fold(run: list[Mark]) -> Mark:
    first, last = run[0], run[-1]
    paths = list(dict.fromkeys(field.split(":")[0].strip("+- ") for mark in run for field in mark.fields))
    writers = list(dict.fromkeys(mark.who for mark in run if mark.who))
    return Mark(
        id=f"q{first.number}",
        number=first.number,
        time=last.time,
        lane=first.lane,
        kind="quiet",
        text=f"{counted(len(run), 'record')} up to {last.number} caused nothing: no view reads what changed",
        who=", ".join(writers[:3]),
        fields=paths[:4] + ([f"and {counted(len(paths) - 4, 'more field')}"] if len(paths) > 4 else []),
        folded=run,
    )


def _entry_mark(number: int, entry: Entry, name: str) -> Mark:
    if isinstance(entry, Revision):
        kind = "doomed" if entry.is_doomed else _KINDS[entry.happened]
        fields = [] if entry.is_doomed else [str(each) for each in entry.differences]
        return Mark(
            id=name,
            number=number,
            time=entry.time,
            lane=entry.object,
            kind=kind,
            text=f"{entry.object} {happened_text(entry)}",
            href=object_path(entry.object),
            who=_writer(entry),
            fields=_few(fields),
        )
    if isinstance(entry, ReceiptNoted):
        kind = "failed" if entry.outcome in ("failed", "conflict") else "receipt"
        text, key = receipt_text(entry), entry.target
    elif isinstance(entry, TargetObserved):
        has = f"has version {entry.target_version}" if entry.target_version else "has it no more"
        kind, text, key = "receipt", f"{entry.target} was looked at: the API {has}", entry.target
    else:
        text = f"history of {entry.resource} is missing: {entry.reason}"
        return Mark(id=name, number=number, time=entry.time, lane="", kind="gap", text=text)
    return Mark(id=name, number=number, time=entry.time, lane=WRITES, kind=kind, text=in_words(text), href=_href(key))


def _writer(revision: Revision) -> str:
    is_said = revision.written.manager and not (revision.is_gone or revision.is_doomed)
    return f"field manager {revision.written.manager}" if is_said else ""


def _href(key: ObjectKey) -> str:
    return object_path(str(key)) if key.is_sound else ""


_KINDS: Final = {
    "created": "created",
    "found": "created",
    "changed": "changed",
    "rewritten": "changed",
    "recreated": "created",
    "deleted": "deleted",
    "swept": "deleted",
    "unreadable": "gap",
}


def _attribute(mark: Mark, explained: Explained) -> None:
    """Say which decision a revision comes from."""
    mark.who = decider_text(explained)
    mark.who_href = decision_path(explained.decision.ordinal)
    mark.because = [f"d{explained.decision.ordinal}"]


def _attribute_to_owner(mark: Mark, revision: Revision, gone: dict[str, str]) -> None:
    """Say whose end a deletion follows, if the owner went before; else that nobody here did it."""
    metadata = cast("dict[str, Any]", revision.manifest().get("metadata") or {})
    for owner in cast("list[dict[str, Any]]", metadata.get("ownerReferences") or []):
        if (cause := gone.get(str(owner.get("uid")))) is not None:
            mark.who = f"garbage collection, as its owner {owner.get('kind')} {owner.get('name')} went"
            mark.because = [cause]
            return
    mark.by, mark.who = "", "not by levelog; the API does not record who deletes"


def _decision_mark(explained: Explained, names: dict[int, str]) -> Mark:
    decision, before = explained.decision, explained.before
    was = before.status if before else ""
    status = decision.status if was in ("", decision.status) else f"{was} → {decision.status}"
    rounds = f", round {decision.round}" if (before.round if before else 0) != decision.round else ""
    woke = filter(None, (wake_text(explained, each) for each in explained.causes))
    told = list({text.partition(" ")[0]: text for text in woke}.values())[:_MOST_WAKES]  # of each object the last
    told += [drift_text(decision.differing)] if decision.differing else []
    told += [decision.reason] if decision.reason else []
    told += [write_text(each) for each in explained.writes]
    if explained.is_of_other_code:
        told.insert(0, "by other code than before")
    return Mark(
        id=f"d{decision.ordinal}",
        number=decision.seen_to or decision.sequence,
        time=decision.decided_at,
        lane=level_lane(decision.view, decision.parent),
        kind=decision.status,
        text=in_words(f"{decision.view}: {status}{rounds}"),
        href=decision_path(decision.ordinal),
        who=in_words(woken(decision)),
        fields=_few([in_words(each) for each in told]),
        because=[names[number] for number in decision.causes.sequences if number in names],
        is_quiet=False,
    )


def level_lane(view: str, parent: str) -> str:
    """Lane of the decisions on a level."""
    return f"{view} of {parent}"


def _few(texts: Sequence[str]) -> list[str]:
    more = len(texts) - _MOST_FIELDS
    return [*texts[:_MOST_FIELDS], *([f"and {more} more"] if more > 0 else [])]
