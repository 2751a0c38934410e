"""The rights of each intent suffice at kube-apiserver, and none of them is too many."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from levelog.intents import Verb
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.results import Ended
from levelog_actuator.rights import RIGHTS, Right
from levelog_actuator.sending import Sender
from levelog_base.wire.objects import ObjectKey
from levelog_kube.client import connect
from levelog_store.actuate.claims import ClaimedIntent
from rigs.controlplane import ControlPlane

WEBS = "/apis/example.com/v1/namespaces/default/webs"
BODIES: dict[Verb, Any] = {
    "apply": {"metadata": {"labels": {"by": "levelog"}}},
    "create": {},
    "patch": {"metadata": {"labels": {"by": "levelog"}}},
    "patch_status": {"status": {"message": "levelog"}},
    "delete": None,
}


async def intents(cluster: ControlPlane, verb: Verb) -> list[ClaimedIntent]:
    """One that is sent for the first time, and one of which a request may have taken effect."""
    return [await claimed(cluster, verb, is_doubtful=is_doubtful) for is_doubtful in (False, True)]


async def claimed(cluster: ControlPlane, verb: Verb, *, is_doubtful: bool) -> ClaimedIntent:
    name = f"w-{secrets.token_hex(4)}"
    key = ObjectKey(group="example.com", resource="webs", namespace="default", name=name)
    manifest = {"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": name, "namespace": "default"}}
    body = BODIES[verb]
    if verb in ("apply", "create"):
        seen: dict[str, Any] = {}
        body = {**manifest, "metadata": {**manifest["metadata"], **body.get("metadata", {})}}  # type: ignore[dict-item]
    else:
        seen = (await cluster.admin.create(WEBS, manifest))["metadata"]
    return ClaimedIntent(
        key=name,
        view="webs/pods",
        parent=str(key),
        parent_uid="uid",
        partition=0,
        decided_at=datetime(2026, 1, 1, tzinfo=UTC),
        round=1,
        verb=verb,
        target=str(key),
        api_version="example.com/v1",
        target_uid=seen.get("uid", ""),
        target_version=int(seen.get("resourceVersion", 0)),
        body=msgspec.json.encode(body),
        options=b"{}",
        attempts=1,
        claim=1,
        is_doubtful=is_doubtful,
    )


async def carry_out(cluster: ControlPlane, verb: Verb, rights: Sequence[Right]) -> tuple[list[Ended], str]:
    """What became of the intents of an actuator with these rights, and its name."""
    rules = [
        {
            "apiGroups": ["example.com"],
            "resources": [f"webs/{right.subresource}" if right.subresource else "webs"],
            "verbs": [right.verb],
        }
        for right in rights
    ]
    kubeconfig = await cluster.kubeconfig_for(rules)
    async with await connect(kubeconfig) as client:
        sender = Sender(client, ActuatorSettings())
        results = [await sender.carry_out(intent, lambda: True) for intent in await intents(cluster, verb)]
    assert all(isinstance(result, Ended) for result in results), results
    return [result for result in results if isinstance(result, Ended)], kubeconfig.stem


@pytest.mark.parametrize("verb", BODIES)
async def test_an_intent_needs_all_of_its_rights_and_asks_for_no_other(control_plane: ControlPlane, verb: Verb) -> None:
    if not await control_plane.admin.is_ok("/apis/example.com/v1/webs"):
        await control_plane.admin.create_crd("Web")
    results, account = await carry_out(control_plane, verb, RIGHTS[verb])
    assert [result.outcome for result in results] == ["written", "written"], results
    asked = await control_plane.audit.requests(user=f"system:serviceaccount:default:{account}", resource="webs")
    # A server-side apply of what is not there is logged as a patch, and needs the right to create it nevertheless.
    granted = {(right.verb, right.subresource) for right in RIGHTS[verb] if (verb, right.verb) != ("apply", "create")}
    assert {(request.verb, request.subresource) for request in asked} == granted

    for missing in RIGHTS[verb]:
        results, _ = await carry_out(control_plane, verb, [right for right in RIGHTS[verb] if right != missing])
        errors = [result.error for result in results if result.outcome == "failed"]
        what = f"webs/{missing.subresource}" if missing.subresource else "webs"
        assert errors
        assert all(f'cannot {missing.verb} resource "{what}"' in error for error in errors), (missing, errors)
