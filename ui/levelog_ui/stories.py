"""One object with everything that concerns it: related objects, their records, and the decisions in between."""

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Final

from msgspec import Struct

from levelog_base.wire.objects import Application, ObjectKey
from levelog_base.wire.records import LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_history.explaining import Explained, ExplainedWrite, explain
from levelog_history.happenings import Entry, Happened, entries_in, selected_for
from levelog_history.revisions import Revision
from levelog_history.selection import Shown
from levelog_history.timeline import DecisionEntry
from levelog_ui.past import Past
from levelog_ui.places import LevelName

MOST_OBJECTS: Final = 24
"""Objects of which one page tells; of more, those that changed last."""
_MOST_LOOKED_UP: Final = 200
"""Causes that are looked up one by one, since they are records of no object known yet."""


class Story(Struct, frozen=True, kw_only=True):
    """The history of an object."""

    object: str
    is_parent: bool
    """Views decide on it; else what is told is what concerns it of the levels that wrote it."""
    objects: list[str]
    """That are told of: itself, then parents, then others by name."""
    left_out: int
    """Other objects that its levels wrote."""
    entries: list[tuple[int, Entry]]
    """In the order of the log, each with its sequence."""
    levels: dict[LevelName, list[Explained]]
    """All decisions that are kept, oldest first."""
    bodies: dict[str, bytes]
    """JSON of what each write sends, by its key, as far as that is kept."""

    @property
    def last(self) -> Revision | None:
        """The newest revision of the object."""
        found = (each for _, each in reversed(self.entries) if isinstance(each, Revision))
        return next((each for each in found if each.object == self.object), None)

    def concerning(self) -> list[tuple[Application, Explained]]:
        """Decisions on the object; else those that wrote it or that one of its records caused. In the log's order."""
        own = {number for number, each in self.entries if isinstance(each, Revision) and each.object == self.object}
        found = [
            (application, each)
            for (application, _, parent), decisions in self.levels.items()
            for each in decisions
            if parent == self.object
            or own & set(each.decision.causes.sequences)
            or any(write.intent.target == self.object for write in each.writes)
        ]
        return sorted(found, key=lambda each: (each[1].decision.seen_to, each[1].decision.ordinal))

    def writes(self) -> dict[tuple[str, int], tuple[Explained, ExplainedWrite]]:
        """The write that each revision shows, by object and sequence."""
        return {
            (write.shown.object, write.shown.sequence): (each, write)
            for decisions in self.levels.values()
            for each in decisions
            for write in each.writes
            if write.shown is not None
        }


async def read_story(past: Past, key: ObjectKey) -> Story:
    """Read it. Raises as `Reader` does; an object that nothing is recorded of has no entries."""
    name = str(key)
    decided = await past.decided(Shown(selected_for([key]), ""))
    parents = {each.decision.parent for each in decided}
    is_parent = name in parents
    if parents - {name}:
        decided = await past.decided(Shown(selected_for([ObjectKey.parse(each) for each in parents]), ""))
    decided = [each for each in decided if each.decision.parent in parents]
    targets = [w.target for each in reversed(decided) for w in each.writes if w.verb != "call"] if is_parent else []
    written = list(dict.fromkeys([name, *sorted(parents), *targets]))
    first = written[: 1 + len(parents - {name})]
    objects = first + sorted(written[len(first) : MOST_OBJECTS], key=_as_counted)
    told = await _read(past, objects, parents)
    asked = decided if is_parent else _near(decided, name, told)
    known = {number for _, number in told}
    unknown = {cause for each in asked for cause in each.decision.causes.sequences} - known
    others = await past.records(sorted(unknown)[-_MOST_LOOKED_UP:])
    if more := sorted(_objects_of(others) - set(objects), key=_as_counted)[: MOST_OBJECTS - len(objects)]:
        objects += more
        later = await _read(past, more, ())
        told += [each for each in later if isinstance(each[0], Revision) or each[1] not in known]
        told.sort(key=itemgetter(1))
    happened = Happened.of(told, others)
    intents = await past.intents(decided, happened.receipts)
    by_level: dict[LevelName, list[DecisionEntry]] = {}
    for each in decided:
        by_level.setdefault((each.application, each.decision.view, each.decision.parent), []).append(each)
    return Story(
        object=name,
        is_parent=is_parent,
        objects=objects,
        bodies={write.key: write.body for each in decided for write in each.writes},
        left_out=len(written) - len(written[:MOST_OBJECTS]),
        entries=[(number, each) for each, number in told],
        levels={
            level: explain(sorted((e.decision for e in some), key=lambda d: d.ordinal), intents, happened)
            for level, some in sorted(by_level.items())
        },
    )


async def _read(past: Past, objects: Iterable[str], parents: Collection[str]) -> list[tuple[Entry, int]]:
    """Revisions of the objects, and receipts of what was written for parents."""
    keys = {ObjectKey.parse(each) for each in objects}
    of = {ObjectKey.parse(each) for each in parents}
    records = past.about(selected_for(keys), of)
    return [each async for each in entries_in(records, keys.__contains__, lambda record: record.parent in of)]


def _near(decided: Sequence[DecisionEntry], name: str, told: Iterable[tuple[Entry, int]]) -> list[DecisionEntry]:
    """Decisions that wrote an object, or that its records caused."""
    own = {number for each, number in told if isinstance(each, Revision) and each.object == name}
    return [
        each
        for each in decided
        if own & set(each.decision.causes.sequences) or any(write.target == name for write in each.writes)
    ]


def _as_counted(name: str) -> tuple[str, int, str]:
    """By resource and namespace, `shop-9` before `shop-10`."""
    place, _, last = name.rpartition("/")
    return place, len(last), last


def _objects_of(records: Iterable[LoggedRecord]) -> set[str]:
    found = (each.record for each in records)
    return {str(each.key) for each in found if isinstance(each, ObjectSeen | ObjectDeleted)}
