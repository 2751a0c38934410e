from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelog import Level, Operator, OperatorError, delete, patch
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical
from levelog_cli.loading import load_operators
from levelog_processors.bound import BoundView
from levelog_processors.decide.decisionrules import conclude, must_act
from levelog_processors.decide.facts import Facts, Outlook, Round, Seen
from levelog_processors.decide.intents import RowInputs, intent_rows
from levelog_processors.decide.settling import MANY, Repeats
from levelog_processors.decide.writetargets import aimed
from levelog_processors.program import MAX_BACKOFF, Program
from levelog_processors.state.writes import is_settled
from levelog_store.decide.decisions import IntentRow, OpenIntent, PendingWake
from levelog_store.rows import LevelRow, StoredObject
from rigs.kinds import Web
from rigs.levelog import WEBS_FILE
from rigs.storedobjects import stored_object
from rigs.webs import NOON, pod, web

operators = load_operators([WEBS_FILE])
program = Program(operators)
module: Any = __import__("sys").modules[operators[0].views["pods"].function.__module__]
REDACTOR = Redactor(b"0123456789abcdef")
VIEW: BoundView = program.views["webs/pods"]


def stored(record: Any) -> StoredObject:
    return stored_object(str(record.key), uid=record.uid, version=record.version, body=record.body)


def rows(
    wanted: list[Any], targets: dict[str, StoredObject] | None = None, *, number: int = 1, applied: Any = None
) -> list[IntentRow]:
    inputs = RowInputs(
        identity=("cluster", "webs"),
        targets=targets or {},
        last_applied=applied or {},
        is_watched=lambda _: True,
        redactor=REDACTOR,
    )
    parent = stored(web("shop", 1))
    return intent_rows(inputs, VIEW, parent, number, [aimed(VIEW, parent, each) for each in wanted])


