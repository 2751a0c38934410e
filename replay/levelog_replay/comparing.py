"""Compares two runs of the same decisions: counts per view, and the first difference."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from levelog_history.differences import differences, drift_text, shown
from levelog_store.decide.decisions import Asked, Decided, Decision, IntentRow
from levelog_store.rows import IndexKey, StoredObject, Verdict

NO_VIEW: Final = "the code has no such view"
FILTERED: Final = "the view's filters exclude the object"
T = TypeVar("T")

COMPARED: Final = ("status", "round", "desired", "actual", "drift")


class Conclusion(Struct, frozen=True, kw_only=True):
    """The outcome of one decision; bytes are canonical JSON, so that what is equal is identical."""

    verdict: Verdict
    keys: tuple[str, ...] = ()
    """Idempotency keys of the intents, in their order; each stands for verb, target, content and round."""
    intents: tuple[Asked, ...] = ()
    """The same in full, as far as they are known."""
    satisfied: tuple[str, ...] = ()
    """Keys of those whose targets held their fields already; not compared, as the status says it."""

    @classmethod
    def of(cls, decided: Decided) -> "Conclusion":
        """The conclusion of a decision made now."""
        rows = decided.intents
        satisfied = tuple(row.key for row in rows if row.state == "satisfied")
        return cls(verdict=decided.level, keys=tuple(row.key for row in rows), intents=tuple(rows), satisfied=satisfied)

    @classmethod
    def recorded(cls, past: Decision, asked: Iterable[Asked]) -> "Conclusion":
        """The conclusion of a recorded decision, with the writes that it asked for."""
        keys, satisfied = tuple(past.intents), past.basis.satisfied
        return cls(verdict=past, keys=keys, intents=tuple(asked), satisfied=satisfied)

    def differs_in(self, other: "Conclusion") -> list[str]:
        """Names of the parts that are not identical."""
        parts = [name for name in COMPARED if getattr(self.verdict, name) != getattr(other.verdict, name)]
        return parts if self.keys == other.keys else [*parts, "keys"]

    @property
    def writes_text(self) -> str:
        """The writes, for a sentence."""
        known = {intent.key: f"{intent.verb} {intent.target}" for intent in self.intents}
        return ", ".join(known.get(key, f"a write that is not kept any more ({key})") for key in self.keys) or "none"


class Judged(Struct, frozen=True, kw_only=True):
    """A decision made again."""

    past: Decision
    asked: Sequence[Asked] = ()
    """The writes that it asked for then."""
    conclusion: Conclusion | None
    """None: it could not be made."""
    obstacle: str = ""
    """Why not."""
    parent: StoredObject | None = None
    reads: Mapping[IndexKey, tuple[bytes, ...]] = {}
    """The values read now, with their contents."""
    rows: Sequence[IntentRow] = ()
    """The intents of the conclusion, as they would be stored."""


class Tally(Struct):
    """Counts of the decisions of one view, or of the calls of one function."""

    same: int = 0
    changed: int = 0
    only_before: int = 0
    """Made by the first code alone; the second has no such view, or its filters exclude the object."""
    only_after: int = 0
    refused: int = 0
    """Calls that did I/O, so that what came of them says nothing."""
    skipped: int = 0
    """Could not be made again."""


class Divergence(Struct, frozen=True, kw_only=True):
    """A decision that came out otherwise, with what it was made on."""

    past: Decision
    parts: list[str]
    """The parts that differ: status, round, desired, actual, keys; or `made`, if one side does not make it."""
    before: Conclusion | None
    after: Conclusion | None
    parent: StoredObject | None
    reads: Mapping[IndexKey, tuple[bytes, ...]]
    """Keys that it read, with the JSON of their values."""


def part_texts(part: str, before: Verdict, after: Verdict) -> Iterator[str]:
    """The differences in a part of two verdicts, each a sentence: in status, round, desired, actual or drift."""
    if part in ("desired", "actual"):
        one, other = (_decoded(getattr(side, part)) for side in (before, after))
        if isinstance(one, dict) and isinstance(other, dict):
            yield from map(str, differences(one, other))
        else:
            yield f"{shown(one)} -> {shown(other)}"
    elif part == "drift":
        yield " -> ".join(drift_text(side.differing) or "none" for side in (before, after))
    else:
        reason = f" ({after.reason})" if part == "status" and after.reason else ""
        yield f"{getattr(before, part)} -> {getattr(after, part)}{reason}"


def content_texts(before: Conclusion, after: Conclusion) -> Iterator[str]:
    """The differences of writes of one verb to one target, each a sentence."""
    then = {(intent.verb, intent.target): intent for intent in before.intents}
    for intent in after.intents:
        found = then.get((intent.verb, intent.target))
        if found is not None and found.body != intent.body:
            one, other = (_decoded(each.body) for each in (found, intent))
            are_objects = isinstance(one, dict) and isinstance(other, dict)
            told = differences(one, other) if are_objects else [f"{shown(one)} -> {shown(other)}"]
            yield from (f"{intent.target}: {each}" for each in told)
        elif found is not None and found.key != intent.key and before.verdict.round == after.verdict.round:
            yield f"{intent.target}: the same {intent.verb} with other options, such as `owned=`"


def _decoded(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value)


class Comparison(Generic[T]):
    """Counts what came out the same on two sides, and what did not, by view or function."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.first: T | None = None
        """The first difference."""
        self.obstacles: dict[str, int] = {}
        """The number of those that were skipped, by reason."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differed of what could be compared."""
        return self.first is None

    @property
    def total(self) -> Tally:
        """The sum of all views."""
        total = Tally()
        for tally in self.tallies.values():
            for name in Tally.__struct_fields__:
                setattr(total, name, getattr(total, name) + getattr(tally, name))
        return total

    def tally(self, name: str) -> Tally:
        """The counts of a view or function."""
        return self.tallies.setdefault(name, Tally())

    def skip(self, name: str, obstacle: str) -> None:
        """Count what cannot be made again."""
        self.tally(name).skipped += 1
        self.obstacles[obstacle] = self.obstacles.get(obstacle, 0) + 1


