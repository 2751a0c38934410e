from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Operator
from levelog.wire.objects import Version
from levelog.wire.records import BookmarkNoted, LoggedRecord, ObjectDeleted, ObjectSeen
from levelog_processors.fold.rules import Fold
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, PriorState
from levelog_store.rows import Entry, StoredObject
from rigs.kinds import Pod
from rigs.webs import NOON, PODS, deleted, logged, pod

HOUR = timedelta(hours=1)


op = Operator("webs")


@op.index(expires=HOUR)
def recent(pod: Pod) -> Iterator[tuple[str, str]]:
    if not pod.metadata.owner_references:
        raise ValueError("no owner")
    yield pod.metadata.owner_references[0].uid, pod.metadata.name


@op.index
def always(pod: Pod) -> Iterator[tuple[str, str]]:
    yield "all", pod.metadata.name


program = Program([op])


class Tables:
    """What folds leave in memory, and what the next one would find of it in SQL."""

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.entries: dict[str, dict[tuple[str, str, int], Entry]] = {}
        self.times: dict[int, datetime] = {}

    def fold(self, records: Sequence[LoggedRecord]) -> Changes:
        prior = PriorState(objects=dict(self.objects), times=dict(self.times))
        prior.entries_of = lambda name: self.entries.get(name, {}).values()
        prior.expired = [
            (name, entry)
            for name, entries in self.entries.items()
            for entry in entries.values()
            if entry.expires_at is not None
        ]
        changes = Fold(program, "webs", prior).records(records)
        for name, row in changes.objects.items():
            self.objects[name] = row
        for name in changes.tombstones:
            self.objects.pop(name, None)
        for index, key, name, ordinal in changes.entries_removed:
            del self.entries[name][index, key, ordinal]
        for name, entry in changes.entries_written:
            self.entries.setdefault(name, {})[entry.index, entry.key, entry.ordinal] = entry
        for partition, point in changes.checkpoints.items():
            if point.time is not None:
                self.times[partition] = point.time
        return changes

    def recent(self) -> set[str]:
        return {name for name, entries in self.entries.items() for index, _, _ in entries if index == "webs/recent"}


def at(record: Any, minutes: int) -> Any:
    """The record, as of so many minutes after noon."""
    return replace(record, time=NOON + timedelta(minutes=minutes))


def tick(minutes: int) -> BookmarkNoted:
    return BookmarkNoted(resource=PODS, version=Version(1), time=NOON + timedelta(minutes=minutes))


def told(*records: ObjectSeen | ObjectDeleted | BookmarkNoted, first: int = 1) -> list[LoggedRecord]:
    return logged(records, first=first, partitions=1)


P, Q = "pods/default/p", "pods/default/q"


def test_entries_go_once_their_object_has_not_changed_for_that_long() -> None:
    tables = Tables()
    tables.fold(told(at(pod("p", 1, owner="o"), 0), at(pod("q", 2, owner="o"), 30)))
    tables.fold(told(tick(59), first=3))
    assert tables.recent() == {P, Q}
    changes = tables.fold(told(tick(60), first=4))
    assert tables.recent() == {Q}
    assert changes.entries_removed == [("webs/recent", '"o"', P, 0)]
    assert changes.keys == {("webs/recent", '"o"'): 4, ("webs/recent", "*0"): 4}


def test_a_change_of_the_object_that_the_index_does_not_read_keeps_the_entry_and_wakes_nobody() -> None:
    tables = Tables()
    tables.fold(told(at(pod("p", 1, owner="o"), 0)))
    changes = tables.fold(told(at(pod("p", 2, owner="o", annotations={"n": "1"}), 50), first=2))
    assert changes.keys == {}
    tables.fold(told(tick(100), first=3))
    assert tables.recent() == {P}


def test_a_later_change_brings_the_entries_back() -> None:
    tables = Tables()
    tables.fold(told(at(pod("p", 1, owner="o"), 0), tick(90)))
    assert tables.recent() == set()
    changes = tables.fold(told(at(pod("p", 2, owner="o"), 100), first=3))
    assert tables.recent() == {P}
    assert ("webs/recent", '"o"') in changes.keys


def test_a_record_that_repeats_what_is_known_is_no_change() -> None:
    tables = Tables()
    tables.fold(told(at(pod("p", 1, owner="o"), 0)))
    tables.fold(told(at(pod("p", 1, owner="o"), 59), tick(61), first=2))
    assert tables.recent() == set()


def test_an_object_that_was_left_out_by_error_blocks_no_longer_once_its_entries_would_have_expired() -> None:
    tables = Tables()
    tables.fold(told(at(pod("p", 1), 0)))
    assert ("webs/recent", "!", 0) in tables.entries[P]
    tables.fold(told(tick(60), first=2))
    assert tables.recent() == set()


def test_entries_computed_anew_end_as_long_after_the_record_as_ever() -> None:
    index = program.indices["webs/recent"]
    seen = [at(pod("p", 1, owner="o"), 0), at(pod("q", 2, owner="o"), 30)]
    rows = Fold(program, "webs", PriorState()).records(told(*seen)).objects.values()
    prior = PriorState(times={0: NOON + timedelta(minutes=60)})
    changes = Fold(program, "webs", prior).index_anew(index, rows, 9)
    written = [(name, entry.expires_at) for name, entry in changes.entries_written]
    assert written == [(Q, NOON + timedelta(minutes=90))]


def test_time_never_goes_back() -> None:
    tables = Tables()
    tables.fold(told(tick(120), at(pod("p", 1, owner="o"), 0)))
    assert tables.recent() == set()
    tables.fold(told(at(pod("q", 2, owner="o"), 61), tick(3), first=3))
    assert tables.recent() == {Q}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.integers(0, 70)),
        st.tuples(st.sampled_from(["p", "q"]), st.integers(0, 70)),
        st.tuples(st.sampled_from(["-p", "-q"]), st.integers(0, 70)),
    ),
    max_size=12,
)


@given(steps=steps, size=st.integers(1, 5))
def test_invariant_3_entries_expire_alike_whatever_the_size_of_a_batch(steps: list[tuple[str, int]], size: int) -> None:
    records: list[ObjectSeen | ObjectDeleted | BookmarkNoted] = []
    now = 0
    for version, (what, minutes) in enumerate(steps, start=1):
        now += minutes
        if what == "tick":
            records.append(tick(now))
        elif what.startswith("-"):
            records.append(at(deleted(pod(what[1:], version, owner="o"), version), now))
        else:
            records.append(at(pod(what, version, owner="o"), now))
    whole, parts = Tables(), Tables()
    if records:
        whole.fold(told(*records))
    for start in range(0, len(records), size):
        parts.fold(told(*records[start : start + size], first=start + 1))
    assert {name: entries for name, entries in parts.entries.items() if entries} == {
        name: entries for name, entries in whole.entries.items() if entries
    }
    assert parts.times == whole.times
