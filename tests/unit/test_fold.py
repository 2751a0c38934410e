from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Level, Operator, Owner, Resource, Struct
from levelog.handlers.indexers import OnError
from levelog_base.wire.objects import Uid
from levelog_base.wire.records import ObjectDeleted, ObjectSeen, SyncStarted
from levelog_cli.loading import load_operators
from levelog_processors.fold.entries import MOST_OWNERS, index_entries
from levelog_processors.keys import canonical_key
from levelog_processors.program import Program
from levelog_processors.state.state import State
from levelog_store.fold.changes import Changes
from levelog_store.rows import ERRORS, Entry, LevelRow
from rigs.kinds import Web
from rigs.webs import PODS, deleted, lists_done, logged, pod, web

WEBS = Path(__file__).parents[2] / "examples/webs/webs.py"
PARTITIONS = 4


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(load_operators([WEBS]))


def fold(state: State, *records: ObjectSeen | ObjectDeleted | SyncStarted, first: int = 1) -> Changes:
    """What a batch changes; state takes it."""
    changes = state.fold(logged(records, first=first, partitions=PARTITIONS))
    state.apply(changes)
    return changes


def changed(changes: Changes) -> set[str]:
    """Keys whose readers are woken, but for those that read a whole index."""
    return {key for _, key in changes.keys if not key.startswith("*")}


def entries_of(state: State, name: str = "pods/default/p") -> dict[str, Entry]:
    return {entry.key: entry for entry in state.buckets.by_object.get(name, {}).values()}


history = st.lists(st.sampled_from(["modify", "delete", "recreate"]), min_size=1, max_size=12)


def under(uid: str) -> str:
    """The key of what a Web of this uid controls."""
    return canonical_key(Owner("example.com", "Web", "default", Uid(uid)))


def told(steps: list[str]) -> list[ObjectSeen | ObjectDeleted]:
    """What happened to one pod, in the order in which it happened."""
    incarnation, version, exists = 0, 1, True
    records: list[ObjectSeen | ObjectDeleted] = [pod("p", 1, owner="o0", uid="u0")]
    for step in steps:
        version += 1
        last = pod("p", version, owner=f"o{version % 3}", uid=f"u{incarnation}")
        if step == "delete" and exists:
            records.append(deleted(last, version))
            exists = False
        elif step == "recreate" and not exists:
            incarnation += 1
            records.append(pod("p", version, owner=f"o{version % 3}", uid=f"u{incarnation}"))
            exists = True
        elif exists:
            records.append(last)
    return records


@given(steps=history, size=st.integers(1, 5), data=st.data())
def test_invariant_2_duplicates_late_and_missing_records_lead_to_the_newest_state(
    program: Program, steps: list[str], size: int, data: st.DataObject
) -> None:
    records = told(steps)
    newest = records[-1]
    noise = data.draw(st.lists(st.sampled_from(records), max_size=10))
    kept = [record for record in records[:-1] if data.draw(st.booleans())]
    delivered = data.draw(st.permutations([*kept, *noise, newest]))
    state = State(program, "webs", PARTITIONS)
    for start in range(0, len(delivered), size):
        fold(state, *delivered[start : start + size], first=start + 1)
    if isinstance(newest, ObjectDeleted):
        assert state.objects == {}
        assert state.tombstones["pods/default/p"].version == newest.version
        assert not entries_of(state)
    else:
        [row] = state.objects.values()
        assert (row.object, row.uid, row.version) == ("pods/default/p", newest.uid, newest.version)
        assert list(entries_of(state)) == [under(f"o{newest.version % 3}")]


def test_what_a_list_repeats_is_seen_again_under_the_sequence_of_the_list(program: Program) -> None:
    begun, _ = lists_done(PODS, 9)
    same, state = pod("p", 1, owner="o"), State(program, "webs", PARTITIONS)
    assert fold(state, same, begun, same).objects["pods/default/p"].sequence == 3
    twice, key = fold(State(program, "webs", PARTITIONS), same, same), ("webs/images", under("o"))
    assert (twice.keys[key], twice.changed_by[key]) == (1, {1})
    again = fold(state, begun, same, first=4)
    assert again.seen_again == {"pods/default/p": 5}
    assert again.objects == {}


