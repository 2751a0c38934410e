"""State: what the log shows, in memory, however the records came; and which levels are asked for, in which order."""

import sys
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog import Index, Level, Manifest, Operator
from levelog.handlers.indexers import applied_place, call_entry
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.objects import Version
from levelog_base.wire.projection import Applied
from levelog_base.wire.records import (
    BookmarkNoted,
    CallNoted,
    ContactLost,
    LoggedRecord,
    ObjectDeleted,
    ObjectSeen,
    ReceiptNoted,
)
from levelog_base.wire.subjects import partition_of
from levelog_processors.decide.evaluating import Evaluator
from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.restoring import left_behind
from levelog_processors.state.buckets import Buckets
from levelog_processors.state.outdated import as_left
from levelog_processors.state.state import State
from levelog_processors.state.wakes import Wakes
from levelog_processors.tables import SqlTables
from levelog_store.connect.database import Database
from levelog_store.decide.decisions import Decided, PendingWake
from levelog_store.fold.changes import Wake
from levelog_store.fold.levelwrites import ASKED_FOR
from levelog_store.owners.handlers import Backfill
from levelog_store.rows import ERRORS, Entry, LevelRow, Scope, StoredObject
from rigs.histories import CHANGES, PARTITIONS, Changes, Web, images, told
from rigs.intents import intent
from rigs.kinds import ConfigMap
from rigs.run.examples import examples
from rigs.webs import NOON, WEBS, deleted, lists_done, logged, pod, receipt, web

MINUTE = timedelta(minutes=1)
ALIKE, SHOP = "webs/alike", "webs.example.com/default/shop"
op = Operator("webs")
op.index(images)


@op.effect
def page(request: str) -> str:
    return request


@op.view
def alike(web: Web, images: Index[str, int]) -> Level[list[int]]:
    return Level(desired=[], actual=list(images[web.spec.image]))


def state() -> State:
    return State(Program([op]), "webs", PARTITIONS)


@pytest.mark.parametrize("record", [web("shop", 6), deleted(web("shop", 5), 6)])
async def test_a_body_that_is_read_undoes_nothing_that_was_folded_meanwhile(record: ObjectSeen | ObjectDeleted) -> None:
    program = Program([op])
    of = State(program, "webs", PARTITIONS, most_bodies=0)
    fold(of, logged([web("shop", 5)]))
    name = "webs.example.com/default/shop"
    before = of.objects[name]
    of.unwritten.objects.clear()
    of.let_go()
    assert of.lacking([name])

    class FoldedBeside(SqlTables):
        async def objects(self, names: Collection[str]) -> dict[str, StoredObject]:
            fold(of, logged([record], first=9))
            return {name: before}

    evaluator = Evaluator(FoldedBeside(cast("Database", None), cast("Scope", None)), program, Redactor())
    assert (await evaluator.whole(of, [name]))[name].body == before.body
    now = of.objects.get(name)
    assert now is None if isinstance(record, ObjectDeleted) else now is not None and now.version == 6


def fold(into: State, records: Sequence[LoggedRecord]) -> None:
    for part in parts(records):
        into.apply(into.fold(part))


def shown(of: State) -> dict[str, Any]:
    """All that tells of objects."""
    return {
        "objects": of.objects,
        "tombstones": of.tombstones,
        "unreadable": of.unreadable,
        "lists": of.syncs,
        "folded": of.folded_to,
        "entries": {(name, entry) for name, held in of.buckets.by_object.items() for entry in held.values()},
        "values": of.buckets.by_key,
        "asked": set(of.wakes.pending),
    }


@settings(max_examples=examples(60), deadline=None)
@given(CHANGES, st.lists(st.integers(0, 60), max_size=5))
def test_invariant_20_the_state_is_the_same_however_the_records_were_batched(
    changes: Changes, cuts: Sequence[int]
) -> None:
    records = told(changes)
    one, other = state(), state()
    for each in records:
        fold(one, [each])
    for begin, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]):
        fold(other, records[begin:end])
    assert shown(one) == shown(other)


def away_and_back() -> list[Any]:
    begun, ended = lists_done(WEBS, 1)
    lost = ContactLost(resource=WEBS, error="away", time=NOON)
    return [begun, ended, lost, BookmarkNoted(resource=WEBS, version=Version(2), time=NOON), lost]


