"""Differences of which only the hashes of values are known."""

from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from levelog_cli.printing.planned import plan_lines
from levelog_history.differences import differences
from levelog_replay.comparing import Conclusion
from levelog_replay.planning import LevelChange, Planned, PlannedLevel
from levelog_store.decide.decisions import Asked
from levelog_store.rows import Verdict

ONE, OTHER = (f"hmac-sha256:{digit * 64}" for digit in "ab")


def concluded(password: str, user: str = "me") -> Conclusion:
    body = msgspec.json.encode({"data": {"password": password, "user": user}})
    intent = Asked(key=f"{password}{user}", verb="apply", target="secrets/default/main", body=body)
    return Conclusion(verdict=Verdict(status="settling", desired=body), keys=(intent.key,), intents=(intent,))


def test_a_hash_that_differs_is_told_as_another_value_and_one_that_comes_or_goes_as_it_is() -> None:
    [changed] = differences({"data": {"password": ONE}}, {"data": {"password": OTHER}})
    assert str(changed) == "data.password: another redacted value"
    [shown] = differences({"data": {"password": ONE}}, {"data": {"password": "clear"}})
    assert str(shown).endswith('-> "clear"')


def test_conclusions_that_differ_in_hashes_alone_are_told_apart_if_their_intents_are_known() -> None:
    one = concluded(ONE)
    assert one.differs_in_redacted_alone(concluded(OTHER))
    assert not one.differs_in_redacted_alone(one)
    assert not one.differs_in_redacted_alone(concluded(OTHER, user="you"))
    assert not one.differs_in_redacted_alone(concluded("clear"))
    assert not replace(one, intents=()).differs_in_redacted_alone(concluded(OTHER))
    failed = Verdict(status="failed", desired=one.verdict.desired)
    assert not one.differs_in_redacted_alone(replace(concluded(OTHER), verdict=failed))


def planned(before: Conclusion, after: Conclusion) -> str:
    change = LevelChange(view="vaults/password", parent="main", before=before.verdict, after=after.verdict)
    level = PlannedLevel(change=change, writes=(), is_due=False, is_later=False)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    plan = Planned(at=at, levels=[level], counts={}, dropped=0, waiting=[], unlisted={})
    return " ".join(" ".join(plan_lines(plan)).split())


def test_a_plan_says_that_redacted_values_alone_are_others() -> None:
    text = planned(concluded(ONE), concluded(OTHER))
    assert "settling as before, with another desired, in redacted values alone" in text
    assert "data.password: another redacted value" in text
    assert "redacted values alone" not in planned(concluded(ONE), concluded(OTHER, user="you"))