def manifest(image: str = "a", **metadata: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop-0", "labels": {"app": "web"}, **metadata},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }


def held(record: Any) -> dict[str, StoredObject]:
    return {str(record.key): stored(record)}


def test_what_the_target_holds_already_is_satisfied_and_not_sent() -> None:
    there = pod("shop-0", 5, owner="uid-shop")
    body = manifest(ownerReferences=[{"uid": "uid-shop", "controller": True}])
    assert rows([module.apply(body)], held(there))[0].state == "satisfied"
    assert rows([module.apply(manifest(image="b", ownerReferences=[]))], held(there))[0].state == "pending"
    assert rows([delete(module.Pod, "shop-9")])[0].state == "satisfied"
    assert rows([delete(module.Pod, "shop-0")], held(there))[0].state == "pending"


def test_a_merge_patch_is_sent_if_a_list_of_the_target_holds_more_than_that_of_the_patch() -> None:
    there = held(pod("shop-0", 5))
    [container] = msgspec.json.decode(there["pods/default/shop-0"].body)["spec"]["containers"]
    same, less = ({"spec": {"containers": [each]}} for each in (container, {"name": container["name"]}))
    assert rows([patch(module.Pod, "shop-0", same)], there)[0].state == "satisfied"
    assert rows([patch(module.Pod, "shop-0", less)], there)[0].state == "pending"


def test_leaving_out_a_field_that_was_applied_before_is_sent() -> None:
    there = pod("shop-0", 5, owner="uid-shop")
    body = manifest(ownerReferences=[{"uid": "uid-shop", "controller": True}])
    before = {str(there.key): b'{"spec":{"nodeName":"n1"}}'}
    assert rows([module.apply(body)], held(there), applied=before)[0].state == "pending"


def test_one_target_twice_in_a_round_is_refused() -> None:
    with pytest.raises(Exception, match="asks twice to delete pods/default/shop-0"):
        rows([delete(module.Pod, "shop-0"), delete(module.Pod, "shop-0")])


def test_a_parent_without_a_namespace_leaves_it_to_the_manifest() -> None:
    cluster_scoped = msgspec.structs.replace(stored(web("shop", 1)), object="webs.example.com/_/shop", namespace="")
    wanted = module.apply(manifest())
    with pytest.raises(OperatorError, match=r"give metadata\.namespace: the parent webs\.example\.com/_/shop has none"):
        aimed(VIEW, cluster_scoped, wanted)
    with pytest.raises(OperatorError, match="delete of Pod shop-0: give namespace="):
        aimed(VIEW, cluster_scoped, delete(module.Pod, "shop-0"))
    assert str(aimed(VIEW, cluster_scoped, delete(module.Pod, "a", namespace="b")).target) == "pods/b/a"


def intent(**changes: Any) -> OpenIntent:
    values: dict[str, Any] = {
        "view": "webs/pods",
        "parent": "webs.example.com/default/shop",
        "key": "k",
        "state": "written",
        "verb": "apply",
        "target": "pods/default/shop-0",
        "is_watched": True,
        "is_folded": True,
        "error": "",
        "outcome": "written",
        "result_uid": "u1",
        "result_version": 10,
        "shown_uid": "u1",
        "shown_version": 10,
        "shown_is_deleting": False,
        "buried_version": None,
    }
    return OpenIntent(**values | changes)


@pytest.mark.parametrize(
    ("changes", "settled"),
    [
        ({}, True),
        ({"shown_version": 9}, False),
        ({"is_folded": False}, False),
        ({"state": "pending"}, False),
        ({"state": "claimed"}, False),
        ({"shown_uid": None, "shown_version": None}, False),
        ({"shown_uid": None, "shown_version": None, "buried_version": 11}, True),
        ({"shown_uid": None, "shown_version": None, "buried_version": 3}, False),
        ({"shown_uid": None, "shown_version": None, "observed_version": 0}, True),
        ({"shown_uid": None, "shown_version": None, "buried_version": 3, "observed_version": 0}, True),
        ({"shown_uid": None, "shown_version": None, "observed_version": 10}, False),
        ({"shown_version": 9, "observed_version": 0}, False),
        ({"shown_version": 9, "observed_version": 12}, False),
        ({"is_folded": False, "shown_uid": None, "shown_version": None, "observed_version": 0}, False),
        ({"shown_uid": "u2", "shown_version": 12}, True),
        ({"shown_uid": "u0", "shown_version": 4}, False),
        ({"is_watched": False, "shown_uid": None, "shown_version": None}, True),
        ({"outcome": "unchanged", "shown_version": 9}, False),
        ({"outcome": "unchanged"}, True),
        ({"outcome": "unchanged", "result_version": 0, "shown_version": 9}, True),
        ({"outcome": "unchanged", "is_watched": False, "shown_version": 9}, True),
        ({"outcome": "gone", "shown_uid": None, "shown_version": None}, True),
        ({"verb": "delete", "shown_is_deleting": True}, True),
        ({"verb": "delete"}, False),
        ({"verb": "delete", "outcome": "gone", "result_version": 0}, False),
        ({"verb": "delete", "outcome": "gone", "result_version": 0, "shown_is_deleting": True}, True),
        ({"verb": "delete", "outcome": "gone", "result_version": 0, "shown_uid": None, "shown_version": None}, True),
        ({"verb": "delete", "outcome": "gone", "result_version": 0, "is_watched": False}, True),
        ({"verb": "delete", "shown_uid": "u2"}, True),
        ({"verb": "delete", "shown_uid": None, "shown_version": None, "buried_version": 11}, True),
        ({"outcome": "conflict", "shown_version": 9}, False),
        ({"outcome": "conflict"}, True),
        ({"outcome": "conflict", "verb": "delete"}, True),
        ({"outcome": "conflict", "state": "failed", "shown_version": 9}, True),
        ({"state": "failed", "outcome": "failed"}, True),
        ({"state": "failed", "outcome": "failed", "is_folded": False}, False),
    ],
)
def test_invariant_8_an_intent_is_settled_only_once_the_log_shows_it(changes: dict[str, Any], settled: bool) -> None:
    assert is_settled(intent(**changes)) is settled


def facts_after(before: LevelRow, *intents: OpenIntent) -> Facts:
    return Facts(
        wake=PendingWake(view=VIEW.name, parent=before.parent, partition=0, cause=9, generation=1, due_at=None),
        view=VIEW,
        parent=stored(web("shop", 1)),
        before=before,
        intents=intents,
        inputs=before.inputs,
        reads_digest=before.reads_digest,
        now=NOON,
        folded=(7, 9),
    )


DRIFTING = Seen(level=Level(desired=1, actual=2), drift=b'{"changed":["."]}', inputs="seen", reads_digest="read now")


FAILED_VIEW = LevelRow(
    view=VIEW.name,
    parent="webs.example.com/default/shop",
    partition=0,
    parent_uid="uid-shop",
    status="failed",
    reason="view webs/pods: ValueError: no",
    round=1,
    evaluations=2,
    inputs="seen",
    reads_digest="read",
)


def test_invariant_6_a_view_that_raised_is_not_called_again_for_a_receipt() -> None:
    assert not facts_after(FAILED_VIEW).needs_evaluation
    drifting = msgspec.structs.replace(FAILED_VIEW, status="settling", drift=b'{"missing":["shop-0"]}')
    raised = Seen(error="view webs/pods: ValueError: no", inputs="seen")
    assert conclude(Outlook(facts_after(drifting), raised), None, NOON).level.drift is None


def test_the_error_of_a_view_is_still_told_while_a_write_settles() -> None:
    level = conclude(Outlook(facts_after(FAILED_VIEW, intent(is_folded=False))), None, NOON).level
    assert (level.status, level.reason) == ("failed", "view webs/pods: ValueError: no")


@pytest.mark.parametrize(
    ("asked", "woken", "next_look"),
    [
        (None, None, None),
        (-60.0, None, None),  # it has come: this was the look
        (0.0, 0.0, None),
        (0.1, None, 1.0),
        (1.0, None, 1.0),
        (60.0, None, 60.0),
        (60.0, 60.0, 61.0),  # by the database's clock it has come, by this process's it has not
    ],
)
def test_a_time_is_looked_at_once_and_looks_are_a_second_apart(
    asked: float | None, woken: float | None, next_look: float | None
) -> None:
    def at(seconds: float | None) -> datetime | None:
        return None if seconds is None else NOON + timedelta(seconds=seconds)

    facts = facts_after(SETTLING)
    facts = msgspec.structs.replace(facts, wake=msgspec.structs.replace(facts.wake, due_at=at(woken)))
    seen = Seen(level=Level(1, 1), inputs="seen", reads_digest="read now", recheck_at=at(asked))
    decided = conclude(Outlook(facts, seen), None, NOON)
    assert (decided.level.status, decided.due_at) == ("in_sync", at(next_look))


SETTLING = msgspec.structs.replace(FAILED_VIEW, status="settling", reason="", decided_inputs="decided on")


def test_invariant_8_a_decision_waits_for_what_is_claimed_and_withdraws_what_nobody_claimed() -> None:
    facts = facts_after(SETTLING, intent(key="sent", state="claimed"), intent(key="waits", state="pending"))
    assert (Outlook(facts).to_withdraw, len(Outlook(facts).under_way)) == (
        [],
        2,
    )  # without an evaluation nothing has changed
    look = Outlook(facts, DRIFTING)
    assert look.to_withdraw == ["waits"]
    assert [each.key for each in look.under_way] == ["sent"]
    decided = conclude(look, None, NOON)
    assert (decided.level.status, decided.withdrawn) == ("settling", ["waits"])


MANY_WRITES = [intent(key=f"k{number}", state="claimed") for number in range(MANY + 1)]
WANTED = {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    ("was", "became", "withdrawn"),
    [
        ({}, {"a": 1}, []),
        ({"a": 0}, {"a": 1}, []),
        ({"a": 0}, {}, []),  # deleted, to be made anew
        ({"d": 4}, {}, []),
        ({}, {"a": 0}, ["waits"]),
        ({"a": 0}, {"a": 2}, ["waits"]),
        ({"a": 1}, {}, ["waits"]),  # it was as it should be
        ({}, {"d": 4}, ["waits"]),
    ],
)
def test_invariant_8_what_waits_stays_while_a_level_only_sees_what_its_own_writes_lead_to(
    was: dict[str, int], became: dict[str, int], withdrawn: list[str]
) -> None:
    def seen(actual: dict[str, int]) -> Seen:
        level = Level(WANTED, actual)
        return Seen(
            level=level,
            desired=canonical(WANTED),
            actual=canonical(actual),
            drift=b"{}",
            inputs="seen",
            reads_digest="now",
        )

    before = msgspec.structs.replace(SETTLING, desired=canonical(WANTED), actual=canonical(was))
    waits, sent = intent(key="waits", state="pending"), intent(key="sent", state="claimed")
    assert Outlook(facts_after(before, waits, sent), seen(became)).to_withdraw == withdrawn
    for state in ("written", "settled"):
        ended = intent(key="sent", state=state)
        assert Outlook(facts_after(before, waits, ended), seen(became)).to_withdraw == withdrawn
        # given back, and the view may have seen another change meanwhile
        tried = intent(key="waits", state="pending", was_claimed=True)
        assert Outlook(facts_after(before, tried, ended), seen(became)).to_withdraw == ["waits"]
    again = msgspec.structs.replace(facts_after(SETTLING, waits, sent), progressed=not withdrawn)
    assert Outlook(again, seen(became)).to_withdraw == withdrawn, "a replay does as the decision did"
    assert Outlook(facts_after(before, waits), seen(became)).to_withdraw == ["waits"], "a round can follow at once"
    other = msgspec.structs.replace(before, inputs="another parent")
    assert Outlook(facts_after(other, waits, sent), seen(became)).to_withdraw == ["waits"]


def test_a_view_is_called_less_often_the_longer_many_writes_of_its_level_take() -> None:
    def facts(*intents: OpenIntent, minutes: float, **changes: Any) -> Facts:
        before = msgspec.structs.replace(SETTLING, since=NOON, evaluated_at=NOON + timedelta(minutes=10), evaluations=1)
        now = NOON + timedelta(minutes=minutes)
        return msgspec.structs.replace(facts_after(before, *intents), now=now, **({"reads_digest": "other"} | changes))

    early = facts(*MANY_WRITES, minutes=15)
    assert not early.needs_evaluation
    decided = conclude(Outlook(early), None, early.now)
    assert (decided.is_recorded, decided.due_at) == (False, NOON + timedelta(minutes=20))
    assert (decided.is_put_off, decided.level.suppressed) == (True, ""), "its causes are those of the next decision"
    assert (decided.level.reads_digest, decided.level.versions_digest) == (
        SETTLING.reads_digest,
        SETTLING.versions_digest,
    ), "still to be seen"
    assert facts(*MANY_WRITES, minutes=20).needs_evaluation
    assert facts(*MANY_WRITES[1:], minutes=15).needs_evaluation
    assert facts(*MANY_WRITES, minutes=15, inputs="another parent").needs_evaluation
    asked = msgspec.structs.replace(early.wake, due_at=NOON)
    assert facts(*MANY_WRITES, minutes=15, wake=asked).needs_evaluation


def test_invariant_21_a_view_that_many_writes_put_off_is_called_soon_after_the_clock_was_set_back() -> None:
    ahead = NOON + timedelta(days=30)
    before = msgspec.structs.replace(SETTLING, since=ahead, evaluated_at=ahead, evaluations=1)
    facts = msgspec.structs.replace(facts_after(before, *MANY_WRITES), reads_digest="other")
    assert conclude(Outlook(facts), None, facts.now).due_at == NOON + timedelta(seconds=1)


def test_a_decision_that_saw_the_same_again_withdraws_nothing() -> None:
    seen = Outlook(facts_after(SETTLING), DRIFTING).digest
    before = msgspec.structs.replace(SETTLING, decided_inputs=seen)
    look = Outlook(facts_after(before, intent(key="waits", state="pending")), DRIFTING)
    assert (look.to_withdraw, must_act(look)) == ([], False)


@pytest.mark.parametrize("sides", [(["a"], []), (["a"], ["b"]), (("a",), ()), (None, ["a"])])
def test_a_level_of_lists_that_nothing_is_written_for_says_that_lists_have_no_parts(sides: tuple[Any, Any]) -> None:
    seen = msgspec.structs.replace(DRIFTING, level=Level(*sides))
    level = conclude(Outlook(facts_after(SETTLING), seen), Round(), NOON).level
    assert (level.status, level.reason) == (
        "drifting",
        "the last round had nothing to write; a list drifts as a whole, under the key '.': for the drift to name its "
        "members, return sets or mappings",
    )


def test_a_level_of_other_values_that_nothing_is_written_for_says_only_that() -> None:
    level = conclude(Outlook(facts_after(SETTLING), DRIFTING), Round(), NOON).level
    assert (level.status, level.reason) == ("drifting", "the last round had nothing to write")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("written", "the last round did not close it"),
        ("unchanged", "the API accepted apply pods/default/shop-0 and changed nothing: it drops fields that the "),
    ],
)
def test_a_level_whose_writes_changed_nothing_says_what_the_api_may_have_dropped(outcome: str, reason: str) -> None:
    seen = Outlook(facts_after(SETTLING), DRIFTING).digest
    before = msgspec.structs.replace(SETTLING, decided_inputs=seen)
    level = conclude(Outlook(facts_after(before, intent(outcome=outcome)), DRIFTING), None, NOON).level
    assert (level.status, level.reason.startswith(reason)) == ("drifting", True), level.reason


