import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from levelog_actuator.answers import (
    ANSWER_RULES,
    SIGHT_RULES,
    Case,
    Judgement,
    rule_for_answer,
    rule_for_observation,
)
from levelog_actuator.requests import Order, Precondition, Reply
from levelog_kube.requestfailures import FailureCause
from rigs.orders import OTHER_UID, PARENT_UID, UID, VERBS, VERSION, observation, order, unseen

JSON = {"body": [], "options": {"patch_type": "json"}}
MANAGERS = (FailureCause(reason="FieldManagerConflict", message='conflict with "x"', field=".spec.image"),)
AT_VERSION = Precondition(version=VERSION)


def reply(status: int, **fields: Any) -> Reply:
    return Reply(status=status, **fields)


NOT_FOUND = reply(404, reason="NotFound", message='webs.example.com "a" not found')


@pytest.mark.parametrize(
    ("verbs", "verdict", "replies"),
    [
        (VERBS, Judgement.WRITTEN, [reply(200), reply(201), reply(202)]),
        (("patch", "delete"), Judgement.GONE, [NOT_FOUND]),
        (("patch_status",), Judgement.LOOK, [NOT_FOUND]),  # the resource may have no such subresource
        (
            VERBS,
            Judgement.RETRY,
            [
                reply(404, reason="NotFound", message="404 page not found"),
                reply(404, reason="NotFound", message="the server could not find the requested resource"),
                reply(404, reason="NotFound", message='namespaces "x" not found'),
                reply(401),
                reply(429),
                reply(0, is_sent=False),
            ],
        ),
        (("apply",), Judgement.FAILED, [reply(409, causes=MANAGERS)]),
        (VERBS, Judgement.LOOK, [reply(409, reason="Conflict")]),
        (VERBS, Judgement.FAILED, [reply(status) for status in (400, 403, 405, 406, 410, 413, 415)]),
        ([verb for verb in VERBS if verb != "create"], Judgement.LOOK, [reply(422)]),
        (("create",), Judgement.FAILED, [reply(422)]),
        (VERBS, Judgement.LOOK_LATER, [reply(status) for status in (0, 408, 500, 502, 503, 504)]),
    ],
)
def test_an_answer_is_judged_by_its_status_and_words(
    verbs: Iterable[str], verdict: Judgement, replies: list[Reply]
) -> None:
    for verb, answer in product(verbs, replies):
        assert rule_for_answer(order(verb), answer).verdict is verdict, (verb, answer)


def test_a_status_that_is_not_found_on_an_object_that_is_there_cannot_be_written() -> None:
    assert judge(order("patch_status"), None, refusal=NOT_FOUND) is Judgement.GONE
    assert judge(order("patch_status"), observation(uid=OTHER_UID), refusal=NOT_FOUND) is Judgement.GONE
    guarded = Precondition(uid=UID)
    other = judge(unseen("patch_status"), observation(uid=OTHER_UID), refusal=NOT_FOUND, required=guarded)
    assert other is Judgement.GONE
    moved = observation(version=VERSION + 1, status={"ready": 1})
    for is_doubtful in (True, False):
        judged = judge(order("patch_status"), moved, refusal=NOT_FOUND, is_doubtful=is_doubtful)
        assert judged is Judgement.FAILED


@pytest.mark.parametrize(
    ("message", "is_refusal"),
    [
        (
            "failed to create typed patch object (/a; v1, Kind=Web): errors:\n  .spec.x: field not declared in schema",
            True,
        ),
        (
            "failed to create typed live object (default/a; example.com/v1, Kind=Web): .spec.image: expected numeric",
            True,
        ),
        (
            "failed to convert new object (/a; apps/v1, Kind=Deployment) to proper version: unable to convert "
            "unstructured object to apps/v1, Kind=Deployment: quantities must match the regular expression",
            True,
        ),
        ("etcdserver: request is too large", True),
        (
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2500528 vs. 2097152)",
            True,
        ),
        (
            "failed to convert new object (/a; example.com/v1, Kind=Web) to proper version: conversion webhook for "
            "example.com/v1, Kind=Web failed: connection refused",
            False,
        ),
        ("rpc error: code = ResourceExhausted desc = etcdserver: too many requests", False),
        ("etcdserver: request timed out", False),
    ],
)
def test_a_500_that_refuses_what_was_sent_fails_and_counts_as_422(message: str, is_refusal: bool) -> None:
    refusal = reply(500, message=message)
    expected = (Judgement.FAILED, 422) if is_refusal else (Judgement.LOOK_LATER, 500)
    assert (rule_for_answer(order("apply"), refusal).verdict, refusal.counts_as) == expected
    assert reply(503, message=message).counts_as == 503


