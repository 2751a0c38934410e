"""Answers that a kube-apiserver gives for reasons of its own, and what each leads to."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from levelog_sandbox import Sandbox
from rigs.acting import ACTUATOR, WEBS, Acting, writes
from rigs.api import Api
from rigs.apirequests import asks
from rigs.faults import Refuse
from rigs.fixtures import KUBE_APISERVER
from rigs.nats import NatsServer
from rigs.waiting import until

PLAINS = "plains.example.com"
"""A resource without subresources."""


def config_map(name: str, **fields: Any) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


async def test_a_status_without_a_subresource_fails_and_says_what_to_declare(acting: Acting) -> None:
    if not await acting.api.is_ok("/apis/example.com/v1/plains"):
        await acting.api.create_crd("Plain", has_status=False)
    made = await acting.api.create(
        acting.path(PLAINS), {"apiVersion": "example.com/v1", "kind": "Plain", "metadata": {"name": "a"}, "spec": {}}
    )
    seen = {"target_uid": made["metadata"]["uid"], "target_version": int(made["metadata"]["resourceVersion"])}
    wanted = acting.intent(
        "patch_status",
        body={"status": {"ready": 1}},
        target=f"{PLAINS}/{acting.namespace}/a",
        api_version="example.com/v1",
        **seen,
    )
    async with acting.running():
        (receipt,) = await acting.carried_out(wanted)
    assert (receipt.outcome, receipt.answer) == ("failed", 404)
    assert receipt.error.endswith("no status subresource: declare `subresources: {status: {}}` in the CRD")
    assert receipt.error.startswith(f"patch_status {PLAINS}/{acting.namespace}/a: ")


async def test_a_status_of_a_kopf_file_is_patched_with_the_object_where_it_has_no_subresource(acting: Acting) -> None:
    if not await acting.api.is_ok("/apis/example.com/v1/plains"):
        await acting.api.create_crd("Plain", has_status=False)
    plain = {"apiVersion": "example.com/v1", "kind": "Plain", "metadata": {"name": "a"}, "spec": {}}
    made = await acting.api.create(acting.path(PLAINS), plain)
    newer = {"metadata": {"labels": {"newer": "yes"}}}
    await acting.api.request("PATCH", acting.path(PLAINS, "a"), newer, content_type="application/merge-patch+json")
    first, other = (
        acting.intent(
            "patch_status",
            body={"status": {"ready": 1}},
            target=f"{PLAINS}/{acting.namespace}/a",
            api_version="example.com/v1",
            options={"as_field": True},
            target_uid=uid,
            target_version=int(made["metadata"]["resourceVersion"]),
        )
        for uid in (made["metadata"]["uid"], "another")
    )
    async with acting.running():
        receipts = [(await acting.carried_out(each))[0] for each in (other, first)]
    assert [each.outcome for each in receipts] == ["gone", "written"]
    now = await acting.get(PLAINS, "a")
    assert now["status"] == {"ready": 1}
    assert receipts[1].target_version == int(now["metadata"]["resourceVersion"])


async def test_a_receipt_says_who_wrote_what_and_how_it_was_answered(acting: Acting) -> None:
    seen = await acting.make("configmaps", "a")
    async with acting.running() as actuator:
        (receipt,) = await acting.carried_out(acting.intent("patch", seen, body={"data": {"k": "1"}}, round=3))
    now = await acting.get("configmaps", "a")
    assert (receipt.manager, receipt.process, receipt.answer) == ("levelog-webs", actuator.owner, 200)
    assert (receipt.view, receipt.round, receipt.verb) == ("webs/pods", 3, "patch")
    assert receipt.target_version == int(now["metadata"]["resourceVersion"])


async def test_statuses_decided_on_one_version_are_sent_for_the_versions_that_the_actuator_made(acting: Acting) -> None:
    seen = await acting.make(WEBS, "w", spec={})
    counts = [{"status": {"ready": 1}}, {"status": {"wanted": 2}}, {"status": {"ready": 3}}]
    async with acting.running():
        receipts = await acting.carried_out(*(acting.intent("patch_status", seen, body=body) for body in counts))
        assert [receipt.outcome for receipt in receipts] == ["written"] * 3
        assert len(acting.sent()) == 3
        assert not acting.proxy.log.points(asks("get", name="w", user_agent=ACTUATOR))
        await acting.change(WEBS, "w", {"metadata": {"labels": {"a": "b"}}})
        (receipt,) = await acting.carried_out(acting.intent("patch_status", seen, body={"status": {"ready": 4}}))
    assert receipt.outcome == "written"
    assert (await acting.get(WEBS, "w"))["status"] == {"ready": 4, "wanted": 2}


async def test_a_status_is_not_sent_for_the_version_of_a_newer_incarnation(acting: Acting) -> None:
    old = await acting.make(WEBS, "w", spec={})
    await acting.remove(WEBS, "w")
    new = await acting.make(WEBS, "w", spec={})
    async with acting.running():
        await acting.carried_out(acting.intent("patch_status", new, body={"status": {"ready": 1}}))
        (receipt,) = await acting.carried_out(acting.intent("patch_status", old, body={"status": {"ready": 2}}))
    assert receipt.outcome == "gone"
    assert (await acting.get(WEBS, "w"))["status"] == {"ready": 1}


@pytest.mark.parametrize("control_plane_or_none", [KUBE_APISERVER], indirect=True)
async def test_what_is_refused_by_a_500_is_sent_once_and_fails_as_by_a_422(acting: Acting) -> None:
    limits = {"containers": [{"name": "a", "image": "a", "resources": {"limits": {"cpu": "lots"}}}]}
    refused: dict[str, Any] = {
        "field not declared in schema": config_map("a", bogus=1),
        "quantities must match": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": limits},
        "illegal base64": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "!"}},
    }
    wanted = [
        acting.intent("apply", body=body, target=f"{body['kind'].lower()}s/{acting.namespace}/a")
        for body in refused.values()
    ]
    async with acting.running():
        receipts = await acting.carried_out(*wanted)
    assert [(each.outcome, each.answer, each.attempts) for each in receipts] == [("failed", 422, 1)] * 3
    for receipt, words in zip(receipts, refused, strict=True):
        assert ": 500: " in receipt.error
        assert words in receipt.error
    assert len(acting.sent()) == 3


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.mark.usefixtures("control_plane_binaries")
async def test_what_an_admission_policy_denies_fails_with_the_policys_words(
    control_plane: Any, nats_server: NatsServer, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path}/levelog.db"
    async with Acting(control_plane.admin, nats_server.url, database, tmp_path) as acting, denied(acting):
        wanted = acting.intent(
            "create", body=config_map("bad", data={"k": "1"}), target=f"configmaps/{acting.namespace}/bad"
        )
        seen = await acting.make("configmaps", "good")
        labels = {"metadata": {"labels": {"is": "bad"}}}
        applied = config_map("good", metadata={"name": "good", **labels["metadata"]})
        async with acting.running():
            receipts = await acting.carried_out(
                wanted,
                acting.intent("patch", seen, body=labels),
                acting.intent("apply", seen, body=applied),
            )
    assert [(each.outcome, each.answer) for each in receipts] == [("failed", 422)] * 3
    assert all("nothing bad here" in each.error for each in receipts)


@asynccontextmanager
async def denied(acting: Acting) -> AsyncGenerator[None]:
    """A policy of the test's namespace that denies what is named or labelled bad, in force."""
    name = f"deny-{acting.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    place = {"matchLabels": {"kubernetes.io/metadata.name": acting.namespace}}
    good = "object.metadata.name != 'bad' && (!has(object.metadata.labels) || !('is' in object.metadata.labels))"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": place},
        "validations": [{"expression": good, "message": "nothing bad here"}],
    }
    await acting.api.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    await acting.api.create(BINDINGS, binding)

    async def is_in_force() -> bool:
        path = f"{acting.path('configmaps')}?dryRun=All"
        return (await acting.api.request("POST", path, config_map("bad")))[0] == 422

    await until(is_in_force, "the admission policy", seconds=60)
    try:
        yield
    finally:
        await acting.api.request("DELETE", f"{BINDINGS}/{name}")
        await acting.api.request("DELETE", f"{POLICIES}/{name}")