def called(uid: str) -> ReceiptNoted:
    """A receipt of a call for the shop."""
    row = intent("page.effects/default/shop", view=ALIKE, parent_uid=uid, verb="call", key=uid)
    return replace(receipt(row), call=CallNoted(request="a", result="b"))


FIRST, NEXT = web("shop", 1, uid="first"), web("shop", 9, uid="next")


@pytest.mark.parametrize(
    ("records", "remembered"),
    [
        (away_and_back(), set[str]()),
        ([FIRST, called("first")], {"first"}),
        ([called("first"), FIRST], {"first"}),
        ([FIRST, called("first"), deleted(FIRST, 2), called("first")], set[str]()),
        ([FIRST, called("first"), NEXT, called("next")], {"next"}),
        ([FIRST, called("first"), NEXT, called("first")], {"first"}),
        ([FIRST, called("first"), called("next"), NEXT], {"next"}),
        ([FIRST, called("first"), deleted(FIRST, 2), NEXT, called("next")], {"next"}),
    ],
)
def test_invariant_20_what_undoes_what_came_before_does_so_within_a_batch(
    records: Sequence[Any], remembered: Collection[str]
) -> None:
    told = logged(records, partitions=PARTITIONS, partition=partition_of(web("shop", 1).key, PARTITIONS))
    one = state()
    for end, each in enumerate(told, 1):
        other = state()
        fold(one, [each])
        fold(other, told[:end])
        assert {**shown(one), "asked": ()} == {**shown(other), "asked": ()}, records[end - 1]
    assert {key for index, key in one.buckets.by_key if index == "webs/page"} == {f'"{uid}"' for uid in remembered}


def test_any_number_of_changes_of_one_object_may_be_in_a_batch_that_its_end_is_handled_of() -> None:
    ending = Operator("webs")

    @ending.on.delete(Web)
    def end(web: Web) -> None:
        """Every record of such a Web is looked at, since one may end it."""

    of, most = State(Program([ending]), "webs", PARTITIONS), 2 * sys.getrecursionlimit()
    fold(of, logged([web("shop", version) for version in range(1, most + 1)], partitions=PARTITIONS))
    assert of.objects[SHOP].version == most


@pytest.mark.parametrize("takes", [State.apply, State.recall])
def test_what_was_applied_for_a_parent_made_anew_is_remembered_also_if_one_batch_tells_both(
    takes: Callable[[State, Any], Any],
) -> None:
    keeping = Operator("webs")

    @keeping.children(Web, of=ConfigMap)
    def kept(web: Web) -> Manifest:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": web.metadata.name}}

    of = State(Program([keeping]), "webs", PARTITIONS)
    fold(of, logged([FIRST], partitions=PARTITIONS))
    row = intent("configmaps/default/shop", view="webs/kept", parent_uid="next", verb="apply")
    done = replace(receipt(row), applied=Applied(fields={}))
    partition = partition_of(NEXT.key, PARTITIONS)
    takes(of, of.fold(logged([NEXT, done], first=2, partitions=PARTITIONS, partition=partition)))
    assert of.buckets.under(applied_place("webs/kept", SHOP))


def asked(wakes: Wakes, *levels: str) -> None:
    for number, name in enumerate(levels, 1):
        wakes.ask(("webs/alike", f"webs.example.com/{name}"), Wake(0, (number,)))


def names(found: Sequence[PendingWake]) -> list[str]:
    return [wake.parent.partition("/")[2] for wake in found]


def everything(_: PendingWake) -> bool:
    return True


def test_namespaces_take_turns_and_each_has_its_oldest_first() -> None:
    wakes = Wakes()
    asked(wakes, "noisy/a", "noisy/b", "noisy/c", "quiet/d")
    assert names(wakes.due(NOON, everything, 2)) == ["noisy/a", "quiet/d"]
    assert sorted(names(wakes.due(NOON, everything, 9))) == ["noisy/a", "noisy/b", "noisy/c", "quiet/d"]