OWNERS: Final = {f"!{under('o')}", '!["example.com","Web","","o"]', '!["","Pod","default","uid-p"]'}
"""Under which an index by owner says that it fails for the pod: what may own it, and itself."""


def test_an_index_that_raises_keeps_its_entries_and_says_so_under_their_keys_and_those_of_owners(
    program: Program,
) -> None:
    state = State(program, "webs", PARTITIONS)
    fold(state, pod("p", 1, owner="o"))
    changes = fold(state, without_image("p", 2), first=2)
    entries = entries_of(state)
    assert entries.keys() == {under("o"), *OWNERS}
    assert (entries[under("o")].value, entries[under("o")].error) == (b'["p","a"]', "")
    for key in OWNERS:
        assert "missing required field `image`" in entries[key].error
        assert msgspec.json.decode(entries[key].value) == {"object": "pods/default/p", "error": entries[key].error}
    assert changed(changes) == {key[1:] for key in OWNERS}
    still = fold(state, without_image("p", 3), first=3)
    assert (still.keys, still.entries) == ({}, {})


def test_an_error_keeps_no_entries_of_an_earlier_incarnation(program: Program) -> None:
    state = State(program, "webs", PARTITIONS)
    fold(state, pod("p", 1, owner="o"))
    fold(state, msgspec.structs.replace(without_image("p", 2), uid=Uid("another")), first=2)
    assert entries_of(state).keys() == OWNERS


def without_image(name: str, version: int) -> ObjectSeen:
    """A pod that the class of the index cannot be made of."""
    record = pod(name, version, owner="o")
    return msgspec.structs.replace(record, body=record.body.replace(b'"image":"a"', b'"picture":"a"'))


class PodSpec(Struct):
    containers: list[dict[str, str]]


class Pod(Resource, version="v1", plural="pods"):
    spec: PodSpec


def by_owner(pod: Pod) -> Iterator[tuple[Owner, str]]:
    if owner := pod.metadata.controlled_by(Web):
        yield owner, pod.spec.containers[0]["image"]


def by_name(pod: Pod) -> Iterator[tuple[str, str]]:
    yield pod.metadata.name, pod.spec.containers[0]["image"]


@pytest.mark.parametrize(
    ("function", "errors", "expected"),
    [
        (by_owner, "hold", OWNERS),
        (by_owner, "block", {ERRORS}),
        (by_owner, "ignore", {ERRORS}),
        (by_name, "hold", {ERRORS}),
    ],
)
def test_an_object_that_an_index_has_nothing_of_is_noted_under_its_owners_or_as_left_out(
    function: Any, errors: OnError, expected: set[str]
) -> None:
    op = Operator("webs")
    op.index(errors=errors)(function)
    state = State(Program([op]), "webs", PARTITIONS)
    keys = {key[1:] or ERRORS for key in expected}
    assert changed(fold(state, without_image("p", 1))) == keys
    assert entries_of(state).keys() == expected
    assert changed(fold(state, without_image("p", 2), first=2)) == set()
    mended = fold(state, pod("p", 3, owner="o"), first=3)
    assert changed(mended) == keys | entries_of(state).keys()
    assert not entries_of(state).keys() & expected
    gone = State(Program([op]), "webs", PARTITIONS)
    fold(gone, without_image("p", 1))
    assert changed(fold(gone, deleted(pod("p", 1), 2), first=2)) == keys


def test_an_index_that_ignores_errors_keeps_entries_and_tells_nobody_who_reads_their_keys() -> None:
    op = Operator("webs")
    op.index(errors="ignore")(by_name)
    index = Program([op]).indices["webs/by_name"]
    prior = index_entries(index, pod("p", 1).body, (), "pods/default/p")
    *kept, failure = index_entries(index, without_image("p", 2).body, prior, "pods/default/p")
    assert (kept, failure.key) == (prior, ERRORS)


