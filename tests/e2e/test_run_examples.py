"""The demo, and each example by `levelog run` on a real API server with no rights but those of `levelog rbac`."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from levelog_cli.demo.steps import STORY
from levelog_cli.deployment.accounts import roles_of
from levelog_cli.loading import load_application
from levelog_cli.settings import Settings
from rigs.api import Api
from rigs.controlplane import ControlPlane
from rigs.levelog import Levelog
from rigs.waiting import until

BETWEEN = "This time it looked between the two changes: "


async def test_the_demo_converges_with_no_call_and_no_write_in_vain() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from levelog_cli.main import main; main()", "demo", "--json"),
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert err == b""
    lines = out.decode().splitlines()
    summary = json.loads(lines[-1])
    assert summary["converged"] is True
    before_the_pod, at_two = (BETWEEN + then[:20] in out.decode() for then in (STORY[0].then, STORY[1].then))
    # two pods, none for 3→2→3, one, none for annotations, three deleted and three created
    assert summary["writes"] == 9 + 2 * at_two
    assert summary["spurious_wakes"] == 0
    assert summary["calls"]["webs/converge"] == 4 + 2 * at_two
    assert summary["seconds"] < 60
    assert lines[0].startswith("Starts NATS, SQLite and a Kubernetes API in memory")
    [first] = re.findall(r"Records 1 to (\d+) of the log", out.decode())
    causes = re.findall(r"for records? (\d+)", out.decode())
    assert int(first) < int(causes[0])
    assert summary["records"] > 100
    assert sum("no write" in line for line in lines) == 3 - at_two
    assert max(map(len, lines[:-1])) <= 80
    if before_the_pod:
        assert "(409, nothing changed)" in out.decode()
    else:
        assert "   log    6 records: 4 of objects, 2 receipts of writes" in lines


EXAMPLES = Path(__file__).parents[2] / "examples"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Rule: TypeAlias = Mapping[str, Sequence[str]]


def rule(resources: Sequence[str], *verbs: str, group: str = "") -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def printed_rules(name: str) -> list[Rule]:
    """What `levelog rbac` grants the processes of an example."""
    text = roles_of(
        load_application(Settings(), [EXAMPLES / name / f"{name}.py"]), operator_namespace="default", namespaces=()
    )
    documents = [each for each in yaml.safe_load_all(text) if each]
    return [rule for each in documents if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]


@asynccontextmanager
async def running(
    cluster: ControlPlane, name: str, folder: Path, *more: Rule, env: Mapping[str, str] | None = None
) -> AsyncGenerator[Levelog]:
    """`levelog run` of an example, with the printed rights and more; stopped in order at the end."""
    levelog = Levelog(folder, await cluster.kubeconfig_for([*printed_rules(name), *more]))
    with levelog.start("run", EXAMPLES / name / f"{name}.py", env=env) as process:
        yield levelog
        assert await process.stops() == 0


async def define(api: Api, name: str) -> None:
    """Install the example's definition, if it has one."""
    if (file := EXAMPLES / name / "crd.yaml").exists():
        await api.create(DEFINITIONS, yaml.safe_load(file.read_text()))


def manifests(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / path).read_text()))


async def come_to(levelog: Levelog, statuses: Mapping[str, str]) -> None:
    """Wait until the levels of these views have these statuses."""

    async def have_come() -> bool:
        found = {level["view"].partition("/")[2]: level["status"] for level in await levelog.levels()}
        return statuses.items() <= found.items()

    await until(have_come, f"{statuses}", seconds=60, pause=0.25)


class Example(NamedTuple):
    """What an example is given, what its levels come to, and what it writes for that: patched resources."""

    file: str
    levels: Mapping[str, str]
    patches: tuple[str, ...] = ()
    collection: str = ""
    """Unless its objects are of its own class."""


