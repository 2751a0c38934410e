"""Differences of which only the hashes of values are known."""

from datetime import UTC, datetime

import msgspec

from levelog_cli.printing.planned import plan_lines
from levelog_history.differences import differences
from levelog_replay.planning import LevelChange, Planned, PlannedLevel
from levelog_store.rows import Verdict

ONE, OTHER = (f"hmac-sha256:{digit * 64}" for digit in "ab")


def settling(password: str, user: str = "me") -> Verdict:
    desired = msgspec.json.encode({"data": {"password": password, "user": user}})
    return Verdict(status="settling", desired=desired)


def test_a_hash_that_differs_is_told_as_another_value_and_one_that_comes_or_goes_as_it_is() -> None:
    [changed] = differences({"data": {"password": ONE}}, {"data": {"password": OTHER}})
    assert str(changed) == "data.password: another redacted value"
    [shown] = differences({"data": {"password": ONE}}, {"data": {"password": "clear"}})
    assert str(shown).endswith('-> "clear"')


def planned(before: Verdict, after: Verdict) -> str:
    change = LevelChange(view="vaults/password", parent="main", before=before, after=after)
    level = PlannedLevel(change=change, writes=(), is_due=False, is_later=False)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    plan = Planned(at=at, levels=[level], counts={}, dropped=0, waiting=[], unlisted={})
    return " ".join(" ".join(plan_lines(plan)).split())


def test_a_plan_says_that_redacted_values_alone_are_others() -> None:
    text = planned(settling(ONE), settling(OTHER))
    assert "settling as before, with another desired, in redacted values alone" in text
    assert "data.password: another redacted value" in text
    assert "redacted values alone" not in planned(settling(ONE), settling(OTHER, user="you"))