JUMP: Final = timedelta(days=30)


def _ahead() -> Operator:
    op = Operator("ahead")

    @op.view
    def timed(web: Web, now: datetime) -> Level[bool]:
        return Level(False, now > NOON)

    @op.view
    def timeless(web: Web) -> Level[int]:
        return Level(1, 1)

    return op


AHEAD: Final = Program([_ahead()])


@given(
    before=st.sampled_from([SETTLING, FAILED_VIEW]),
    has_drift=st.booleans(),
    wait=st.timedeltas(timedelta(seconds=1), MAX_BACKOFF),
    ago=st.timedeltas(-JUMP, JUMP),
)
def test_invariant_21_a_level_waits_no_longer_than_it_was_to_by_a_clock_that_was_ahead(
    before: LevelRow, has_drift: bool, wait: timedelta, ago: timedelta
) -> None:
    said_at = NOON - ago
    drift = b'{"missing":["shop-0"]}' if has_drift else None
    before = msgspec.structs.replace(before, drift=drift, decided_at=said_at, recheck_at=said_at + wait)
    decided = conclude(Outlook(facts_after(before)), None, NOON)
    assert decided.due_at is not None
    assert decided.level.decided_at == NOON
    assert decided.due_at <= NOON + wait or ago < timedelta(0)
    assert decided.due_at <= NOON + max(wait, MAX_BACKOFF)
    if timedelta(0) <= ago < wait:
        assert decided.due_at == said_at + wait


