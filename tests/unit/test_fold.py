from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Level, Operator, Owner, Resource, Struct
from levelog.handlers.indexers import OnError
from levelog.wire.objects import Application, Uid
from levelog.wire.records import ObjectDeleted, ObjectSeen
from levelog_cli.loading import load_operators
from levelog_processors.fold.entries import MOST_OWNERS, canonical_key, index_entries
from levelog_processors.fold.rules import Fold, parent_inputs
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, PriorState
from levelog_store.rows import ERRORS, Entry, LevelRow
from rigs.kinds import Web
from rigs.webs import PODS, deleted, lists_done, logged, pod, web

WEBS = Path(__file__).parents[2] / "examples/webs/webs.py"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(load_operators([WEBS]))


class Tables:
    """What the folds of one batch after the other leave, in memory."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = {}
        self.prior = PriorState(entries_of=lambda name: self.entries.get(name, ()))

    def take(self, changes: Changes) -> None:
        for name, row in changes.objects.items():
            self.prior.objects[name] = row
        for name, tombstone in changes.tombstones.items():
            self.prior.objects.pop(name, None)
            self.prior.tombstones[name] = tombstone
        for name in changes.tombstones_lifted:
            del self.prior.tombstones[name]
        for index, key, name, ordinal in changes.entries_removed:
            entries = self.entries[name]
            self.entries[name] = [e for e in entries if (e.index, e.key, e.ordinal) != (index, key, ordinal)]
        for name, entry in changes.entries_written:
            others = [e for e in self.entries.get(name, []) if (e.key, e.ordinal) != (entry.key, entry.ordinal)]
            self.entries[name] = [*others, entry]
        self.entries = {name: entries for name, entries in self.entries.items() if entries}

    def evaluated(self, view: str, parent: str, uid: str, inputs: str) -> None:
        self.prior.levels[view, parent] = LevelRow(
            view=view, parent=parent, partition=0, parent_uid=uid, status="in_sync", inputs=inputs
        )


def fold_in_batches(program: Program, records: Sequence[ObjectSeen | ObjectDeleted], size: int) -> Tables:
    tables = Tables()
    placed = logged(records)
    for start in range(0, len(placed), size):
        tables.take(Fold(program, "webs", tables.prior).records(placed[start : start + size]))
    return tables


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
    tables = fold_in_batches(program, delivered, size)
    if isinstance(newest, ObjectDeleted):
        assert tables.prior.objects == {}
        assert tables.prior.tombstones["pods/default/p"].version == newest.version
        assert not tables.entries.get("pods/default/p")
    else:
        [row] = tables.prior.objects.values()
        assert (row.object, row.uid, row.version) == ("pods/default/p", newest.uid, newest.version)
        owners = [entry.key for entry in tables.entries["pods/default/p"]]
        assert owners == [under(f"o{newest.version % 3}")]


@given(steps=history, size=st.integers(1, 5))
def test_invariant_3_the_size_of_a_batch_makes_no_difference(program: Program, steps: list[str], size: int) -> None:
    records = told(steps)
    one, other = (fold_in_batches(program, records, most) for most in (size, len(records)))
    assert (one.prior.objects, one.prior.tombstones) == (other.prior.objects, other.prior.tombstones)
    assert one.entries == other.entries


def test_what_a_list_repeats_is_seen_again_under_the_sequence_of_the_list(program: Program) -> None:
    begun, _ = lists_done(PODS, 9)
    same = pod("p", 1, owner="o")
    changes = Fold(program, "webs", PriorState()).records(logged([same, begun, same]))
    assert changes.objects["pods/default/p"].sequence == 3
    tables = Tables()
    tables.take(changes)
    again = Fold(program, "webs", tables.prior).records(logged([begun, same], first=4))
    assert again.seen_again == {"pods/default/p": 5}
    assert again.objects == {}


def test_an_owner_edit_changes_the_old_key_and_the_new_one(program: Program) -> None:
    tables = Tables()
    tables.take(Fold(program, "webs", tables.prior).records(logged([pod("p", 1, owner="old")])))
    changes = Fold(program, "webs", tables.prior).records(logged([pod("p", 2, owner="new")], first=7))
    changed = {key for (_, key) in changes.keys if not key.startswith("*")}
    assert changed == {under("old"), under("new")}
    assert set(changes.keys.values()) == {7}


def test_a_pod_that_loses_the_label_leaves_the_index(program: Program) -> None:
    tables = Tables()
    tables.take(Fold(program, "webs", tables.prior).records(logged([pod("p", 1, owner="o")])))
    changes = Fold(program, "webs", tables.prior).records(logged([pod("p", 2, owner="o", labels={})]))
    assert [removed[1] for removed in changes.entries_removed] == [under("o")]


def test_a_change_that_no_handler_reads_changes_no_key_and_wakes_nothing(program: Program) -> None:
    tables = Tables()
    first = Fold(program, "webs", tables.prior).records(logged([web("w", 1), pod("p", 2, owner="uid-w")]))
    tables.take(first)
    assert list(first.wakes) == [("webs/pods", "webs.example.com/default/w")]
    inputs = parent_inputs(program.views["webs/pods"], web("w", 1).body, None)
    assert inputs is not None
    tables.evaluated("webs/pods", "webs.example.com/default/w", "uid-w", inputs)
    noise = [
        web("w", 3, annotations={"note": "1"}, labels={"x": "y"}),
        pod("p", 4, owner="uid-w", annotations={"note": "2"}),
    ]
    changes = Fold(program, "webs", tables.prior).records(logged(noise, first=3))
    assert len(changes.objects) == 2
    assert changes.keys == {}
    assert changes.wakes == {}


def test_a_record_that_is_not_json_is_skipped_and_the_checkpoint_goes_on(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    broken = pod("p", 2)
    changes = Fold(program, "webs", PriorState()).records(
        logged(
            [
                ObjectSeen(
                    key=broken.key, uid=broken.uid, version=broken.version, origin="watch", time=broken.time, body=b"{"
                )
            ]
        )
    )
    assert changes.objects == {}
    assert [point.sequence for point in changes.checkpoints.values()] == [1]
    assert "pods/default/p cannot be read and is skipped: not the JSON of an object" in caplog.text


OWNERS: Final = {f"!{under('o')}", '!["example.com","Web","","o"]', '!["","Pod","default","uid-p"]'}
"""Under which an index by owner says that it fails for the pod: what may own it, and itself."""


def test_an_index_that_raises_keeps_its_entries_and_says_so_under_their_keys_and_those_of_owners(
    program: Program,
) -> None:
    tables = Tables()
    records = logged([pod("p", 1, owner="o"), without_image("p", 2)])
    tables.take(Fold(program, "webs", tables.prior).records(records[:1]))
    changes = Fold(program, "webs", tables.prior).records(records[1:])
    tables.take(changes)
    entries = {entry.key: entry for entry in tables.entries["pods/default/p"]}
    assert entries.keys() == {under("o"), *OWNERS}
    assert (entries[under("o")].value, entries[under("o")].error) == (b'["p","a"]', "")
    for key in OWNERS:
        assert "missing required field `image`" in entries[key].error
        assert msgspec.json.decode(entries[key].value) == {"object": "pods/default/p", "error": entries[key].error}
    assert {key for _, key in changes.keys if not key.startswith("*")} == {key[1:] for key in OWNERS}
    still = Fold(program, "webs", tables.prior).records(logged([without_image("p", 3)], first=3))
    assert (still.keys, still.entries_written, still.entries_removed) == ({}, [], [])


def test_an_error_keeps_no_entries_of_an_earlier_incarnation(program: Program) -> None:
    tables = Tables()
    again = msgspec.structs.replace(without_image("p", 2), uid=Uid("another"))
    records = logged([pod("p", 1, owner="o"), again])
    tables.take(Fold(program, "webs", tables.prior).records(records[:1]))
    changes = Fold(program, "webs", tables.prior).records(records[1:])
    assert {entry.key for _, entry in changes.entries_written} == OWNERS
    assert [key for _, key, _, _ in changes.entries_removed] == [under("o")]


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
    program, tables = Program([op]), Tables()
    keys = {key[1:] or ERRORS for key in expected}

    def folded(record: ObjectSeen | ObjectDeleted) -> Changes:
        return Fold(program, "webs", tables.prior).records(logged([record], first=record.version))

    def changed(changes: Changes) -> set[str]:
        return {key for _, key in changes.keys if not key.startswith("*")}

    changes = folded(without_image("p", 1))
    tables.take(changes)
    assert {entry.key for entry in tables.entries["pods/default/p"]} == expected
    assert changed(changes) == keys
    assert changed(folded(without_image("p", 2))) == set()
    mended = folded(pod("p", 3, owner="o"))
    assert {key for _, key, _, _ in mended.entries_removed} == expected
    assert changed(mended) == keys | {entry.key for _, entry in mended.entries_written}
    assert changed(folded(deleted(pod("p", 1), 4))) == keys


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

    program, tables = Program([op]), Tables()
    gone: list[set[tuple[str, str]]] = []
    for version in (1, 2, 3):
        changes = Fold(program, Application("webs"), tables.prior).records(logged([web("shop", version)]))
        tables.take(changes)
        gone.append(changes.gone)
    level = ("webs/named", "webs.example.com/default/shop")
    assert gone == [{level}, set(), set()]
    tables.evaluated(*level, "uid-shop", "as it was")
    changes = Fold(program, Application("webs"), tables.prior).records(logged([web("shop", 4)]))
    assert changes.gone == {level}


@pytest.fixture(scope="module")
def with_ends() -> Program:
    """Code with a handler for the end of pods."""
    op = Operator("webs")

    class Pod(Resource, version="v1", plural="pods"):
        pass

    @op.on.delete
    def gone(pod: Pod) -> None:
        pass

    return Program([op])


def ends(program: Program, records: Sequence[ObjectSeen | ObjectDeleted], size: int) -> set[str]:
    """The incarnations whose end folds of batches have seen; each has woken the view of its end."""
    tables, found = Tables(), set[str]()
    placed = logged(records)
    for start in range(0, len(placed), size):
        changes = Fold(program, "webs", tables.prior).records(placed[start : start + size])
        kept = {name for name in changes.objects if ":deleted/" in name}
        renamed = {str(each.deleted): each for each in changes.deletions}
        assert all(tables.prior.objects[each.object].uid == each.uid for each in renamed.values())
        assert {("webs/gone_deleted", name) for name in kept | renamed.keys()} <= changes.wakes.keys()
        found |= kept | renamed.keys()
        tables.take(changes)
    return found


@given(steps=history, size=st.integers(1, 5), data=st.data())
def test_invariant_15_each_incarnation_that_ends_is_kept_for_its_handlers_also_if_records_are_missing(
    with_ends: Program, steps: list[str], size: int, data: st.DataObject
) -> None:
    records = [record for record in told(steps) if data.draw(st.booleans())]
    living = {record.uid for record in records[-1:] if isinstance(record, ObjectSeen)}
    expected = {str(record.key.deleted(record.uid)) for record in records if record.uid not in living}
    assert ends(with_ends, records, size) == expected
