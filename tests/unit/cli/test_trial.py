"""What is said while new code is tried."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from levelog_cli.editing import trial
from levelog_cli.settings import Settings
from levelog_replay.planning import Course
from rigs.waiting import until


async def test_a_plan_that_takes_long_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def planned(*_: object, course: Course, **__: object) -> Any:
        course.engine = cast("Any", SimpleNamespace(acting=SimpleNamespace(ages=[("webs/pods", 5.2), ("a/b", 1.0)])))
        await until(has_told, "what is waited for")
        return SimpleNamespace(is_same=True)

    async def has_told() -> bool:
        return bool(caplog.messages)

    monkeypatch.setattr(trial, "planned", planned)
    monkeypatch.setattr(trial, "_PATIENCE_SECONDS", 0)
    with caplog.at_level(logging.INFO):
        await trial.print_changes(Settings(), cast("Any", None))
    [first, last] = caplog.messages
    assert "still finding out what this changes" in first
    assert "waits for the functions of webs/pods, for 5 s;" in first
    assert last == "this changes no level and no write"