@pytest.mark.parametrize("view", sorted(AHEAD.views))
def test_a_view_that_takes_the_time_is_called_again_once_that_time_is_ahead(view: str) -> None:
    before = msgspec.structs.replace(SETTLING, status="in_sync", evaluated_at=NOON + JUMP)
    facts = msgspec.structs.replace(facts_after(before), view=AHEAD.views[view])
    assert facts.needs_evaluation is (view == "ahead/timed")
    planned = msgspec.structs.replace(before, recheck_at=NOON + JUMP, decided_at=NOON + JUMP)
    assert not msgspec.structs.replace(facts, before=planned).needs_evaluation


@given(at=st.timedeltas(-JUMP, JUMP), count=st.integers(1, 40))
def test_a_level_that_was_undone_rests_for_no_clock_that_was_ahead(at: timedelta, count: int) -> None:
    state = Outlook(facts_after(SETTLING), DRIFTING).state
    repeats = Repeats(of=state, count=count, at=NOON + at).text
    rests = Outlook(facts_after(msgspec.structs.replace(SETTLING, repeats=repeats)), DRIFTING).rests_until
    assert rests is None or NOON < rests <= NOON + MAX_BACKOFF


def test_a_level_whose_function_outlasts_a_clock_that_was_ahead_is_looked_at_soon() -> None:
    facts = msgspec.structs.replace(facts_after(SETTLING), now=NOON + JUMP)
    seen = msgspec.structs.replace(DRIFTING, recheck_at=NOON + JUMP + timedelta(minutes=1))
    sent = Round(rows=rows([module.apply(manifest())]))
    decided = conclude(Outlook(facts, seen), sent, NOON)
    assert decided.due_at is not None
    assert NOON < decided.due_at <= NOON + MAX_BACKOFF