class DecisionComparison(Comparison[Divergence]):
    """Takes decisions one by one, in the order of the log."""

    def __init__(self, take: Callable[[Divergence], None] | None = None) -> None:
        """`take` is given each difference."""
        super().__init__()
        self._given = take

    def take_recorded(self, now: Judged) -> Divergence | None:
        """Compare a decision with what was recorded."""
        return self._take(now.past, Conclusion.recorded(now.past, now.asked), now, now)

    def take_both(self, before: Judged, after: Judged) -> Divergence | None:
        """Compare what two versions of the code make of one decision."""
        first = before if before.conclusion is not None else after
        if before.conclusion is None and not _is_absent(before):
            self.skip(before.past.view, before.obstacle)
            return None
        return self._take(before.past, before.conclusion, after, first)

    def _take(self, past: Decision, before: Conclusion | None, after: Judged, shown: Judged) -> Divergence | None:
        tally = self.tally(past.view)
        if after.conclusion is None and not _is_absent(after):
            self.skip(past.view, after.obstacle)
            return None
        if before is None and after.conclusion is None:
            tally.same += 1
            return None
        if before is None or after.conclusion is None:
            parts = ["made"]
            tally.only_before += after.conclusion is None
            tally.only_after += before is None
        else:
            parts = before.differs_in(after.conclusion)
            if not parts:
                tally.same += 1
                return None
            tally.changed += 1
        found = Divergence(
            past=past, parts=parts, before=before, after=after.conclusion, parent=shown.parent, reads=shown.reads
        )
        self.first = self.first or found
        if self._given is not None:
            self._given(found)
        return found


def _is_absent(judged: Judged) -> bool:
    """Tell whether the code makes no such decision, as opposed to one that cannot be made again."""
    return judged.obstacle in (NO_VIEW, FILTERED)
