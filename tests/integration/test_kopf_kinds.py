"""Kopf handlers for EVERYTHING, for categories, and for what a function takes: of the kinds that the cluster serves."""

from pathlib import Path
from typing import Any

import pytest

from levelog.kinds import ServedKind, expand
from rigs.kopffiles import KopfRun, kopf_run, load_kopf

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}, "data": {"a": "b"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "default"}}


def seen(kopf: KopfRun, *manifests: dict[str, Any]) -> list[Any]:
    for manifest in manifests:
        kopf.simulation.apply(manifest)
    kopf.simulation.run()
    return sorted(kopf.told())


def test_everything_is_each_kind_that_is_served_but_events_and_leases(tmp_path: Path) -> None:
    source = """
    @kopf.on.event(kopf.EVERYTHING)
    def log_it(resource, name, **_):
        told.append((resource.name, name))

    @kopf.on.create("example.com", "v1", "shops")
    def made(**_):
        pass
    """
    with kopf_run(tmp_path, source) as kopf:
        kopf.simulation.run()
        assert ("namespaces", "default") in kopf.told()
        shop = {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "default"}}
        assert seen(kopf, POD, MAP, NODE, LEASE, shop) == [
            ("configmaps", "m"),
            ("nodes", "n"),
            ("pods", "p"),
            ("shops.example.com", "a"),
        ]
        handlers = kopf.operator.record_handlers
        assert {"log_it_pods", "log_it_deployments_apps", "log_it_shops_example_com"} <= handlers.keys()
        assert not {"log_it", "log_it_events", "log_it_events_events_k8s_io"} & handlers.keys()


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ('category="all"', ["Pod"]),
        ('"", "v1", kopf.EVERYTHING', ["ConfigMap", "Node", "Pod"]),
        ('"v1", kopf.EVERYTHING', ["ConfigMap", "Node", "Pod"]),
        ('"apps", kopf.EVERYTHING', []),
        ('lambda resource: not resource.namespaced', ["Node"]),
        ('lambda resource: resource.group == "coordination.k8s.io"', ["Lease"]),
        ('lambda resource: "po" in resource.shortcuts and "watch" in resource.verbs', ["Pod"]),
        ('category="all", kind="Service"', []),
    ],
)  # fmt: skip
def test_a_selector_takes_the_kinds_that_it_means(tmp_path: Path, selector: str, taken: list[str]) -> None:
    source = f"""
    @kopf.on.create({selector})
    def made(body, **_):
        if body["metadata"]["name"] in ("p", "m", "n", "l"):
            told.append(body["kind"])
    """
    with kopf_run(tmp_path, source) as kopf:
        assert seen(kopf, POD, MAP, NODE, LEASE) == taken


def test_all_kinds_of_handlers_are_made_of_each(tmp_path: Path) -> None:
    source = """
    @kopf.on.create("", "v1", kopf.EVERYTHING, labels={"a": "b"})
    @kopf.on.update("", "v1", kopf.EVERYTHING, labels={"a": "b"}, field="data", id="filled")
    @kopf.timer("", "v1", kopf.EVERYTHING, labels={"a": "b"}, interval=60, id="tick")
    def told_of(resource, reason=None, **_):
        told.append((resource.kind, str(reason)))
    """
    labelled = [{**each, "metadata": {**each["metadata"], "labels": {"a": "b"}}} for each in (MAP, NODE)]
    with kopf_run(tmp_path, source) as kopf:
        assert seen(kopf, *labelled) == sorted(
            (kind, reason) for kind in ("ConfigMap", "Node") for reason in ("None", "create")
        )
        assert seen(kopf, {**labelled[0], "data": {"a": "c"}}) == [("ConfigMap", "update")]


def test_a_handler_has_the_same_name_whatever_else_is_served(tmp_path: Path) -> None:
    def names(*plurals: str) -> set[str]:
        operator = load_kopf(tmp_path, "@kopf.on.create(kopf.EVERYTHING)\ndef made(**_): pass\n")
        kinds = [
            ServedKind(group=g, version="v1", plural=p, kind=p.title(), singular=p, namespaced=True)
            for p, _, g in (plural.partition(".") for plural in plurals)
        ]
        assert expand([operator], kinds) == {"made is for EVERYTHING": len(kinds)}
        assert expand([operator], kinds) == {}  # once
        return {name.removesuffix("_handled") for name in operator.effects}

    assert names("pods", "services") == {"made_pods", "made_services"}
    # The view of the finalizer of a second resource of one name is named in full, also of the core group.
    assert names("aaa", "services.knative.dev", "services") == {
        "made_aaa",
        "made_services_knative_dev",
        "made_services",
    }


def test_a_kind_is_taken_in_the_version_that_the_file_names(tmp_path: Path) -> None:
    source = """
    @kopf.on.event(kopf.EVERYTHING)
    @kopf.on.create("autoscaling", "v1", "horizontalpodautoscalers")
    def told_of(resource, **_):
        pass
    """
    with kopf_run(tmp_path, source) as kopf:
        assert {r.version for r in kopf.operator.reads() if r.group == "autoscaling"} == {"v1"}
