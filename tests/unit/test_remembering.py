"""What was applied of children, out of receipts."""

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from levelog.wire.objects import ObjectKey, Partition, Sequence, Uid
from levelog.wire.projection import Applied
from levelog.wire.records import LoggedRecord, ReceiptNoted
from levelog_processors.fold.rules import Fold
from levelog_processors.program import Program
from levelog_store.fold.changes import Changes, PriorState
from rigs.stacks import op

PROGRAM = Program([op])
INDEX, KEY, TARGET = "shop/@applied/stack", '"shops.example.com/default/shop"', "@configmaps/default/shop"


def receipt(
    verb: str = "apply",
    outcome: Literal["written", "unchanged", "gone", "failed"] = "written",
    applied: Applied | None = None,
    **given: Any,
) -> ReceiptNoted:
    values: dict[str, Any] = {
        "application": "shop",
        "key": "k",
        "view": "shop/stack",
        "parent": ObjectKey.parse("shops.example.com/default/shop"),
        "parent_uid": Uid("parent"),
        "round": 1,
        "verb": verb,
        "target": ObjectKey.parse("configmaps/default/shop"),
        "outcome": outcome,
        "target_uid": "child",
        "time": datetime(2026, 1, 1, tzinfo=UTC),
        "applied": applied,
    }
    return ReceiptNoted(**(values | given))


def folded(*receipts: ReceiptNoted) -> Changes:
    records = [
        LoggedRecord(sequence=Sequence(n), partition=Partition(2), record_id=str(n), record=record)
        for n, record in enumerate(receipts, start=1)
    ]
    return Fold(PROGRAM, "shop", PriorState()).records(records)


FIRST, SECOND = Applied(fields={"data": None}), Applied(fields={"data": None}, changes={"data.x": "d"})


def test_the_last_receipt_of_a_target_is_what_is_remembered_under_its_parent() -> None:
    changes = folded(receipt(applied=FIRST), receipt(applied=SECOND, outcome="unchanged"))
    [(name, entry)] = changes.entries_written
    assert (name, entry.index, entry.key, entry.ordinal) == (TARGET, INDEX, KEY, 0)
    assert entry.value == (
        b'{"applied":{"changes":{"data.x":"d"},"fields":{"data":null}},"parent_uid":"parent","uid":"child"}'
    )
    assert changes.keys[INDEX, KEY] == 2


@pytest.mark.parametrize("outcome", ["written", "gone"])
def test_with_a_child_that_is_deleted_what_was_applied_is_forgotten(outcome: Literal["written", "gone"]) -> None:
    changes = folded(receipt(applied=FIRST), receipt("delete", outcome))
    assert changes.entries_written == []
    assert changes.entries_removed == [(INDEX, KEY, TARGET, 0)]
    assert changes.keys[INDEX, KEY] == 2


def test_a_receipt_that_says_nothing_of_it_changes_nothing() -> None:
    for each in (
        receipt(),
        receipt("delete", "failed"),
        receipt(applied=FIRST, view="shop/other"),
        receipt(applied=FIRST, application="other"),
    ):
        changes = folded(each)
        assert (changes.entries_written, changes.entries_removed, changes.keys) == ([], [], {})
