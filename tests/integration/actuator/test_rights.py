"""The rights of each intent suffice at kube-apiserver, and none of them is too many."""

import secrets
from collections.abc import Sequence
from typing import Any

import pytest

from levelog.intents import Verb
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.results import Ended
from levelog_actuator.rights import RIGHTS, Right
from levelog_actuator.sending import Sender
from levelog_kube.client import connect
from levelog_store.actuate.claims import ClaimedIntent
from rigs.controlplane import ControlPlane
from rigs.intents import claimed_intent, intent
from rigs.kinds import manifest

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
    made = manifest("Web", name := f"w-{secrets.token_hex(4)}")
    body, seen = BODIES[verb], dict[str, Any]()
    if verb in ("apply", "create"):
        body = {**made, "metadata": made["metadata"] | body.get("metadata", {})}
    else:
        metadata = (await cluster.admin.create(WEBS, made))["metadata"]
        seen = {"target_uid": metadata["uid"], "target_version": int(metadata["resourceVersion"])}
    target = f"webs.example.com/default/{name}"
    return claimed_intent(intent(target, verb=verb, body=body, parent=target, **seen), is_doubtful=is_doubtful)


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