def test_who_names_many_owners_is_told_to_the_controller_and_as_many_more() -> None:
    op = Operator("webs")
    op.index(by_owner)
    one = msgspec.json.decode(without_image("p", 1).body)
    [reference] = one["metadata"]["ownerReferences"]
    others = [{**reference, "uid": f"u{n}", "controller": False} for n in range(1_000)]
    one["metadata"]["ownerReferences"] = [*others, reference]
    found = index_entries(Program([op]).indices["webs/by_owner"], msgspec.json.encode(one), (), "pods/default/p")
    assert len(found) == 1 + 2 * MOST_OWNERS
    assert f"!{under('o')}" in {entry.key for entry in found}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([({}, 1)], "TypeError: key {} is a dict"),
        ([("k" * 1025, 1)], "ValueError: key of 1027 bytes"),
        ([("k", object())], "TypeError: Encoding objects of type object"),
        ([("k", "\ud800")], "UnicodeEncodeError"),
        ([("k", 1)] * 10_002, "10,002 entries of one object, where max_entries=10000 of index poison allows no more"),
        ({str(n): n for n in range(10_001)}, "10,001 entries of one object"),
        (["k"], "TypeError: index poison gave 'k'"),
        (RuntimeError("a\0b\ud800" + "x" * 5000), "RuntimeError: a\\0b\\ud800xxx"),
        (Unspeakable(), "Unspeakable: (its message cannot be read)"),
    ],
)
def test_invariant_14_whatever_an_index_gives_or_raises_is_a_message_that_can_be_stored(
    pairs: Any, expected: str
) -> None:
    op = Operator("webs")

    @op.index
    def poison(web: Web) -> Iterator[tuple[str, int]]:
        if isinstance(pairs, Exception):
            raise pairs
        yield from pairs.items() if isinstance(pairs, dict) else pairs

    name = "webs.example.com/default/w"
    [entry] = index_entries(Program([op]).indices["webs/poison"], web("w", 1).body, (), name, None)
    assert entry.key == ERRORS
    assert entry.error.startswith(expected)
    assert len(entry.error.encode()) < 2000
    assert "\0" not in entry.error


def test_an_index_takes_as_many_entries_of_one_object_as_it_says() -> None:
    op = Operator("webs")

    @op.index(max_entries=2)
    def twice(web: Web) -> Iterator[tuple[str, int]]:
        yield from [("k", 1), ("k", 2), ("other", 3)][: 1 + len(web.metadata.name)]

    index = Program([op]).indices["webs/twice"]
    few = index_entries(index, web("w", 1).body, (), "webs.example.com/default/w", None)
    assert [(entry.key, entry.ordinal, entry.value) for entry in few] == [('"k"', 0, b"1"), ('"k"', 1, b"2")]
    *kept, failure = index_entries(index, web("many", 2).body, few, "webs.example.com/default/many", None)
    assert kept == few
    assert failure.key == '!"k"'
    assert failure.error == "3 entries of one object, where max_entries=2 of index twice allows no more"


def test_the_options_of_an_index_are_part_of_its_fingerprint() -> None:
    def names(web: Web) -> Iterator[tuple[str, int]]:
        yield web.metadata.name, 1

    options: list[dict[str, Any]] = [{}, {"errors": "ignore"}, {"expires": timedelta(days=1)}, {"max_entries": 9}]
    fingerprints = set[str]()
    for each in options:
        op = Operator("webs")
        op.index(**each)(names)
        fingerprints.add(op.indices["names"].fingerprint)
    assert len(fingerprints) == len(options)


def test_a_parent_that_is_left_out_loses_its_level_once() -> None:
    """Each later record of it costs nothing more."""
    op = Operator("webs")

    @op.view(labels={"app": "web"})
    def named(web: Web) -> Level[str]:
        return Level(desired="", actual=web.metadata.name)

    state = State(Program([op]), "webs", PARTITIONS)
    level = ("webs/named", "webs.example.com/default/shop")
    gone = [fold(state, web("shop", version), first=version).gone for version in (1, 2, 3)]
    assert gone == [{level}, set(), set()]
    evaluated = LevelRow(
        view=level[0], parent=level[1], partition=0, parent_uid="uid-shop", status="in_sync", inputs="x"
    )
    state.levels[level] = evaluated
    assert fold(state, web("shop", 4), first=4).gone == {level}
