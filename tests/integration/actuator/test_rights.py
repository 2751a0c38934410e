"""What an actuator may send: rights that suffice, what its code declares, and in a dry run nothing."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from levelog import Intent, Level, Operator, apply
from levelog.intents import Verb
from levelog_actuator.dryrun import DryRun
from levelog_actuator.outbox import ActuatorSettings
from levelog_actuator.requests import RIGHTS, Right
from levelog_actuator.results import Ended
from levelog_actuator.sending import Sender
from levelog_base.secrets.redaction import Redactor
from levelog_base.wire.canonical import canonical
from levelog_kube.client import connect
from levelog_processors.program import Program
from levelog_store.actuate.claims import ClaimedIntent
from rigs.acting import QUICK, WEBS, Acting
from rigs.controlplane import ControlPlane
from rigs.intents import claimed_intent, intent
from rigs.kinds import ConfigMap, Web, manifest
from rigs.waiting import until

WEBS_PATH = "/apis/example.com/v1/namespaces/default/webs"
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
        metadata = (await cluster.admin.create(WEBS_PATH, made))["metadata"]
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


def program(writes: Any) -> Program:
    op = Operator("webs")

    @op.view
    def pods(web: Web) -> Level[bool]:
        return Level(desired=True, actual=False)

    @op.reconcile(pods, writes=writes)
    def write(web: Web) -> Iterator[Intent]:
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})

    return Program([op])


def config(acting: Acting, verb: str = "apply", **columns: Any) -> Any:
    """An intent of a Web in the namespace for a ConfigMap in it, unless columns say otherwise."""
    namespace = columns.pop("namespace", acting.namespace)
    columns.setdefault("parent", f"webs.example.com/{acting.namespace}/shop")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}}
    return acting.intent(verb, body=body, target=f"configmaps/{namespace}/a", **columns)


def told(acting: Acting, api_version: str, kind: str) -> Any:
    """An intent of a Web for an Event about an object of the kind."""
    regarding = {"apiVersion": api_version, "kind": kind, "name": "shop", "namespace": acting.namespace}
    return acting.intent(
        "event",
        body={"regarding": regarding, "type": "Normal", "reason": "Told", "action": "Told", "reportingController": "c"},
        target=f"events.events.k8s.io/{acting.namespace}/shop.1",
        api_version="events.k8s.io/v1",
        kind="Event",
        parent=f"webs.example.com/{acting.namespace}/shop",
    )


APPLIED = {ConfigMap: ["apply"]}
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "another verb": (APPLIED, {"verb": "create"}, "writes= of write does not name it"),
    "another resource": ({Web: ["apply"]}, {}, "writes= of write does not name it"),
    "another namespace": (APPLIED, {"namespace": "default"}, "where write writes alone"),
    "another namespace, nothing declared": (None, {"namespace": "default"}, "where write writes alone"),
    "a view that is not there": (APPLIED, {"view": "webs/other"}, "no reconcile function"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_invariant_19_an_intent_that_the_code_does_not_declare_is_not_sent(on_sandbox: Acting, what: str) -> None:
    declared, columns, why = REFUSED[what]
    on_sandbox.writers = program(declared).writers
    wanted = config(on_sandbox, **columns)
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(wanted)
    assert receipt.outcome == "conflict", "the level is decided again, by the code that is there"
    assert "not sent: " in receipt.error
    assert why in receipt.error
    assert on_sandbox.sent() == []


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("v1", "Pod"), ("v1", "ConfigMap"), ("v1", "Web"), ("other.com/v1", "Web"), ("example.com/v1", "Other")],
)
async def test_an_event_about_a_class_that_the_code_does_not_declare_it_of_is_not_sent(
    on_sandbox: Acting, api_version: str, kind: str
) -> None:
    on_sandbox.writers = program({ConfigMap: ["apply"], Web: ["event"]}).writers
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(told(on_sandbox, api_version, kind))
    assert receipt.outcome == "conflict"
    assert "writes= of write does not name it" in receipt.error
    assert on_sandbox.sent() == []


@pytest.mark.parametrize("body", [{}, {"regarding": "shop"}])
async def test_an_event_about_nothing_is_not_sent(on_sandbox: Acting, body: Any) -> None:
    on_sandbox.writers = program({Web: ["event"]}).writers
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(told(on_sandbox, "example.com/v1", "Web") | {"body": canonical(body)})
    assert receipt.outcome == "conflict"
    assert on_sandbox.sent() == []


@pytest.mark.parametrize("writes", [{Web: ["event"]}, None])
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_an_event_about_a_declared_class_is_sent(on_sandbox: Acting, writes: Any, version: str) -> None:
    on_sandbox.writers = program(writes).writers
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(told(on_sandbox, f"example.com/{version}", "Web"))
    assert receipt.outcome == "written", receipt.error


SENT: dict[str, tuple[Any, dict[str, Any]]] = {
    "as declared": (APPLIED, {}),
    "nothing declared": (None, {}),
    "anywhere": ({ConfigMap: ["apply", "anywhere"]}, {"namespace": "default"}),
    "a parent without a namespace": (APPLIED, {"parent": "tenants.example.com/_/shop"}),
}


@pytest.mark.parametrize("what", SENT)
async def test_an_intent_that_the_code_declares_is_sent(on_sandbox: Acting, what: str) -> None:
    declared, columns = SENT[what]
    on_sandbox.writers = program(declared).writers
    async with on_sandbox.running():
        (receipt,) = await on_sandbox.carried_out(config(on_sandbox, **columns))
    assert receipt.outcome in ("written", "unchanged"), receipt.error


async def test_a_dry_run_tells_each_write_and_leaves_it_to_the_next_run(acting: Acting) -> None:
    seen = {name: await acting.make("configmaps", name, data={"k": "1"}) for name in ("merged", "applied", "deleted")}
    web = await acting.make(WEBS, "w", spec={})
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"k": "2"}}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"n": "2"}}
    wanted = [
        acting.intent("create", body=new),
        acting.intent("patch", seen["merged"], body={"data": {"k": "2"}}),
        acting.intent("apply", seen["applied"], body=applied),
        acting.intent("patch_status", web, body={"status": {"ready": 1}}),
        acting.intent("delete", seen["deleted"]),
    ]
    effect = acting.intent("call", target=f"configmaps/{acting.namespace}/e", body={})
    await acting.decide(effect)
    keys = await acting.decide(*wanted)
    before = await acting.rows()
    dry = DryRun(acting.database, acting.scope, acting.client, acting.notifier, settings=QUICK, redactor=Redactor())
    running = asyncio.create_task(dry.run())

    async def is_told() -> bool:
        if running.done():
            running.result()
        return dry.told.keys() >= {*keys, effect["key"]}

    try:
        await until(is_told, "what would be written")
    finally:
        running.cancel()
        await asyncio.wait([running])
    place = acting.namespace
    assert [dry.told[key] for key in keys] == [
        f"create configmaps/{place}/new would be written: it is not there yet",
        f"patch configmaps/{place}/merged would be written: data.k",
        f"apply configmaps/{place}/applied would be written: data.n",
        f"patch_status {WEBS}/{place}/w would be written: status.ready",
        f"delete configmaps/{place}/deleted would be written",
    ]
    assert dry.told[effect["key"]] == f"call configmaps/{place}/e would be carried out"
    assert [request.query["dryRun"] for request in acting.sent()] == ["All"] * 5
    assert await acting.get("configmaps", "new") is None
    for name, made in seen.items():
        now = await acting.get("configmaps", name)
        assert now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert await acting.rows() == before
    async with acting.running():
        receipts = await acting.receipts_of(keys)
    assert {receipt.outcome for receipt in receipts} == {"written"}
    assert len([request for request in acting.effective() if "dryRun" not in request.query]) == 5
