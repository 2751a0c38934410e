"""`levelog why` says how often a write or call that fails was tried, when it is tried again, and its last error."""

from datetime import timedelta

import pytest

from levelog_cli.printing.explained import explained_lines
from levelog_history.explaining import explain
from levelog_history.happenings import Happened
from levelog_store.decide.decisions import PastIntent
from rigs.pastdecisions import NONE, decision
from rigs.webs import NOON

CALL, APPLY = ("call", "provision_handled.effects/default/logs"), ("apply", "configmaps/default/logs")
SHOWN = {CALL: "call handler provision for default/logs", APPLY: "apply configmaps/default/logs"}
TRIED = "tried 4 times since 2026-01-01 12:00:00 UTC"


def intent(write: tuple[str, str], state: str, owner: str = "") -> PastIntent:
    verb, target = write
    step = "handler provision" if verb == "call" else f"{verb} {target}"
    return PastIntent(
        key="key",
        view="buckets/provision",
        parent="buckets.example.com/default/logs",
        verb=verb,
        target=target,
        is_watched=False,
        state=state,
        error=f"{step}: no capacity",
        round=1,
        ordinal=0,
        target_uid="",
        attempts=4,
        decided_at=NOON,
        owner=owner,
        due_at=NOON + timedelta(minutes=1),
        receipt=None,
    )


def told(write: PastIntent, *, is_full: bool) -> str:
    made = decision(write.view, write.parent, causes=NONE, intents=[write.key], status="settling")
    explained = explain([made], {write.key: write}, Happened(entries={}, receipts={}, others={}))
    return " ".join(" ".join(explained_lines(made, explained, is_full=is_full)).split())


@pytest.mark.parametrize("write", [CALL, APPLY])
@pytest.mark.parametrize("is_full", [False, True])
def test_what_is_tried_again_is_told_with_its_attempts_the_next_one_and_the_error(
    write: tuple[str, str], *, is_full: bool
) -> None:
    waiting = told(intent(write, "pending"), is_full=is_full)
    assert f"{SHOWN[write]}: pending: {TRIED}, the next time at 2026-01-01 12:01:00 UTC: no capacity" in waiting
    running = told(intent(write, "claimed", owner="host-1-a"), is_full=is_full)
    assert f"{SHOWN[write]}: claimed: {TRIED}, now again: no capacity" in running
    over = told(intent(write, "failed"), is_full=is_full)
    assert f"{SHOWN[write]}: failed: no capacity" in over
