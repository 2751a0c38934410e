"""`levelog rbac`: the roles that an application needs, and no others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from levelog import Index, Intent, Level, Operator, Resource, apply
from levelog.handlers.viewhandlers import VERBS
from levelog.intents import Verb
from levelog_actuator.requests import RIGHTS
from levelog_base.errors import ConfigurationError
from levelog_base.wire.objects import Application
from levelog_cli.deployment.accounts import roles_of
from levelog_cli.loading import LoadedApplication, load_application
from levelog_cli.settings import Settings
from levelog_processors.program import Program
from rigs.kinds import ConfigMap, Web

EXAMPLES = Path(__file__).parents[3] / "examples"


class Zone(Resource, group="example.com", version="v1", plural="zones", scope="Cluster"):
    pass


def application(name: str = "webs", *, writes: Any) -> LoadedApplication:
    op = Operator("webs")

    @op.index
    def webs(web: Web) -> Iterator[tuple[str, str]]:
        yield web.metadata.name, ""

    @op.view
    def zones(zone: Zone, webs: Index[str, str]) -> Level[int]:
        return Level(desired=1, actual=len(webs))

    @op.reconcile(zones, writes=writes)
    def fill(zone: Zone) -> Iterator[Intent]:
        yield apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}})

    return LoadedApplication(Application(name), Program([op]))


def application_with_conditions(*, events: bool) -> LoadedApplication:
    op = Operator("webs")
    op.conditions(Web, events=events)
    return LoadedApplication(Application("webs"), Program([op]))


def documents(text: str) -> dict[tuple[str, str, str], Any]:
    """By kind, namespace and name."""
    loaded = [document for document in yaml.safe_load_all(text) if document]
    found = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in loaded}
    assert len(found) == len(loaded)
    return found


def rules(text: str, kind: str, name: str, namespace: str = "") -> list[tuple[str, str, list[str]]]:
    role = documents(text)[kind, namespace, name]
    return [(rule["apiGroups"][0], rule["resources"][0], rule["verbs"]) for rule in role["rules"]]


def test_every_verb_of_an_intent_has_its_rights() -> None:
    assert RIGHTS.keys() == set(VERBS)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("apply", [("configmaps", ["get", "create", "patch"])]),
        ("create", [("configmaps", ["get", "create"])]),
        ("patch", [("configmaps", ["get", "patch"])]),
        ("patch_status", [("configmaps", ["get"]), ("configmaps/status", ["patch"])]),
        ("delete", [("configmaps", ["get", "delete"])]),
    ],
)
def test_an_actuator_has_the_rights_for_its_intents_alone(verb: Verb, expected: list[tuple[str, list[str]]]) -> None:
    text = roles_of(application(writes={ConfigMap: [verb]}), operator_namespace="default", namespaces=())
    found = rules(text, "ClusterRole", "levelog-webs-actuate")
    assert found == [
        *(("", resource, verbs) for resource, verbs in expected),
        ("", "namespaces", ["get"]),
    ]
    assert rules(text, "ClusterRole", "levelog-webs-ingest") == [
        ("", "namespaces", ["get"]),
        ("example.com", "webs", ["list", "watch"]),
        ("example.com", "zones", ["list", "watch"]),
    ]
    assert not any(kind != "ServiceAccount" and "process" in name for kind, _, name in documents(text))


@pytest.mark.parametrize("events", [True, False])
def test_conditions_need_the_rights_for_events_where_they_leave_some(events: bool) -> None:
    text = roles_of(application_with_conditions(events=events), operator_namespace="default", namespaces=())
    found = rules(text, "ClusterRole", "levelog-webs-actuate")
    assert ("example.com", "webs/status", ["patch"]) in found
    assert (("events.k8s.io", "events", ["get", "create", "patch"]) in found) is events


def test_with_namespaces_only_what_has_none_is_granted_everywhere() -> None:
    text = roles_of(application(writes={ConfigMap: ["delete"]}), operator_namespace="ops", namespaces=("a", "b"))
    for namespace in ("a", "b"):
        assert rules(text, "Role", "levelog-webs-ingest", namespace) == [("example.com", "webs", ["list", "watch"])]
        assert rules(text, "Role", "levelog-webs-actuate", namespace) == [("", "configmaps", ["get", "delete"])]
        [subject] = documents(text)["RoleBinding", namespace, "levelog-webs-actuate"]["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "levelog-webs-actuate", "namespace": "ops"}
    assert rules(text, "ClusterRole", "levelog-webs-actuate") == [("", "namespaces", ["get"])]
    assert ("example.com", "zones", ["list", "watch"]) in rules(text, "ClusterRole", "levelog-webs-ingest")
    assert ("ServiceAccount", "ops", "levelog-webs-process") in documents(text)


def test_the_roles_are_the_same_in_whatever_order_the_verbs_stand() -> None:
    one, other = ({ConfigMap: verbs} for verbs in (["apply", "delete"], ["delete", "apply"]))
    assert roles_of(application(writes=one), operator_namespace="a", namespaces=()) == roles_of(
        application(writes=other), operator_namespace="a", namespaces=()
    )


def test_who_takes_finalizers_off_may_patch() -> None:
    op = Operator("webs")
    op.remove_finalizer(Web)
    text = roles_of(LoadedApplication(Application("webs"), Program([op])), operator_namespace="a", namespaces=())
    assert ("example.com", "webs", ["get", "patch"]) in rules(text, "ClusterRole", "levelog-webs-actuate")


def test_who_writes_bindings_is_told_that_the_api_asks_for_the_rights_in_them() -> None:
    class RoleBinding(Resource, group="rbac.authorization.k8s.io", version="v1", plural="rolebindings"):
        pass

    said = "# The API takes roles and bindings only from those who have all rights in them"
    for verbs, is_told in ((["apply"], True), (["create"], True), (["delete"], False)):
        text = roles_of(application(writes={RoleBinding: verbs}), operator_namespace="default", namespaces=())
        assert (said in text) == is_told
        assert documents(text)


def test_a_function_that_does_not_say_what_it_writes_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"write is not known: fill; .*op\.reconcile\(zones, w"):
        roles_of(application(writes=None), operator_namespace="default", namespaces=())


def test_names_of_accounts_are_names_in_the_api() -> None:
    text = roles_of(application("My_App.2", writes={}), operator_namespace="default", namespaces=())
    assert ("ServiceAccount", "default", "levelog-my-app-2-ingest") in documents(text)


@pytest.mark.parametrize("name", [file.stem for file in EXAMPLES.glob("*/*.py") if file.stem == file.parent.name])
def test_every_example_says_what_it_writes(name: str) -> None:
    loaded = load_application(Settings(), [EXAMPLES / name / f"{name}.py"])
    text = roles_of(loaded, operator_namespace="default", namespaces=())
    assert ("ClusterRole", "", f"levelog-{name}-ingest") in documents(text)