RUN = {
    "guardrails": Example(
        "team-a.yaml", {"quotas": "in_sync", "findings": "drifting"}, ("resourcequotas",), "/api/v1/namespaces"
    ),
    "inventory": Example("pods.yaml", {"unpinned": "drifting"}, collection="/api/v1/namespaces/{namespace}/pods"),
    "previews": Example("pr-7.yaml", {"lives": "in_sync"}, ("previews",)),
    "sites": Example("blog.yaml", {"parts": "in_sync"}, ("configmaps", "services", "deployments")),
    "releases": Example("stable.yaml", {"followed": "in_sync"}, ("releases",)),
    "domains": Example("shop.yaml", {"register": "in_sync", "renew": "in_sync"}),
    "renders": Example("film.yaml", {"follow": "in_sync"}, ("renders",)),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With one commit."""
    folder = tmp_path / "repository"
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", folder], check=True)
    subprocess.run(["git", "-C", folder, *who, "commit", "--quiet", "--allow-empty", "--message", "a"], check=True)
    return folder


@pytest_asyncio.fixture
async def outside(repository: Path) -> AsyncIterator[dict[str, str]]:
    """Settings that name what examples follow outside of the cluster: a server has done all that it is asked for."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"id": "job", "state": "done", "frames": 1, "message": ""})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield {"REPOSITORY": str(repository), "REGISTRAR_URL": url, "FARM_URL": url}
    await runner.cleanup()


@pytest.mark.parametrize(
    "name", [each if each == "guardrails" else pytest.param(each, marks=pytest.mark.long) for each in RUN]
)
async def test_an_example_comes_to_rest_with_the_rights_that_are_printed(
    private_control_plane: ControlPlane, tmp_path: Path, outside: dict[str, str], name: str
) -> None:
    cluster, api, example = private_control_plane, private_control_plane.admin, RUN[name]
    collection = example.collection or f"/apis/example.com/v1/namespaces/default/{name}"
    await define(api, name)
    async with running(cluster, name, tmp_path, env=outside) as levelog:
        for each in manifests(f"{name}/{example.file}"):
            await api.apply(collection.format(**each["metadata"]), each)

        await come_to(levelog, example.levels)
    requests = await cluster.audit.writes()
    written = {(each.verb, each.resource) for each in requests if "levelog" in each.user_agent and each.name}
    assert written == {("patch", each) for each in example.patches}


async def test_a_project_is_a_tenancy_whose_token_comes_back_and_goes_after_its_last_backup(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    rbac = "rbac.authorization.k8s.io"
    bind = {**rule(["clusterroles"], "bind", group=rbac), "resourceNames": ["edit"]}  # which is printed as a comment
    projects, secret = "/apis/example.com/v1/projects", "/api/v1/namespaces/atlas/secrets/token"
    await define(api, "projects")
    async with running(cluster, "projects", tmp_path, bind) as levelog:
        await api.apply(projects, manifests("projects/atlas.yaml")[0])

        async def token(other_than: str = "") -> str:
            status, found = await api.request("GET", secret)
            text = found["data"]["token"] if status == 200 else other_than
            return text if text != other_than else ""

        first = await until(token, "a token", seconds=60, pause=0.25)
        await come_to(levelog, {"tenancy": "in_sync", "projects_finalizer": "in_sync"})
        _, binding = await api.request("GET", f"/apis/{rbac}/v1/namespaces/atlas/rolebindings/members")
        assert [each["name"] for each in binding["subjects"]] == ["ann", "bob"]
        edited = "aHVudGVyMg=="
        await api.patch(secret, {"data": {"token": edited}})
        assert await until(lambda: token(edited), "the token that was there", seconds=60, pause=0.25) == first
        await api.request("DELETE", f"{projects}/atlas")
        job = "/apis/batch/v1/namespaces/atlas/jobs/last-backup"
        await api.shows(job, seconds=120)
        status, found = await api.request("GET", f"{projects}/atlas")
        assert (status, found["metadata"]["finalizers"]) == (200, ["levelog/projects"])
        await api.patch(f"{job}/status", {"status": {"succeeded": 1}})
        await api.lacks(f"{projects}/atlas")


@pytest.mark.long
async def test_a_kopf_file_keeps_databases_with_a_client_of_its_own(
    private_control_plane: ControlPlane, tmp_path: Path
) -> None:
    cluster, api = private_control_plane, private_control_plane.admin
    databases = "/apis/example.com/v1/namespaces/default/databases"
    core = "/api/v1/namespaces/default"
    of_the_client = rule(["persistentvolumeclaims", "configmaps"], "create", "patch", "delete")
    await define(api, "databases")
    [orders] = manifests("databases/orders.yaml")
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
        "allowVolumeExpansion": True,
    }
    await api.apply("/apis/storage.k8s.io/v1/storageclasses", storage)

    async def names() -> set[str]:
        _, found = await api.request("GET", f"{core}/configmaps")
        return {each["metadata"]["name"] for each in found["items"]} - {"kube-root-ca.crt"}

    async def are(*expected: str) -> None:
        await until(names, f"the ConfigMaps {expected}", accept=lambda found: found == set(expected))

    async def change(change: dict[str, Any]) -> None:
        await api.patch(f"{databases}/orders", change)

    async with running(cluster, "databases", tmp_path, of_the_client) as levelog:
        await api.apply(databases, orders)
        await are("orders-ann", "orders-bob")
        metadata = {"name": "server-0", "labels": {"app": "database-server"}}
        containers = {"containers": [{"name": "server", "image": "server:1"}]}
        await api.apply(f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": containers})
        await are("orders-ann", "orders-bob", "orders-connection")
        status = {"phase": "Ready", "created": {"claim": "orders-data", "host": "server-0.default"}}
        await api.shows(f"{databases}/orders", lambda found: status.items() <= found.get("status", {}).items())
        await change({"spec": {"users": ["bob", "cid"]}})
        await are("orders-bob", "orders-cid", "orders-connection")
        claim = f"{core}/persistentvolumeclaims/orders-data"
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
        await api.patch(f"{claim}/status", bound)  # as its controller would
        await change({"spec": {"gigabytes": 5}})
        grown = await api.shows(claim, lambda found: found["spec"]["resources"]["requests"]["storage"] == "5Gi")
        assert [(each["kind"], each["name"]) for each in grown["metadata"]["ownerReferences"]] == [
            ("Database", "orders")
        ]
        await change({"metadata": {"annotations": {"example.com/keep": "ann"}}})
        await api.request("DELETE", f"{databases}/orders")
        query = "select count(*) from levels where reason like '%ann wants it kept%'"
        await until(lambda: levelog.rows(query) == [(1,)], "a call that waits to be tried again")
        await change({"metadata": {"annotations": {"example.com/keep": None}}})
        await api.lacks(f"{databases}/orders")
        assert "orders-last" in await names()
        _, events = await api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        assert {each["reason"] for each in events["items"]} >= {"Granted", "Revoked"}
