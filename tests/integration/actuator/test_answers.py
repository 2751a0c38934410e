"""Answers that a kube-apiserver gives for reasons of its own, and what each leads to."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from levelog_sandbox import Sandbox
from rigs.acting import ACTUATOR, PLAINS, WEBS, Acting, config_map
from rigs.api import Api
from rigs.apirequests import asks
from rigs.fixtures import KUBE_APISERVER
from rigs.nats import NatsServer
from rigs.waiting import until


async def make_plain(acting: Acting) -> Any:
    if not await acting.api.is_ok("/apis/example.com/v1/plains"):
        await acting.api.create_crd("Plain", has_status=False)
    return await acting.make(PLAINS, "a", spec={})


async def test_a_status_without_a_subresource_fails_and_says_what_to_declare(acting: Acting) -> None:
    seen = await make_plain(acting)
    async with acting.running():
        receipt = await acting.does("patch_status", seen, body={"status": {"ready": 1}})
    assert (receipt.outcome, receipt.answer) == ("failed", 404)
    assert receipt.error.endswith("no status subresource: declare `subresources: {status: {}}` in the CRD")
    assert receipt.error.startswith(f"patch_status {PLAINS}/{acting.namespace}/a: ")


async def test_a_status_of_a_kopf_file_is_patched_with_the_object_where_it_has_no_subresource(acting: Acting) -> None:
    seen = await make_plain(acting)
    await acting.change(PLAINS, "a", {"metadata": {"labels": {"newer": "yes"}}})
    wanted = {"body": {"status": {"ready": 1}}, "options": {"as_field": True}}
    async with acting.running():
        other = await acting.does("patch_status", seen, target_uid="another", **wanted)
        first = await acting.does("patch_status", seen, **wanted)
    assert (other.outcome, first.outcome) == ("gone", "written")
    now = await acting.get(PLAINS, "a")
    assert now["status"] == {"ready": 1}
    assert first.target_version == int(now["metadata"]["resourceVersion"])


async def test_a_receipt_says_who_wrote_what_and_how_it_was_answered(acting: Acting) -> None:
    seen = await acting.make("configmaps", "a")
    async with acting.running() as actuator:
        receipt = await acting.does("patch", seen, body={"data": {"k": "1"}}, round=3)
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
        receipt = await acting.does("patch_status", seen, body={"status": {"ready": 4}})
    assert receipt.outcome == "written"
    assert (await acting.get(WEBS, "w"))["status"] == {"ready": 4, "wanted": 2}


async def test_a_status_is_not_sent_for_the_version_of_a_newer_incarnation(acting: Acting) -> None:
    old = await acting.make(WEBS, "w", spec={})
    await acting.remove(WEBS, "w")
    new = await acting.make(WEBS, "w", spec={})
    async with acting.running():
        await acting.does("patch_status", new, body={"status": {"ready": 1}})
        receipt = await acting.does("patch_status", old, body={"status": {"ready": 2}})
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
        wanted = acting.intent("create", body=config_map("bad", data={"k": "1"}))
        seen = await acting.make("configmaps", "good")
        labels = {"metadata": {"labels": {"is": "bad"}}}
        applied = config_map("good", metadata={"name": "good", **labels["metadata"]})
        async with acting.running():
            receipts = await acting.carried_out(
                wanted, acting.intent("patch", seen, body=labels), acting.intent("apply", seen, body=applied)
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

    await until(is_in_force, "the admission policy")
    try:
        yield
    finally:
        await acting.api.request("DELETE", f"{BINDINGS}/{name}")
        await acting.api.request("DELETE", f"{POLICIES}/{name}")


async def test_a_resource_that_is_served_later_is_waited_for(on_sandbox: Acting, sandbox: Sandbox) -> None:
    target = f"laters.example.com/{on_sandbox.namespace}/a"
    body = {"apiVersion": "example.com/v1", "kind": "Later", "metadata": {"name": "a"}, "spec": {}}
    async with on_sandbox.running():
        (key,) = await on_sandbox.decide(on_sandbox.intent("apply", body=body, target=target))
        await until(lambda: on_sandbox.postponed > 0, "an attempt in vain")
        await Api(sandbox.url).create_crd("Later")
        (receipt,) = await on_sandbox.receipts_of([key])
    assert receipt.outcome == "written"
