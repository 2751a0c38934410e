"""`levelog why` says how the levels stood that a view was given or looked up, where that is news."""

from datetime import UTC, datetime

from levelog.levels import LevelStatus
from levelog_history.explaining import LevelStatusChange, explain
from levelog_history.happenings import Happened
from levelog_store.decide.decisions import Basis, Decision
from rigs.pastdecisions import NONE, decision

WEB = "webs.example.com/default/one"


def made(ordinal: int, own: LevelStatus, others: dict[str, LevelStatus], *, is_called: bool = True) -> Decision:
    basis = Basis(level_statuses={"shops/webs": own}, others={WEB: others})
    told = {"ordinal": ordinal, "causes": NONE, "is_called": is_called, "basis": basis}
    return decision("shops/conditions", "shops.example.com/default/shop", ordinal, **told)


def test_a_decision_says_which_levels_stood_otherwise_than_at_the_one_before() -> None:
    rests = LevelStatus(status="in_sync")
    refused = LevelStatus(status="failed", reason="403 Forbidden", since=datetime(2026, 1, 1, tzinfo=UTC))
    past = [
        made(1, rests, {"shops/pods": rests}),
        made(2, rests, {}, is_called=False),
        made(3, rests, {"shops/pods": refused}),
        made(4, rests, {}),
    ]
    found = [each.level_statuses for each in explain(past, {}, Happened(entries={}, receipts={}, others={}))]
    name = f"shops/pods of {WEB}"
    assert found == [
        [
            LevelStatusChange(level=name, before="", after="in_sync"),
            LevelStatusChange(level="shops/webs", before="", after="in_sync"),
        ],
        [],
        [LevelStatusChange(level=name, before="in_sync", after="failed (403 Forbidden)")],
        [LevelStatusChange(level=name, before="failed (403 Forbidden)", after="")],
    ]