@pytest.mark.usefixtures("control_plane_binaries")
async def test_what_a_role_does_not_allow_fails_and_names_the_right_that_is_missing(
    control_plane: Any, nats_server: NatsServer, tmp_path: Path
) -> None:
    admin: Api = control_plane.admin
    rules = [{"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["get", "create"]}]
    _, token = await admin.create_account(rules)
    async with Acting(admin, nats_server.url, f"sqlite:///{tmp_path}/levelog.db", tmp_path, token=token) as acting:
        seen = await acting.make("configmaps", "a")
        async with acting.running():
            refused, made = await acting.carried_out(
                acting.intent("patch", seen, body={"data": {"k": "1"}}),
                acting.intent("create", body=config_map("b"), target=f"configmaps/{acting.namespace}/b"),
            )
    assert (refused.outcome, refused.answer, made.outcome) == ("failed", 403, "written")
    assert 'cannot patch resource "configmaps"' in refused.error


async def test_a_resource_that_is_served_later_is_waited_for(on_sandbox: Acting, sandbox: Sandbox) -> None:
    target = f"laters.example.com/{on_sandbox.namespace}/a"
    body = {"apiVersion": "example.com/v1", "kind": "Later", "metadata": {"name": "a"}, "spec": {}}
    async with on_sandbox.running():
        (key,) = await on_sandbox.decide(on_sandbox.intent("apply", body=body, target=target))
        await until(lambda: on_sandbox.postponed > 0, "an attempt in vain")
        await Api(sandbox.url).create_crd("Later")
        (receipt,) = await on_sandbox.receipts_of([key])
    assert receipt.outcome == "written"


async def test_a_nul_in_an_answer_fails_its_intent_alone(on_either: Acting) -> None:
    bad = on_either.intent("patch", await on_either.make("configmaps", "a"), body={"data": {"k": "1"}})
    good = on_either.intent("patch", await on_either.make("configmaps", "b"), body={"data": {"k": "1"}})
    refusal = Refuse(code=400, reason="Never", message="a\0b")
    on_either.proxy.add(refusal, lambda request: writes(request) and request.path.endswith("/a"))
    async with on_either.running():
        refused, written = await on_either.carried_out(bad, good)
    assert (refused.outcome, written.outcome) == ("failed", "written")
    assert refused.error.endswith(r": a\0b")
