"""What `levelog plan` prints."""

from datetime import UTC, datetime

import pytest

from levelog_cli.printing.planned import plan_lines
from levelog_replay.planning import LevelChange, Planned, PlannedLevel, PlannedWrite
from levelog_store.rows import Verdict

EVENT = "events.events.k8s.io/default/first.847f0d4e"
SETTLED = Verdict(status="in_sync")


def write(verb: str, target: str, key: str) -> PlannedWrite:
    return PlannedWrite(view="shops/conditions", parent="", key=key, verb=verb, target=target, body=b"{}")


def level(
    name: str, after: Verdict, *writes: PlannedWrite, view: str = "shops/texts", is_later: bool = False
) -> PlannedLevel:
    change = LevelChange(view=view, parent=f"shops.example.com/default/{name}", before=SETTLED, after=after)
    return PlannedLevel(change=change, writes=writes, is_due=False, is_later=is_later)


def printed(monkeypatch: pytest.MonkeyPatch, *levels: PlannedLevel, **others: object) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    held: dict[str, object] = {"counts": {}, "dropped": 0, "waiting": [], "unlisted": {}, **others}
    plan = Planned(at=datetime(2026, 1, 1, tzinfo=UTC), levels=levels, **held)  # type: ignore[arg-type]
    return "\n".join(plan_lines(plan))


def failed(reason: str) -> Verdict:
    return Verdict(status="failed", reason=reason)


def test_an_event_that_says_the_same_in_two_rounds_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [write("event", EVENT, "a"), write("patch_status", "shops.example.com/default/first", "b")]
    other = write("event", f"{EVENT}0", "d")
    text = printed(monkeypatch, level("first", Verdict(status="settling"), *writes, write("event", EVENT, "c"), other))
    assert "writes that would follow: event events.events.k8s.io (2), patch_status shops.example.com (1)" in text
    assert text.count(f"event {EVENT},") == 1


def test_levels_stand_together_only_if_they_fail_for_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [level("a", failed("KeyError: 'x'")), level("b", failed("ValueError")), level("c", failed("ValueError"))]
    text = printed(monkeypatch, *levels)
    assert text.index("shops/texts, 2 levels: in_sync -> failed") < text.index(
        "shops/texts, 1 level: in_sync -> failed"
    )
    assert text.count("reason    ") == 2


def test_reasons_that_name_the_parent_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [level(name, failed(f"no shops.example.com/default/{name} at all")) for name in "abc"]
    assert "shops/texts, 3 levels: in_sync -> failed" in printed(monkeypatch, *levels)


def test_of_many_reasons_the_commonest_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = [level(f"s{number}", failed(f"KeyError: {number}")) for number in range(40)]
    levels += [level(f"t{number}", failed("ValueError")) for number in range(3)]
    text = printed(monkeypatch, *levels)
    assert text.count("shops/texts, ") == 6
    assert "shops/texts, 3 levels: in_sync -> failed\n" in text
    assert "shops/texts, 36 levels: in_sync -> failed, for 36 other reasons\n" in text


def test_what_waits_for_a_list_is_not_said_to_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    later = level("first", Verdict(status="blocked"), view="shops/conditions", is_later=True)
    text = printed(monkeypatch, later, unlisted={"shops/ends": ["endpoints"]}, later=["shops/conditions"])
    assert "shops/conditions, 1 level: decided on after others" in text
    assert text.endswith(
        "writes that would follow at once: none\n"
        "shops/ends decides, and perhaps writes, once this is listed: endpoints\n"
        "shops/conditions decides after that\n"
        "nothing was written"
    )
