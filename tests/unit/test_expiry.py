from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Operator
from levelog_base.wire.objects import Version
from levelog_base.wire.records import BookmarkNoted, ObjectDeleted, ObjectSeen
from levelog_processors.fold.foldrules import Fold
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.fold.changes import Changes, PriorState
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


def fold(state: State, *records: Any, first: int = 1) -> Changes:
    """What a batch changes; state takes it."""
    changes = state.fold(logged(records, first=first, partitions=1))
    state.apply(changes)
    return changes


def recent_of(state: State) -> set[str]:
    """Objects of which the index that forgets has an entry."""
    held = state.buckets.by_object
    return {name for name, entries in held.items() if any(each.index == "webs/recent" for each in entries.values())}


@pytest.fixture
def state() -> State:
    return State(program, "webs", 1)


def at(record: Any, minutes: int) -> Any:
    """The record, as of so many minutes after noon."""
    return replace(record, time=NOON + timedelta(minutes=minutes))


def tick(minutes: int) -> BookmarkNoted:
    return BookmarkNoted(resource=PODS, version=Version(1), time=NOON + timedelta(minutes=minutes))


P, Q = "pods/default/p", "pods/default/q"


def test_entries_go_once_their_object_has_not_changed_for_that_long(state: State) -> None:
    fold(state, at(pod("p", 1, owner="o"), 0), at(pod("q", 2, owner="o"), 30))
    fold(state, tick(59), first=3)
    assert recent_of(state) == {P, Q}
    changes = fold(state, tick(60), first=4)
    assert recent_of(state) == {Q}
    assert changes.entries == {("webs/recent", '"o"', P, 0): None}
    assert changes.keys == {("webs/recent", '"o"'): 4, ("webs/recent", "*0"): 4}


def test_a_change_of_the_object_that_the_index_does_not_read_keeps_the_entry_and_wakes_nobody(state: State) -> None:
    fold(state, at(pod("p", 1, owner="o"), 0))
    assert fold(state, at(pod("p", 2, owner="o", annotations={"n": "1"}), 50), first=2).keys == {}
    fold(state, tick(100), first=3)
    assert recent_of(state) == {P}


def test_a_later_change_brings_the_entries_back(state: State) -> None:
    fold(state, at(pod("p", 1, owner="o"), 0), tick(90))
    assert recent_of(state) == set()
    changes = fold(state, at(pod("p", 2, owner="o"), 100), first=3)
    assert recent_of(state) == {P}
    assert ("webs/recent", '"o"') in changes.keys


def test_a_record_that_repeats_what_is_known_is_no_change(state: State) -> None:
    fold(state, at(pod("p", 1, owner="o"), 0))
    fold(state, at(pod("p", 1, owner="o"), 59), tick(61), first=2)
    assert recent_of(state) == set()


def test_an_object_that_was_left_out_by_error_blocks_no_longer_once_its_entries_would_have_expired(
    state: State,
) -> None:
    fold(state, at(pod("p", 1), 0))
    assert recent_of(state) == {P}
    fold(state, tick(60), first=2)
    assert recent_of(state) == set()


def test_entries_computed_anew_end_as_long_after_the_record_as_ever() -> None:
    index = program.indices["webs/recent"]
    seen = [at(pod("p", 1, owner="o"), 0), at(pod("q", 2, owner="o"), 30)]
    rows = Fold(program, "webs", PriorState()).records(logged(seen, partitions=1)).objects.values()
    prior = PriorState(times={0: NOON + timedelta(minutes=60)})
    changes = Fold(program, "webs", prior).index_anew(index, rows, 9)
    written = [(name, entry and entry.expires_at) for (_, _, name, _), entry in changes.entries.items()]
    assert written == [(Q, NOON + timedelta(minutes=90))]


def test_time_never_goes_back(state: State) -> None:
    fold(state, tick(120), at(pod("p", 1, owner="o"), 0))
    assert recent_of(state) == set()
    fold(state, at(pod("q", 2, owner="o"), 61), tick(3), first=3)
    assert recent_of(state) == {Q}


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
    whole, parts = State(program, "webs", 1), State(program, "webs", 1)
    if records:
        fold(whole, *records)
    for start in range(0, len(records), size):
        fold(parts, *records[start : start + size], first=start + 1)
    assert (parts.buckets.by_object, parts.times) == (whole.buckets.by_object, whole.times)