def judge(of: Order, seen: Any, **fields: Any) -> Judgement:
    asked = doubtful(of, fields.pop("is_doubtful", False))
    return rule_for_observation(Case(order=asked, seen=seen, **fields)).verdict


def doubtful(of: Order, is_doubtful: bool) -> Order:
    return replace(of, intent=replace(of.intent, is_doubtful=is_doubtful))


REMOVED = [{"op": "test", "path": "/spec/image", "value": "a"}, {"op": "remove", "path": "/spec/image"}]
TESTED = order("patch", body=REMOVED, options={"patch_type": "json"})
DOUBT = {"is_doubtful": True}
CONFLICT, INVALID, ACCEPTED = ({"refusal": reply(status)} for status in (409, 422, 200))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "create"])
@pytest.mark.parametrize("more", [DOUBT, CONFLICT, INVALID, DOUBT | CONFLICT, DOUBT | INVALID])
def test_another_incarnation_and_none_are_gone(verb: str, more: Any) -> None:
    assert judge(order(verb), None, **more) is Judgement.GONE
    assert judge(order(verb), observation(uid=OTHER_UID), **more) is Judgement.GONE


MOVED = observation(version=VERSION + 1)
UNOWNED = unseen("create", body={"metadata": {"name": "a"}})
CONDITIONAL = {"options": {"if_unchanged": True}}


@pytest.mark.parametrize(
    ("orders", "seen", "more", "verdict"),
    [
        # What would be made is made if it is not there, and else is its owner's.
        ([unseen("apply"), unseen("create")], None, DOUBT, Judgement.SEND),
        ([unseen("apply"), unseen("create")], None, CONFLICT, Judgement.RETRY),
        ([unseen("apply"), unseen("create")], None, INVALID, Judgement.FAILED),
        ([unseen("apply"), unseen("create")], observation(controller="uid-else"), DOUBT, Judgement.FAILED),
        ([unseen("apply"), unseen("create")], observation(controller="uid-else"), CONFLICT, Judgement.FAILED),
        ([unseen("create")], observation(), CONFLICT, Judgement.UNCHANGED),
        ([unseen("create")], observation(controller=""), CONFLICT, Judgement.FAILED),
        ([UNOWNED], observation(controller=""), CONFLICT, Judgement.UNCHANGED),
        ([UNOWNED], observation(), CONFLICT, Judgement.FAILED),
        ([unseen("create")], observation(), DOUBT, Judgement.WRITTEN),
        # In doubt, what holds the fields is written; else it is sent to the version that was seen only.
        ([order("patch")], observation(spec={"image": "a"}, version=9), DOUBT, Judgement.WRITTEN),
        ([order("patch_status")], observation(status={"ready": 1}), DOUBT, Judgement.WRITTEN),
        ([order("apply"), order("patch"), order("patch_status")], observation(), DOUBT, Judgement.SEND),
        ([order("apply"), order("patch"), order("patch_status")], MOVED, DOUBT, Judgement.CONFLICT),
        ([order("patch", **JSON), order("delete", **CONDITIONAL)], MOVED, DOUBT, Judgement.CONFLICT),
        ([order("delete")], MOVED, DOUBT, Judgement.SEND),
        ([order("delete")], observation(is_deleting=True), DOUBT, Judgement.WRITTEN),
        # What was not seen is written for what is found, and in doubt not again.
        ([unseen("patch"), unseen("patch_status"), unseen("delete")], observation(), {}, Judgement.SEND),
        ([unseen("patch"), unseen("patch_status"), unseen("delete")], observation(), DOUBT, Judgement.CONFLICT),
        ([unseen("patch"), unseen("patch_status"), unseen("delete")], None, {}, Judgement.GONE),
        # After a refusal: others may have changed it meanwhile.
        ([order("patch_status")], MOVED, CONFLICT | {"required": AT_VERSION}, Judgement.SEND),
        ([order("patch_status", **CONDITIONAL)], MOVED, CONFLICT | {"required": AT_VERSION}, Judgement.CONFLICT),
        ([order("patch", **JSON)], MOVED, INVALID | {"required": AT_VERSION}, Judgement.CONFLICT),
        ([TESTED], MOVED, INVALID | {"required": TESTED.first_guard}, Judgement.CONFLICT),
        ([TESTED], observation(), INVALID | {"required": TESTED.first_guard}, Judgement.FAILED),
        ([TESTED], MOVED, CONFLICT | {"required": TESTED.first_guard}, Judgement.RETRY),
        ([order("apply"), order("patch"), order("delete")], observation(), CONFLICT, Judgement.RETRY),
        (
            [order("apply"), order("patch"), order("patch_status")],
            observation(),
            INVALID | {"required": AT_VERSION},
            Judgement.FAILED,
        ),
    ],
)
def test_a_target_is_judged_by_what_is_found_of_it(
    orders: list[Order], seen: Any, more: dict[str, Any], verdict: Judgement
) -> None:
    for each in orders:
        assert judge(each, seen, **more) is verdict, each