def test_levels_that_are_not_meant_take_no_place() -> None:
    wakes = Wakes()
    asked(wakes, "noisy/a", "noisy/b")
    only: Callable[[PendingWake], bool] = lambda wake: wake.parent.endswith("b")  # noqa: E731
    assert names(wakes.due(NOON, only, 1)) == ["noisy/b"]


def decided(wake: PendingWake, due_at: datetime | None) -> Decided:
    level = LevelRow(
        view=wake.view, parent=wake.parent, partition=0, parent_uid="", status="in_sync", evaluated_at=NOON
    )
    return Decided(wake=wake, level=level, due_at=due_at)


def test_a_decision_answers_what_had_asked_and_nothing_later() -> None:
    wakes = Wakes()
    asked(wakes, "a/b")
    (wake,) = wakes.due(NOON, everything, 9)
    asked(wakes, "a/b")
    wakes.conclude(decided(wake, None))
    (again,) = wakes.due(NOON, everything, 9)
    wakes.conclude(decided(again, None))
    assert wakes.due(NOON, everything, 9) == []


def test_a_level_that_is_put_off_is_due_at_its_time_or_once_a_record_asks() -> None:
    wakes = Wakes()
    asked(wakes, "a/b")
    (wake,) = wakes.due(NOON, everything, 9)
    wakes.conclude(decided(wake, NOON + MINUTE))
    assert wakes.due(NOON, everything, 9) == []
    assert wakes.next_due == NOON + MINUTE
    assert names(wakes.due(NOON + MINUTE, everything, 9)) == ["a/b"]
    asked(wakes, "a/b")
    assert wakes.next_due is None
    assert names(wakes.due(NOON, everything, 9)) == ["a/b"]


def test_what_a_person_asks_for_comes_before_all_whose_time_has_come() -> None:
    wakes = Wakes()
    at = {"a/b": MINUTE, "a/c": 0 * MINUTE, "a/d": 9 * MINUTE, "a/e": 3 * MINUTE}
    asked(wakes, *at)
    for wake in wakes.due(NOON, everything, 9):
        wakes.conclude(decided(wake, NOON + at[names([wake])[0]]))
    assert names(wakes.due(NOON + 5 * MINUTE, everything, 1)) == ["a/c"]
    assert wakes.hasten(("webs/alike", "webs.example.com/a/d"), ASKED_FOR)
    assert names(wakes.due(NOON + 5 * MINUTE, everything, 9)) == ["a/d", "a/c", "a/b", "a/e"]
    assert names(wakes.due(NOON, everything, 9)) == ["a/d", "a/c"]  # the clock was set back


def test_an_entry_that_was_given_anew_does_not_end_at_its_older_time() -> None:
    buckets = Buckets()
    buckets.put("pods/a/b", Entry("i", "k", 0, b"1", "", NOON))
    buckets.put("pods/a/b", Entry("i", "k", 0, b"1", "", NOON + MINUTE))
    assert buckets.expired(NOON) == []
    assert [entry.expires_at for _, entry in buckets.expired(NOON + MINUTE)] == [NOON + MINUTE]
    assert buckets.next_expiry_after(NOON) == NOON + MINUTE


def receipted(round_: int) -> LoggedRecord:
    """A receipt of a write that a level of the shop has decided on."""
    row = intent("pods/default/x", view=ALIKE, round=round_)
    (record,) = logged(
        [receipt(row)], first=40, partitions=PARTITIONS, partition=partition_of(web("shop", 1).key, PARTITIONS)
    )
    return record


def test_invariant_21_what_was_written_for_a_parent_that_is_gone_is_settled() -> None:
    cases: Sequence[tuple[Sequence[Any], str]] = (
        ([], "settled"),
        ([web("shop", 1, uid="another")], "settled"),
        ([web("shop", 1)], "written"),
    )
    for there, expected in cases:
        of = state()
        fold(of, logged(there, partitions=PARTITIONS))
        fold(of, [receipted(1)])
        assert [left for _, left in of.ends.receipts] == [expected]


