"""An actuator sends nothing that the code which it has loaded does not declare, whoever wrote the intent."""

from collections.abc import Iterator
from typing import Any

import pytest

from levelog import Intent, Level, Operator, apply
from levelog_base.wire.canonical import canonical
from levelog_processors.program import Program
from rigs.acting import Acting
from rigs.kinds import ConfigMap, Web


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