def test_invariant_19_an_apply_that_was_to_make_an_object_takes_over_none() -> None:
    def judged(controller: str, **options: Any) -> Judgement:
        of = unseen("apply", options=options)
        return judge(of, observation(controller=controller), refusal=reply(409), required=of.first_guard)

    assert judged(PARENT_UID) is Judgement.SEND
    assert judged("uid-else") is judged("uid-else", adopt=True) is judged("") is Judgement.FAILED
    assert judged("", adopt=True) is Judgement.SEND


def test_invariant_19_a_deletion_of_what_the_decision_did_not_see_is_of_what_the_parent_controls() -> None:
    def judged(controller: str, **options: Any) -> Judgement:
        return judge(unseen("delete", options=options), observation(controller=controller))

    assert judged(PARENT_UID) is Judgement.SEND
    assert judged("uid-else") is judged("") is Judgement.FAILED
    assert judged("", owned=False) is Judgement.SEND


orders = st.builds(
    lambda verb, is_seen, **options: (order if is_seen else unseen)(verb, options=options),
    st.sampled_from(VERBS),
    st.booleans(),
    if_unchanged=st.booleans(),
    force=st.booleans(),
)
observations = st.none() | st.builds(
    observation,
    uid=st.sampled_from([UID, OTHER_UID]),
    version=st.integers(VERSION - 1, VERSION + 1),
    controller=st.sampled_from(["", PARENT_UID, "uid-else"]),
    is_deleting=st.booleans(),
    spec=st.sampled_from([{}, {"image": "a"}]),
)
cases = st.builds(
    Case,
    order=st.builds(doubtful, orders, st.booleans()),
    seen=observations,
    refusal=st.none() | st.sampled_from([reply(409), reply(422), reply(200)]),
    required=st.sampled_from([Precondition(), AT_VERSION]),
)


@given(orders, st.integers(0, 599), st.text(max_size=3))
def test_every_answer_has_a_rule(of: Order, status: int, reason: str) -> None:
    verdict = rule_for_answer(of, reply(status, reason=reason)).verdict
    assert verdict in {
        Judgement.WRITTEN,
        Judgement.GONE,
        Judgement.FAILED,
        Judgement.RETRY,
        Judgement.LOOK_LATER,
        Judgement.LOOK,
    }


@given(cases)
def test_every_observation_has_a_rule(case: Case) -> None:
    assert rule_for_observation(case).verdict not in {Judgement.LOOK, Judgement.LOOK_LATER}


@given(cases)
def test_invariant_11_nothing_is_sent_to_another_incarnation_or_to_bring_one_back(case: Case) -> None:
    if rule_for_observation(case).verdict is Judgement.SEND and case.order.intent.target_uid:
        assert case.order.verb == "create" or (case.seen is not None and case.seen.uid == UID)


@given(cases)
def test_invariant_7_in_doubt_nothing_is_sent_where_the_first_request_may_have_been(case: Case) -> None:
    """It is sent only where nothing is, to the version before it, or where twice is the same as once."""
    if not case.is_doubtful or rule_for_observation(case).verdict is not Judgement.SEND:
        return
    is_harmless = case.order.verb == "delete" and bool(case.order.intent.target_uid)
    assert case.seen is None or is_harmless or case.seen.version == case.order.intent.target_version


PAGE = Path(__file__).parents[3] / "docs/writes.md"


def test_the_page_on_writes_shows_both_tables() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    shown = [row for row in rows if row[1] in set(Judgement)]
    rules = [(rule.found, rule.verdict, rule.why) for rule in ANSWER_RULES]
    rules += [(rule.found, rule.verdict, rule.why) for rule in SIGHT_RULES]
    assert shown == [(text, verdict.value, why) for text, verdict, why in rules]
