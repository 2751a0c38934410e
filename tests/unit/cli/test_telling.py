"""The story of the demonstration says what took place, also where that is not what it is about."""

import io

from msgspec.structs import replace
from rich.console import Console

from levelog_cli.demo.steps import STORY, StoryStep, ViewCall
from levelog_cli.demo.telling import StepResult, tell

CALL = ViewCall(
    view="webs/pods",
    parent="webs.example.com/default/shop",
    ordinal=1,
    cause=12,
    round=2,
    status="settling",
    desired=b'["a","b"]',
    actual=b'["a","b","c"]',
)
APPEARING, SCALING = STORY[:2]


def told(*calls: ViewCall, step: StoryStep = SCALING) -> str:
    console = Console(file=io.StringIO(), width=100)
    outcome = StepResult(records=2, changes=2, decisions=[*calls], levels=1, writes=[], requests=[])
    tell(console, 2, step, outcome)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_three_two_three_that_wakes_nothing_is_told_as_such() -> None:
    assert "nothing: after both records, all that it reads is as before" in told()
    assert "note" not in told()


def test_three_two_three_with_a_look_in_between_says_so() -> None:
    assert "note   This time it looked between the two changes: it acted on 2 replicas, and then on 3." in told(CALL)


def test_a_web_that_is_seen_without_its_pod_says_so() -> None:
    assert "note" not in told(CALL, step=APPEARING)
    alone = replace(CALL, desired=b'{"a":1}', actual=b"{}")
    assert "looked between the two changes: it tried to make all three pods" in told(alone, step=APPEARING)
