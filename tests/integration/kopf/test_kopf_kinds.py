"""Kopf handlers for EVERYTHING, for categories, and for what a function takes: of the kinds that the cluster serves."""

from pathlib import Path
from typing import Any

import pytest

from levelog.kinds import ServedKind, expand
from levelog_sandbox import Denial, Sandbox
from rigs.kopffiles import KopfRun, kopf_run, load_kopf
from rigs.kopfrivals import DEFINITION
from rigs.levelog import Levelog, define
from rigs.waiting import until

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
    plain: list[dict[str, Any]] = [MAP, NODE]
    labelled = [{**each, "metadata": {**each["metadata"], "labels": {"a": "b"}}} for each in plain]
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


AUDIT = """
from pathlib import Path

from levelog.compat import kopf


@kopf.on.event(kopf.EVERYTHING)
def log_it(resource, name, **_):
    with Path(__file__).with_name("told").open("a") as file:
        file.write(f"{resource.name} {name}\\n")


@kopf.on.create(category="all")
def made(**_):
    pass


@kopf.timer("acme.io", kopf.EVERYTHING, interval=60)
def none(**_):
    pass
"""


async def test_code_for_everything_is_tried_before_it_runs_and_said_once(tmp_path: Path) -> None:
    (tmp_path / "audit.py").write_text(AUDIT)
    async with Sandbox() as sandbox:
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        with levelog.start("run", "audit.py", "--reload") as running:
            await running.says("none is for EVERYTHING: 0 kinds that are served now")
            assert running.log.read_text().count("log_it is for EVERYTHING: ") == 1
            assert await running.stops() == 0


async def test_run_asks_its_cluster_once_and_commands_that_look_back_take_what_it_found(tmp_path: Path) -> None:
    (tmp_path / "audit.py").write_text(AUDIT)
    told = tmp_path / "told"

    async def is_told(line: str) -> None:
        await until(lambda: told.exists() and line in told.read_text().splitlines(), f"a record of {line}")

    async def is_made() -> bool:
        found = await levelog.levels("--view", "made_pods")
        return [each["status"] for each in found] == ["in_sync"]

    async with Sandbox() as sandbox:
        levelog = Levelog(tmp_path, sandbox.kubeconfig(tmp_path / "kubeconfig"))
        refused = "log_it is for EVERYTHING, and nobody has asked a cluster which kinds those are"
        said = await levelog.refused("plan", "audit.py", status=2)
        assert refused in said
        assert "name the resources in a loop: docs/from-kopf.md#everything-and-categories" in said
        sandbox.access.denials += [Denial("list", "secrets", namespace="", subresource="")]
        with levelog.start("run", "audit.py") as running:
            await is_told("namespaces default")
            sandbox.user.apply({**MAP, "metadata": {"name": "m", "namespace": "default"}})
            await is_told("configmaps m")
            sandbox.user.apply(POD)
            await until(is_made, "the handled pod")
            assert await running.stops() == 0
        log = running.log.read_text()
        assert "left out, as this account may not list and watch them: secrets" in log
        assert log.count("log_it is for EVERYTHING: ") == 1
        assert "none is for EVERYTHING: 0 kinds that are served now" in log
        assert "secrets" not in log.replace("watch them: secrets", "")

        rights = (await levelog.ends("rbac", "audit.py")).stdout
        assert 'resources: ["configmaps"]' in rights
        assert 'resources: ["secrets"]' not in rights
        assert "writes that would follow: none" in (await levelog.ends("plan", "audit.py")).stdout
        assert (await levelog.ends("replay", "audit.py")).status == 0
        nats = {"LEVELOG_NATS_URL": "nats://127.0.0.1:1", "LEVELOG_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/d"}
        assert refused in await levelog.refused("ingest", "audit.py", status=2, env=nats)

        await define(sandbox, DEFINITION)
        sandbox.access.denials.clear()
        with levelog.start("run", "audit.py") as running:
            sandbox.user.create(
                {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a", "namespace": "default"}}
            )
            await is_told("shops.example.com a")
            assert "left out" not in running.log.read_text()
            assert told.read_text().splitlines().count("configmaps m") == 1, "it was told of it before"
