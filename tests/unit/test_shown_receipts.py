"""What State settles by itself: writes that the log shows by the time that SQL is told of their receipts."""

from typing import Any, Final

import pytest

from levelog_processors.fold.batches import parts
from levelog_processors.program import Program
from levelog_processors.state.state import State
from rigs.intents import intent
from rigs.shown import shown_webs
from rigs.webs import deleted, logged, pod, receipt, web

APPLY: Final = intent("pods/default/a", verb="apply")
DELETE: Final = intent("pods/default/a", verb="delete")
ENDING: Final = pod("a", 7, deletionTimestamp="2026-01-01T12:00:00Z")


@pytest.mark.parametrize("are_together", [True, False], ids=["folded at once", "one by one"])
@pytest.mark.parametrize(
    ("told", "is_shown"),
    [
        ([receipt(APPLY, version=7)], False),
        ([receipt(APPLY, version=7), pod("a", 7)], True),
        ([pod("a", 7), receipt(APPLY, version=7)], True),
        ([receipt(APPLY, version=7), pod("a", 9)], True),
        ([receipt(APPLY, version=7), pod("a", 6)], False),
        ([receipt(APPLY, version=7), pod("a", 7, uid="another")], False),
        ([receipt(APPLY, version=7), pod("b", 7)], False),
        ([receipt(APPLY, version=7, outcome="conflict"), pod("a", 7)], False),
        ([receipt(APPLY, version=7, outcome="unchanged"), pod("a", 7)], False),
        ([receipt(APPLY, outcome="failed"), pod("a", 7)], False),
        ([receipt(APPLY, version=7), receipt(APPLY, version=9), pod("a", 8)], False),
        ([receipt(APPLY, version=9), receipt(APPLY, version=7), pod("a", 8)], False),
        ([receipt(APPLY, version=7), receipt(APPLY, version=9), pod("a", 9)], True),
        ([receipt(DELETE, version=7), pod("a", 7)], False),
        ([receipt(DELETE, version=7), ENDING], True),
        ([receipt(DELETE, version=7), deleted(pod("a", 6), 7)], True),
        ([receipt(DELETE, version=7), deleted(pod("b", 6), 7)], False),
    ],
)
def test_a_write_is_settled_with_its_receipt_if_both_are_folded(
    told: list[Any], is_shown: bool, are_together: bool
) -> None:
    state = State(Program([shown_webs("webs")]), "webs", 4)
    records = logged([web("shop", 1), *told])
    for batch in [records] if are_together else [[each] for each in records]:
        for part in parts(batch):
            state.apply(state.fold(part))
    assert {is_shown} == {left == "settled" for _, left in state.ends.receipts}
