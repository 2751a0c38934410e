import re
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
    Reply,
    rule_for_answer,
    rule_for_observation,
)
from levelog_actuator.requests import Order, Precondition
from levelog_kube.failures import FailureCause
from rigs.orders import OTHER_UID, PARENT_UID, UID, VERBS, VERSION, observation, order, unseen

JSON = {"body": [], "options": {"patch_type": "json"}}
SAME_NAME = 'webs.example.com "a" not found'
MANAGERS = (FailureCause(reason="FieldManagerConflict", message='conflict with "x"', field=".spec.image"),)
AT_VERSION = Precondition(version=VERSION)


def reply(status: int, **fields: Any) -> Reply:
    return Reply(status=status, **fields)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", [200, 201, 202])
def test_a_write_that_was_accepted_is_written(verb: str, status: int) -> None:
    assert rule_for_answer(order(verb), reply(status)).verdict is Judgement.WRITTEN


@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_a_target_that_is_not_found_is_gone(verb: str) -> None:
    assert rule_for_answer(order(verb), reply(404, reason="NotFound", message=SAME_NAME)).verdict is Judgement.GONE


def test_a_status_that_is_not_found_is_looked_into_since_the_resource_may_have_no_such_subresource() -> None:
    not_found = reply(404, reason="NotFound", message=SAME_NAME)
    assert rule_for_answer(order("patch_status"), not_found).verdict is Judgement.LOOK
    assert judge(order("patch_status"), None, refusal=not_found) is Judgement.GONE
    assert judge(order("patch_status"), observation(uid=OTHER_UID), refusal=not_found) is Judgement.GONE
    assert (
        judge(unseen("patch_status"), observation(uid=OTHER_UID), refusal=not_found, required=Precondition(uid=UID))
        is Judgement.GONE
    )
    for is_doubtful in (True, False):
        moved = observation(version=VERSION + 1, status={"ready": 1})
        assert judge(order("patch_status"), moved, refusal=not_found, is_doubtful=is_doubtful) is Judgement.FAILED


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "message", ["404 page not found", "the server could not find the requested resource", 'namespaces "x" not found']
)
def test_a_resource_or_namespace_that_is_not_found_may_come(verb: str, message: str) -> None:
    assert rule_for_answer(order(verb), reply(404, reason="NotFound", message=message)).verdict is Judgement.RETRY


def test_a_field_of_another_manager_is_refused_for_good() -> None:
    assert rule_for_answer(order("apply"), reply(409, causes=MANAGERS)).verdict is Judgement.FAILED


@pytest.mark.parametrize("verb", VERBS)
def test_other_conflicts_are_looked_into(verb: str) -> None:
    assert rule_for_answer(order(verb), reply(409, reason="Conflict")).verdict is Judgement.LOOK


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", [400, 403, 405, 406, 410, 413, 415])
def test_what_is_malformed_or_forbidden_fails(verb: str, status: int) -> None:
    assert rule_for_answer(order(verb), reply(status)).verdict is Judgement.FAILED


def test_what_is_invalid_fails_unless_it_may_be_about_another_incarnation() -> None:
    assert rule_for_answer(unseen("create"), reply(422)).verdict is Judgement.FAILED
    assert {rule_for_answer(order(verb), reply(422)).verdict for verb in VERBS if verb != "create"} == {Judgement.LOOK}


@pytest.mark.parametrize("status", [401, 429])
def test_what_the_server_did_not_take_is_sent_again(status: int) -> None:
    assert rule_for_answer(order(), reply(status)).verdict is Judgement.RETRY


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_what_may_have_taken_effect_is_looked_at_before_anything_is_sent_again(status: int) -> None:
    assert rule_for_answer(order(), reply(status)).verdict is Judgement.LOOK_LATER


def test_no_answer_is_a_doubt_only_if_something_was_sent() -> None:
    assert rule_for_answer(order(), reply(0)).verdict is Judgement.LOOK_LATER
    assert rule_for_answer(order(), reply(0, is_sent=False)).verdict is Judgement.RETRY


@pytest.mark.parametrize(
    "message",
    [
        "failed to create typed patch object (/a; v1, Kind=Web): errors:\n  .spec.x: field not declared in schema",
        "failed to create typed live object (default/a; example.com/v1, Kind=Web): .spec.image: expected numeric",
        "failed to convert new object (/a; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured "
        "object to apps/v1, Kind=Deployment: quantities must match the regular expression",
        "etcdserver: request is too large",
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2500528 vs. 2097152)",
    ],
)
def test_a_500_that_refuses_what_was_sent_fails_and_counts_as_422(message: str) -> None:
    refusal = reply(500, message=message)
    assert rule_for_answer(order("apply"), refusal).verdict is Judgement.FAILED
    assert (refusal.counts_as, reply(503, message=message).counts_as) == (422, 503)


@pytest.mark.parametrize(
    "message",
    [
        "failed to convert new object (/a; example.com/v1, Kind=Web) to proper version: conversion webhook for "
        "example.com/v1, Kind=Web failed: connection refused",
        "rpc error: code = ResourceExhausted desc = etcdserver: too many requests",
        "etcdserver: request timed out",
    ],
)
def test_a_500_about_the_server_is_looked_into_later(message: str) -> None:
    refusal = reply(500, message=message)
    assert rule_for_answer(order("apply"), refusal).verdict is Judgement.LOOK_LATER
    assert refusal.counts_as == 500


def judge(of: Order, seen: Any, **fields: Any) -> Judgement:
    asked = doubtful(of, fields.pop("is_doubtful", False))
    return rule_for_observation(Case(order=asked, seen=seen, **fields)).verdict