def test_a_receipt_raises_the_round_of_its_level_whoever_holds_its_claim_now() -> None:
    """What it tells of took place under its key, which no later round may use again."""
    of = state()
    fold(of, logged([web("shop", 1)], partitions=PARTITIONS))
    known = LevelRow(view=ALIKE, parent=SHOP, partition=0, parent_uid="uid-shop", status="settling", round=3)
    of.levels[ALIKE, SHOP] = known
    for round_, expected in ((2, 3), (5, 5)):
        fold(of, [receipted(round_)])
        assert of.levels[ALIKE, SHOP].round == of.ends.levels.get((ALIKE, SHOP), known).round == expected
    del of.levels[ALIKE, SHOP]
    fold(of, [receipted(7)])
    assert [row.round for row in of.ends.unmade.values()] == [7]


def test_a_wake_says_whether_it_only_ends_a_write_of_the_level() -> None:
    applied = intent("pods/default/x", view=ALIKE, verb="apply")
    echo, told = pod("x", 7, owner="uid-shop"), receipt(applied, version=7)
    cases: Sequence[tuple[Sequence[Sequence[Any]], Sequence[tuple[bool, bool]]]] = (
        ([[echo], [told]], [(True, True), (False, True)]),
        ([[told], [echo]], [(False, True), (False, True)]),
        ([[told, echo]], [(False, True)]),
        ([[receipt(applied, version=7, outcome="conflict")]], [(False, False)]),
        ([[web("shop", 2, replicas=9)]], [(False, False)]),
        ([[web("shop", 2, replicas=9), echo]], [(False, False)]),
        ([[told, web("shop", 2, replicas=9)]], [(False, False)]),
    )
    partition = partition_of(web("shop", 1).key, PARTITIONS)
    for batches, expected in cases:
        of, first = state(), 2
        fold(of, logged([web("shop", 1)], partitions=PARTITIONS))
        of.levels[ALIKE, SHOP] = LevelRow(
            view=ALIKE, parent=SHOP, partition=partition, parent_uid="uid-shop", status="settling", round=1
        )
        of.writes.begin(applied["key"], applied["target"], (ALIKE, SHOP), partition)
        found: list[tuple[bool, bool]] = []
        for batch in batches:
            wakes = of.apply(of.fold(logged(batch, first=first, partitions=PARTITIONS, partition=partition)))
            found += [(wake.is_echo, wake.is_end) for level, wake in wakes.items() if level == (ALIKE, SHOP)]
            first += len(batch)
        assert found == expected, batches


@pytest.mark.parametrize(
    ("status", "drift", "is_decided_again"),
    [("drifting", b"{}", True), ("settling", None, True), ("in_sync", None, False), ("deleting", b"{}", False)],
)
def test_a_changed_reconcile_function_decides_again_on_levels_that_drift_or_settle(
    status: str, drift: bytes | None, is_decided_again: bool
) -> None:
    row = LevelRow(
        view=ALIKE, parent=SHOP, partition=1, parent_uid="u", status=status, drift=drift, decided_inputs="x", attempts=3
    )
    left = as_left(row, {(ALIKE, 1): "reconcile"})
    assert (left.decided_inputs, left.attempts) == (("", 0) if is_decided_again else ("x", 3))


def test_an_outdated_level_whose_parent_the_tables_lack_is_asked_for_as_its_record_comes_again() -> None:
    of, records = state(), logged([web("shop", 1)], partitions=PARTITIONS)
    of.outdated.add((ALIKE, SHOP), records[0].partition)
    of.recall(of.fold(records, counts_rounds=False))
    assert (ALIKE, SHOP) in of.wakes.pending


def test_code_that_others_replaced_computes_nothing_of_theirs() -> None:
    of = state()
    fold(of, logged([web("shop", 1)], partitions=PARTITIONS))
    partition, own = of.objects[SHOP].partition, "webs/images"
    jobs = [
        Backfill(name=name, partition=partition, kind="index", resource="webs.example.com")
        for name in ("webs/theirs", own)
    ]
    assert [job.name for job, _ in left_behind(of, jobs)] == [own]


@pytest.mark.parametrize("name", [SHOP, call_entry(SHOP, "page")])
@pytest.mark.parametrize("key", ['"a"', f'{ERRORS}"a"'])
def test_nothing_is_held_of_entries_that_are_removed(name: str, key: str) -> None:
    buckets = Buckets()
    buckets.put(name, Entry("webs/images", key, 0, b"1"))
    buckets.remove(name, ("webs/images", key, 0))
    assert buckets == Buckets()