def doubtful(of: Order, is_doubtful: bool) -> Order:
    return replace(of, intent=replace(of.intent, is_doubtful=is_doubtful))


DOUBT = {"is_doubtful": True}
CONFLICT, INVALID, ACCEPTED = ({"refusal": reply(status)} for status in (409, 422, 200))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "create"])
@pytest.mark.parametrize("more", [DOUBT, CONFLICT, INVALID, DOUBT | CONFLICT, DOUBT | INVALID])
def test_another_incarnation_and_none_are_gone(verb: str, more: Any) -> None:
    assert judge(order(verb), None, **more) is Judgement.GONE
    assert judge(order(verb), observation(uid=OTHER_UID), **more) is Judgement.GONE


@pytest.mark.parametrize("verb", ["apply", "create"])
def test_what_would_be_made_is_made_if_it_is_not_there(verb: str) -> None:
    assert judge(unseen(verb), None, **DOUBT) is Judgement.SEND
    assert judge(unseen(verb), None, **CONFLICT) is Judgement.RETRY
    assert judge(unseen(verb), None, **INVALID) is Judgement.FAILED


@pytest.mark.parametrize("verb", ["apply", "create"])
@pytest.mark.parametrize("more", [DOUBT, CONFLICT])
def test_a_name_that_another_owner_has_is_taken(verb: str, more: Any) -> None:
    assert judge(unseen(verb), observation(controller="uid-else"), **more) is Judgement.FAILED


def test_create_accepts_what_has_the_same_owner_and_nothing_else() -> None:
    assert judge(unseen("create"), observation(), **CONFLICT) is Judgement.UNCHANGED
    assert judge(unseen("create"), observation(controller=""), **CONFLICT) is Judgement.FAILED
    unowned = unseen("create", body={"metadata": {"name": "a"}})
    assert judge(unowned, observation(controller=""), **CONFLICT) is Judgement.UNCHANGED
    assert judge(unowned, observation(), **CONFLICT) is Judgement.FAILED
    assert judge(unseen("create"), observation(), **DOUBT) is Judgement.WRITTEN


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


def test_in_doubt_what_holds_the_fields_is_written() -> None:
    assert judge(order("patch"), observation(spec={"image": "a"}, version=9), **DOUBT) is Judgement.WRITTEN
    assert judge(order("patch_status"), observation(status={"ready": 1}), **DOUBT) is Judgement.WRITTEN


@pytest.mark.parametrize("verb", ["apply", "patch", "patch_status"])
def test_in_doubt_it_is_sent_again_only_to_the_version_that_was_seen(verb: str) -> None:
    assert judge(order(verb), observation(), **DOUBT) is Judgement.SEND
    assert judge(order(verb), observation(version=VERSION + 1), **DOUBT) is Judgement.CONFLICT
    assert judge(order("patch", **JSON), observation(version=VERSION + 1), **DOUBT) is Judgement.CONFLICT


def test_in_doubt_a_deletion_is_asked_for_again_and_an_accepted_one_is_written() -> None:
    assert judge(order("delete"), observation(version=VERSION + 1), **DOUBT) is Judgement.SEND
    assert judge(order("delete"), observation(is_deleting=True), **DOUBT) is Judgement.WRITTEN
    guarded = order("delete", options={"if_unchanged": True})
    assert judge(guarded, observation(version=VERSION + 1), **DOUBT) is Judgement.CONFLICT


@pytest.mark.parametrize("verb", ["patch", "patch_status", "delete"])
def test_what_was_not_seen_is_written_for_what_is_found_and_in_doubt_not_again(verb: str) -> None:
    assert judge(unseen(verb), observation()) is Judgement.SEND
    assert judge(unseen(verb), observation(), **DOUBT) is Judgement.CONFLICT
    assert judge(unseen(verb), None) is Judgement.GONE


def test_a_status_that_others_changed_is_sent_for_the_new_version() -> None:
    moved = observation(version=VERSION + 1)
    assert judge(order("patch_status"), moved, **CONFLICT, required=AT_VERSION) is Judgement.SEND
    assert judge(order("patch", **JSON), moved, **INVALID, required=AT_VERSION) is Judgement.CONFLICT
    guarded = order("patch_status", options={"if_unchanged": True})
    assert judge(guarded, moved, **CONFLICT, required=AT_VERSION) is Judgement.CONFLICT


def test_a_json_patch_whose_test_fails_is_in_conflict_with_a_newer_version_and_else_invalid() -> None:
    test = {"op": "test", "path": "/spec/image", "value": "a"}
    tested = order("patch", body=[test, {"op": "remove", "path": "/spec/image"}], options={"patch_type": "json"})
    moved, required = observation(version=VERSION + 1), tested.first_guard
    assert judge(tested, moved, **INVALID, required=required) is Judgement.CONFLICT
    assert judge(tested, observation(), **INVALID, required=required) is Judgement.FAILED
    assert judge(tested, moved, **CONFLICT, required=required) is Judgement.RETRY


@pytest.mark.parametrize("verb", ["apply", "patch", "delete"])
def test_a_conflict_on_the_same_incarnation_passes(verb: str) -> None:
    assert judge(order(verb), observation(), **CONFLICT) is Judgement.RETRY


@pytest.mark.parametrize("verb", ["apply", "patch", "patch_status"])
def test_what_is_invalid_for_the_version_that_was_required_fails(verb: str) -> None:
    assert judge(order(verb), observation(), **INVALID, required=AT_VERSION) is Judgement.FAILED


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
